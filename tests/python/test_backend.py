"""The ONNX project's own tests of LSTM, GRU and RNN. Their weights, which the tests give as inputs,
are made constants; lengths and first states stay inputs or become constants as well."""

import node_tests
import pytest

WEIGHTS = {"W", "R", "B", "P"}
PREFIXES = ("test_lstm", "test_gru", "test_rnn", "test_simple_rnn")
CASES = {case.name: case for case in node_tests.cases() if case.name.startswith(PREFIXES)}


def parameters():
    """Every case with its weights constant, and with what else it is given."""
    for case in CASES.values():
        names = [info.name for info in case.model.graph.input]
        weights = [name for name in names if name in WEIGHTS]
        yield pytest.param(case.name, weights, id=case.name)
        others = [name for name in names[1:] if name not in WEIGHTS]
        for constants in [others, *([name] for name in others if len(others) > 1)]:
            if constants:
                yield pytest.param(case.name, weights + constants, id="-".join([case.name, *constants]))


@pytest.mark.parametrize("name, constants", list(parameters()))
def test_node(name, constants):
    outcome = node_tests.run(CASES[name], constants)
    assert outcome.kind == "passes", f"{outcome.kind}: {outcome.reason}"


def test_that_a_difference_is_found():
    """Of values, shape, type and names: else the tests above show nothing."""
    (wanted,) = CASES["test_lstm_defaults"].data_sets[0][1]
    output = node_tests.tensor("Y_h", wanted)
    compare = lambda **changed: node_tests.compare([output | changed], ["Y_h"], [wanted], 1e-3, 1e-7)
    assert compare() == ""
    first, *rest = output["data"]
    assert "Mismatched elements: 1 / 9" in compare(data=[first + 0.01, *rest])
    assert "has shape [3, 3]" in compare(shape=[3, 3])
    assert "is FP64" in compare(datatype="FP64")
    assert "outputs ['Y']" in compare(name="Y")
