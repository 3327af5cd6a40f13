"""The attacks in their short form, against the server that the other tests use.

Bounds of time are wide here, since whatever else the machine does takes part; `run.py` has the narrow
ones and the long form.
"""

import os

import pytest
from conftest import BINARY

from attacks import every_attack, models  # noqa: F401
from attacks.registry import ATTACKS
from attacks.trial import Limits, Trials

LIMITS = Limits(
    live=float(os.environ.get("ATTACKS_LIVE_SECONDS", 1.0)), least_p99=1.0, patience=15.0
)
SHORT = [of.name for of in ATTACKS.values() if of.in_short and of.name != "harmless"]


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    trials = Trials(BINARY, models.write(tmp_path_factory.mktemp("attacked")), LIMITS, short=True)
    yield trials
    assert trials.close() == []


@pytest.mark.parametrize("name", SHORT)
def test_holds(trials, name):
    outcome = trials.run(ATTACKS[name])
    assert not outcome.broken, (outcome.broken, outcome.notes)
