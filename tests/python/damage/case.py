"""A copy of a model that is damaged, and the list of ways to damage it."""

import contextlib
import dataclasses
import pathlib

import onnx


@dataclasses.dataclass
class Case:
    """A copy of a model, to be damaged."""

    base: str
    # The folder of the model's files.
    folder: pathlib.Path
    # What the program is given: a file in it, or the folder itself.
    model: pathlib.Path
    # A folder beside it. Nothing in it may be read, though it holds what would fit.
    outside: pathlib.Path
    # Whether loading would mean that something outside the folder was read.
    must_refuse: bool = False
    way: str = ""
    description: str = ""


class Unfit(Exception):
    """The model has nothing that could be damaged so."""


WAYS = {}


def way(function):
    """Adds a way."""
    WAYS[function.__name__.replace("_", " ")] = function
    return function


def draw(random, choices):
    """One of them, if there are any."""
    choices = list(choices)
    if not choices:
        raise Unfit
    return random.choice(choices)


# Numbers that programs get wrong.
NUMBERS = [
    0, 1, -1, 2, -2, 3, 5, 7, 100, -100, 4096, 2**20, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40,
    -(2**40), 2**62, 2**63 - 1, -(2**63),
]
HUGE = 2**40


def files(case, suffixes=(".onnx", ".bin", ".toml", ".txt")):
    return sorted(path for path in case.folder.rglob("*") if path.suffix in suffixes)


def onnx_file(random, case):
    return draw(random, files(case, (".onnx",)))


@contextlib.contextmanager
def edited(path):
    """The model of a file, which is written back, checked by nobody."""
    model = onnx.load(path, load_external_data=False)
    yield model
    path.write_bytes(model.SerializeToString())


def replace(repeated, values):
    values = list(values)
    del repeated[:]
    repeated.extend(values)
