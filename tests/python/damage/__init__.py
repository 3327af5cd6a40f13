"""Ways to damage a model, seeded.

A way is a function of a random generator and a `Case`, a copy of one of the models of `models.py`: it
changes the case's folder and returns a short description, or raises `Unfit` where the model has
nothing that it could damage.
"""

import random as random_
import shutil

# Each adds its ways to `WAYS`, in this order.
from . import raw, messages, graphs, grafts, external, tables  # noqa: F401
from .case import WAYS, Case, Unfit
from .finds import FINDS
from .models import SERVED, write_all

__all__ = ["FINDS", "SERVED", "WAYS", "Case", "damaged", "write_all"]


def damaged(models, into, seed, number):
    """The damaged model `number` of a seed: a `Case` in the folder `into`.

    `models` is the folder of the models and what `write_all` says of them. Ways take turns, so as many
    numbers as there are ways use each of them once.
    """
    folder, paths = models
    random = random_.Random(f"{seed}/{number}")
    name = list(WAYS)[number % len(WAYS)]
    # A model that is refused as it is hides what is damaged in it, so there are fewer of those.
    bases = sorted(paths, key=lambda base: random.random() + (base not in SERVED))
    if random.random() < 0.2:
        bases.reverse()
    for base in bases:
        case = Case(base, into / "model", into / "model" / paths[base], into / "outside", way=name)
        shutil.copytree(folder / base, case.folder)
        case.outside.mkdir()
        try:
            case.description = WAYS[name](random, case)
            return case
        except Unfit:
            shutil.rmtree(case.folder)
            shutil.rmtree(case.outside)
    raise AssertionError(f"{name}: no model can be damaged so")
