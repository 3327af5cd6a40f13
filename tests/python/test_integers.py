"""INT64, which programs compute with in 32 bits: replies have ONNX Runtime's numbers, and whatever passes 32 bits is refused."""

import json
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BINARY
from onnx import TensorProto, helper, numpy_helper

SEED, FEATURES = 41, 3
INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT
PASSES = "passes 32 bits, which integers have in programs"


def write(path, nodes, constants, element=INT64, shape=("batch", "time", FEATURES)):
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", INT64, ["batch", "time", FEATURES])], [value("y", element, shape)]
    constants = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "integers", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def run(path, arrays):
    """For each request, the reply's array or the error."""
    def body(array):
        tensor = {"name": "x", "shape": array.shape, "datatype": "INT64", "data": array.ravel().tolist()}
        return json.dumps({"inputs": [tensor]})

    text = "\n".join(body(array) for array in arrays) + "\n"
    result = subprocess.run(
        [BINARY, "run", path], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout, result.stderr
    for line in map(json.loads, result.stdout.splitlines()):
        if "error" in line:
            yield line["error"]
        else:
            (output,) = line["outputs"]
            yield np.array(output["data"]).reshape(output["shape"])


def number(value):
    return {"c": np.array(value, np.int64)}


CASES = {
    "times a constant": ([node("Mul", "x c", "y")], number(100_003)),
    "squared": ([node("Mul", "x x", "y")], {}),
    "powers": ([node("Mul", "x x", "s"), node("Mul", "s x", "y")], {}),
    "sum of all": ([node("Add", "x x", "d"), node("Add", "d c", "e"), node("Sub", "e x", "y")], number(-7)),
    "far from its base": ([node("Sub", "x c", "d"), node("Cast", "d", "y", to=FLOAT)], number(2_000_000_000), FLOAT),
    "running sums": ([node("CumSum", "x one", "y")], {"one": np.array(1, np.int64)}),
    "sum of features": (
        [node("ReduceSum", "x last", "y")], {"last": np.array([-1], np.int64)}, INT64, ("batch", "time", 1)),
    "product of features": (
        [node("ReduceProd", "x", "y", axes=[2])], {}, INT64, ("batch", "time", 1)),
    "sum of steps": (
        [node("ReduceSum", "x time", "y", keepdims=0)], {"time": np.array([1], np.int64)}, INT64, ("batch", FEATURES)),
    "hashed": ([node("Mul", "x c", "h"), node("Mod", "h m", "y")], number(31_337) | {"m": np.array(1000, np.int64)}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_number_or_a_refusal(tmp_path, case):
    path, (nodes, constants, *output) = tmp_path / "model.onnx", CASES[case]
    write(path, nodes, constants, *output)
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(SEED)
    arrays = []
    for bits in (4, 9, 12, 15, 20, 28, 29, 30, 33):
        shape = (random.integers(1, 4), random.integers(1, 6), FEATURES)
        arrays.append(random.integers(-(1 << bits), 1 << bits, shape))
    served = 0
    for array, reply in zip(arrays, run(path, arrays), strict=True):
        (wanted,) = session.run(None, {"x": array})
        if isinstance(reply, str):
            is_large = np.abs(array).max() >= 1 << 30
            assert ("expected integers in" in reply) if is_large else (PASSES in reply)
            assert is_large or max(np.abs(wanted).max(), np.abs(array).max() ** 2 * FEATURES) > 1 << 30
        else:
            served += 1
            assert np.array_equal(reply, wanted.astype(reply.dtype)) or np.allclose(reply, wanted, rtol=1e-6)
    assert served >= 2


def test_a_bad_request_is_refused_alone(tmp_path):
    write(tmp_path / "model.onnx", *CASES["squared"])
    good, bad = np.array([[[1, -46_000, 5]]]), np.array([[[1, 46_400, 5]]])
    replies = list(run(tmp_path / "model.onnx", [good, bad, good, bad, bad, good]))
    assert [isinstance(reply, str) for reply in replies] == [False, True, False, True, True, False]
    assert all(np.array_equal(reply, good**2) for reply in replies if not isinstance(reply, str))


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
def test_a_constant_that_passes_32_bits(tmp_path, operator):
    write(tmp_path / "model.onnx", [node(operator, "x c", "y")], number(1 << 40))
    result = subprocess.run(
        [BINARY, "run", tmp_path / "model.onnx"], input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode != 0
    assert PASSES in result.stderr
