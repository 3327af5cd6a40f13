"""Damaged models are loaded or refused with one error; `check_damaged.py` does it at length."""

import check_damaged
import damage
import pytest
from check_damaged import BINARY

# Of the ways, each of which is used once.
SEED = 1


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return folder, damage.write_all(folder)


def check(case, into):
    return check_damaged.check(case, BINARY, into, check_damaged.Random(SEED))


@pytest.mark.parametrize("base", damage.SERVED)
def test_models_without_damage_are_served(models, tmp_path, base):
    folder, paths = models
    verdict = check(damage.Case(base, folder / base, folder / base / paths[base], tmp_path), tmp_path)
    assert verdict.loads and not verdict.broken, (verdict.broken, verdict.errors)
    assert verdict.answered >= 3, verdict.errors


@pytest.mark.parametrize("find", damage.FINDS)
def test_what_was_once_wrong(tmp_path, find):
    path = damage.FINDS[find](tmp_path / "model")
    verdict = check(damage.Case(find, tmp_path / "model", path, tmp_path), tmp_path)
    assert not verdict.broken, (verdict.broken, verdict.errors)


@pytest.mark.parametrize("number", range(len(damage.WAYS)), ids=list(damage.WAYS))
def test_damaged_models(models, number):
    verdict = check_damaged.check_number(models, SEED, number, BINARY)
    case = verdict.case
    assert not verdict.broken, (verdict.broken, case.base, case.description, verdict.errors)
