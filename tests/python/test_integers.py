"""INT64: what is derived of the request's own integers has 64 bits and ONNX Runtime's numbers, on rows of any layout; what programs
read of it has 32, and whatever passes these is refused."""

import json
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BINARY
from onnx import TensorProto, helper, numpy_helper
from sessions import Client, Refused, cuts, in_threads, joined, play

SEED, FEATURES = 41, 3
INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
PASSES = "passes 32 bits, which integers have in programs"
DAY, NOON = 86_400_000, 1_700_000_000_000


def write(path, nodes, constants, element=INT64, shape=("batch", "time", FEATURES), inputs=None):
    value = helper.make_tensor_value_info
    inputs = inputs or {"x": (INT64, ["batch", "time", FEATURES])}
    inputs = [value(name, *of) for name, of in inputs.items()]
    constants = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    outputs = [value("y", element, shape)]
    graph = helper.make_graph(nodes, "integers", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def run(path, requests):
    """For each request, the reply's array or the error."""
    def tensor(name, array):
        kind = {"int64": "INT64", "float32": "FP32", "bool": "BOOL"}[array.dtype.name]
        return {"name": name, "shape": array.shape, "datatype": kind, "data": array.ravel().tolist()}

    def body(request):
        request = request if isinstance(request, dict) else {"x": request}
        return json.dumps({"inputs": [tensor(name, array) for name, array in request.items()]})

    text = "\n".join(map(body, requests)) + "\n"
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


LAST, MOST = {"last": np.array([-1], np.int64)}, {"m": np.array(1 << 40, np.int64)}
PARTS = {"a": np.array([0], np.int64), "b": np.array([1], np.int64), "e": np.array([2], np.int64)}
ONE = ("batch", "time", 1)

# What each computes, its constants, and the type and shape of its output.
DERIVED = {
    "times a constant": ([node("Mul", "x c", "y")], number(100_003)),
    "plus a large constant": ([node("Add", "x c", "y")], number(1 << 61)),
    "squared": ([node("Mul", "x x", "y")], {}),
    "powers": ([node("Mul", "x x", "s"), node("Mul", "s x", "y")], {}),
    "sum of all": ([node("Add", "x x", "d"), node("Add", "d c", "e"), node("Sub", "e x", "y")], number(-7)),
    "far from its base": ([node("Sub", "x c", "d"), node("Cast", "d", "y", to=FLOAT)], number(NOON), FLOAT),
    "as it is": ([node("Cast", "x", "y", to=FLOAT)], {}, FLOAT),
    "cut off": ([node("Cast", "x", "y", to=TensorProto.INT32)], {}, TensorProto.INT32),
    "time of day": (
        [node("Sub", "x c", "d"), node("Mod", "d m", "r"), node("Cast", "r", "y", to=FLOAT)],
        number(NOON) | {"m": np.array(DAY, np.int64)}, FLOAT),
    "days": ([node("Div", "x c", "y")], number(DAY)),
    "remainders": ([node("Mod", "x c", "y", fmod=1)], number(-977)),
    "of the divisor's sign": ([node("Mod", "x c", "y")], number(-977)),
    "sizes": ([node("Abs", "x", "a"), node("Neg", "a", "n"), node("Add", "n c", "y")], number(-3)),
    "bounded": ([node("Max", "x c", "a"), node("Min", "a m", "y")], number(-(1 << 39)) | MOST),
    "compared": ([node("Greater", "x c", "y")], number(1 << 40), BOOL),
    "chosen": ([node("Less", "x c", "l"), node("Not", "l", "n"), node("Where", "n x c", "y")], number(1 << 35)),
    "of three": ([node("Max", "x c m", "g"), node("Min", "g x m", "y")], number(-(1 << 39)) | MOST),
    "of one": ([node("Min", "x", "y")], {}),
    "without sign": (
        [node("Cast", "x", "u", to=TensorProto.UINT32), node("Cast", "u", "y", to=INT64)], {}),
    "sum of features": ([node("ReduceSum", "x last", "y")], LAST, INT64, ONE),
    "greatest feature": ([node("ReduceMax", "x", "y", axes=[2], keepdims=0)], {}, INT64, ("batch", "time")),
    "parts": (
        [node("Slice", "x a b e", "p"), node("Mul", "p p", "q"), node("Concat", "q x", "y", axis=2)],
        PARTS, INT64, ("batch", "time", FEATURES + 1)),
    "picked": ([node("Gather", "x c", "p", axis=2), node("Mul", "p p", "y")], number([2, 0]), INT64, ("batch", "time", 2)),
    "last step": (
        [node("Gather", "x c", "p", axis=1), node("Mul", "p p", "y")], number(-1), INT64, ("batch", FEATURES)),
    "turned": ([node("Transpose", "x", "t", perm=[1, 0, 2]), node("Mul", "t t", "y")], {}, INT64, ("time", "batch", FEATURES)),
}

# As DERIVED, where a program reads what was derived, or what the request brings.
READ = {
    "running sums": ([node("CumSum", "x one", "y")], {"one": np.array(1, np.int64)}),
    "running products": ([node("Mul", "x x", "s"), node("CumSum", "s one", "y")], {"one": np.array(1, np.int64)}),
    "sum of steps": (
        [node("ReduceSum", "x time", "y", keepdims=0)], {"time": np.array([1], np.int64)}, INT64, ("batch", FEATURES)),
}

# As DERIVED, where what a program reads always fits.
HASHED = {
    "hashed": (
        [node("Mul", "x c", "h"), node("Mod", "h m", "i"), node("Gather", "table i", "y")],
        number(2_654_435_761) | {"m": np.array(97, np.int64), "table": np.arange(97, dtype=np.float32) / 7}, FLOAT),
    "scaled": (
        [node("Sub", "x c", "d"), node("Cast", "d", "f", to=FLOAT), node("Mul", "f s", "g"), node("Tanh", "g", "y")],
        number(NOON) | {"s": np.array(1e-12, np.float32)}, FLOAT),
}


def arrays(sizes):
    random = np.random.default_rng(SEED)
    for bits in sizes:
        shape = (random.integers(1, 4), random.integers(1, 6), FEATURES)
        yield random.integers(-(1 << bits), 1 << bits, shape)


def alike(reply, wanted):
    close = np.allclose(reply, wanted, rtol=1e-6, atol=1e-6)
    return reply.shape == wanted.shape and (np.array_equal(reply, wanted) if wanted.dtype.kind != "f" else close)


# ONNX Runtime computes these with DOUBLE.
EXACT = {"remainders": 53, "sum of features": 50}


@pytest.mark.parametrize("case", DERIVED | HASHED)
def test_integers_of_64_bits(tmp_path, case):
    path, (nodes, constants, *output) = tmp_path / "model.onnx", (DERIVED | HASHED)[case]
    write(path, nodes, constants, *output)
    session = onnxruntime.InferenceSession(path)
    requests = list(arrays(bits for bits in (4, 12, 15, 20, 29, 31, 33, 41, 50, 62) if bits <= EXACT.get(case, 62)))
    for array, reply in zip(requests, run(path, requests), strict=True):
        (wanted,) = session.run(None, {"x": array})
        assert not isinstance(reply, str), reply
        assert alike(reply, wanted), (array, reply, wanted)


def branch(name, nodes):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, INT64, None)])


def test_after_a_branch(tmp_path):
    """What follows an `If` on the request's integers has their 64 bits."""
    branches = {
        "then_branch": branch("t", [node("Add", "x c", "t")]), "else_branch": branch("e", [node("Sub", "x c", "e")])}
    nodes = [
        node("ReduceMax", "x", "g", axes=[1]), node("Greater", "g c", "is"),
        helper.make_node("If", ["is"], ["w"], **branches), node("Sub", "w c", "y")]
    inputs = {"x": (INT64, ["batch", FEATURES])}
    write(tmp_path / "model.onnx", nodes, number(1_440_253_742), INT64, ("batch", FEATURES), inputs)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    requests = [array[0, :1] for array in arrays((12, 29, 31, 40, 62))]
    for array, reply in zip(requests, run(tmp_path / "model.onnx", requests), strict=True):
        assert np.array_equal(reply, session.run(None, {"x": array})[0])


def test_conditions_of_large_numbers(tmp_path):
    """The branch of a request, by a number of it that FLOAT and DOUBLE do not hold."""
    branches = {
        "then_branch": branch("t", [node("Identity", "x", "t")]), "else_branch": branch("e", [node("Neg", "x", "e")])}
    large = (1 << 53) + 1
    nodes = [node("Equal", "s c", "is"), helper.make_node("If", ["is"], ["y"], **branches)]
    inputs = {"x": (INT64, ["batch", FEATURES]), "s": (INT64, [])}
    write(tmp_path / "model.onnx", nodes, number(large), INT64, ("batch", FEATURES), inputs)
    x = np.array([[1, -2, 1 << 40]])
    requests = [{"x": x, "s": np.array(s)} for s in (large - 1, large, large + 1)]
    replies = list(run(tmp_path / "model.onnx", requests))
    assert [np.array_equal(reply, x) for reply in replies] == [False, True, False]


def test_numbers_that_a_program_cuts_off(tmp_path):
    """A FLOAT or an INT32 cast to INT64, where a program has 32 bits."""
    inputs = {"x": (FLOAT, ["batch", FEATURES])}
    write(tmp_path / "float.onnx", [node("Cast", "x", "y", to=INT64)], {}, INT64, ("batch", FEATURES), inputs)
    floats = [np.array([[1.5, -7e8, large]], np.float32) for large in (2e9, 1e10, -3e9)]
    replies = list(run(tmp_path / "float.onnx", floats))
    assert np.array_equal(replies[0], np.trunc(floats[0]))
    assert PASSES in replies[1] and PASSES in replies[2]
    nodes = [node("Cast", "x", "i", to=TensorProto.INT32), node("Cast", "i", "w", to=INT64), node("Abs", "w", "y")]
    write(tmp_path / "abs.onnx", nodes, {}, INT64, ("batch", FEATURES), {"x": (INT64, ["batch", FEATURES])})
    replies = list(run(tmp_path / "abs.onnx", [np.array([[5, -6, least]]) for least in (-7, -(1 << 31))]))
    assert np.array_equal(replies[0], [[5, 6, 7]]) and PASSES in replies[1]


def test_a_cast_that_is_bounded_by_order(tmp_path):
    """Buckets of a logarithm: that of 0 is below all."""
    nodes = [
        node("Log", "x", "l"), node("Cast", "l", "i", to=INT64), node("Min", "i c", "m"), node("Greater", "x zero", "is"),
        node("Where", "is m zeros", "w"), node("Max", "w zeros", "y")]
    constants = number(15) | {"zero": np.array(0, np.float32), "zeros": np.array(0, np.int64)}
    inputs = {"x": (FLOAT, ["batch", FEATURES])}
    write(tmp_path / "model.onnx", nodes, constants, INT64, ("batch", FEATURES), inputs)
    (reply,) = run(tmp_path / "model.onnx", [np.array([[0.0, 8.0, 1e30]], np.float32)])
    assert np.array_equal(reply, [[0, 2, 15]])


def test_indices_of_a_sum_over_all(tmp_path):
    """Rows, between two operators on the whole request."""
    nodes = [
        node("ReduceSum", "x axes", "s"), node("Mod", "s c", "m"), node("GatherElements", "s m", "y", axis=2)]
    axes = {"axes": np.array([0, 1], np.int64)}
    write(tmp_path / "model.onnx", nodes, number(FEATURES) | axes, INT64, (1, 1, FEATURES), {
        "x": (INT64, [1, "time", FEATURES])})
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    requests = [array[:1] for array in arrays((4, 12, 20))]
    for array, reply in zip(requests, run(tmp_path / "model.onnx", requests), strict=True):
        assert np.array_equal(reply, session.run(None, {"x": array})[0])


@pytest.mark.parametrize("case", READ)
def test_the_number_or_a_refusal(tmp_path, case):
    path, (nodes, constants, *output) = tmp_path / "model.onnx", READ[case]
    write(path, nodes, constants, *output)
    session = onnxruntime.InferenceSession(path)
    requests = list(arrays((4, 9, 12, 15, 20, 28, 29, 30, 33, 40)))
    served = 0
    for array, reply in zip(requests, run(path, requests), strict=True):
        (wanted,) = session.run(None, {"x": array})
        largest = max(np.abs(wanted).max(), np.abs(array).max())
        if isinstance(reply, str):
            assert "expected integers in" in reply or PASSES in reply
            assert largest > 1 << 29
        else:
            served += 1
            assert alike(reply, wanted)
    assert served >= 3


def test_a_bad_request_is_refused_alone(tmp_path):
    write(tmp_path / "model.onnx", *READ["running products"])
    good, bad = np.array([[[1, -46_000, 5]]]), np.array([[[1, 46_400, 5]]])
    replies = list(run(tmp_path / "model.onnx", [good, bad, good, bad, bad, good]))
    assert [isinstance(reply, str) for reply in replies] == [False, True, False, True, True, False]
    assert all(np.array_equal(reply, good**2) for reply in replies if not isinstance(reply, str))


def test_inputs_of_several_layouts(tmp_path):
    inputs = {
        "x": (INT64, ["time", "batch", FEATURES]),
        "base": (INT64, ["batch", 1]),
        "keep": (BOOL, ["time", "batch", 1]),
    }
    nodes = [
        node("Sub", "x base", "d"), node("Mul", "d d", "s"), node("Where", "keep s c", "w"),
        node("Cast", "w", "f", to=FLOAT), node("LSTM", "f W R", "all y", hidden_size=4),
    ]
    random = np.random.default_rng(SEED)
    weights = {"W": random.normal(size=(1, 16, FEATURES)) * 1e-12, "R": random.normal(size=(1, 16, 4))}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    path = tmp_path / "model.onnx"
    write(path, nodes, number(-5) | weights, FLOAT, (1, "batch", 4), inputs)
    session = onnxruntime.InferenceSession(path)
    requests = []
    for steps, batch in ((1, 1), (4, 1), (5, 3), (2, 2)):
        base = random.integers(1 << 40, 1 << 41, (batch, 1))
        x = base + random.integers(-(1 << 20), 1 << 20, (steps, batch, FEATURES))
        requests.append({"x": x, "base": base, "keep": random.random((steps, batch, 1)) < 0.7})
    for request, reply in zip(requests, run(path, requests), strict=True):
        (wanted,) = session.run(None, request)
        assert not isinstance(reply, str), reply
        assert alike(reply, wanted), (reply, wanted)


def test_copies(tmp_path):
    write(tmp_path / "model.onnx", [node("Identity", "x", "y")], {})
    requests = list(arrays((4, 29, 40, 62)))
    for array, reply in zip(requests, run(tmp_path / "model.onnx", requests), strict=True):
        assert np.array_equal(reply, array)


WINDOWS = [
    node("Transpose", "f", "t", perm=[0, 2, 1]), node("Conv", "t K", "u", pads=[2, 0]), node("Transpose", "u", "g", perm=[2, 0, 1])]


@pytest.mark.parametrize("before", ["steps", "windows"])
def test_sessions(serve, tmp_path, before):
    """Times of day, before an LSTM or a causal convolution."""
    time_first = before == "steps"
    nodes = [
        node("Sub", "x c", "d"), node("Mod", "d m", "r"), node("Cast", "r", "s", to=FLOAT), node("Mul", "s q", "f"),
        *([] if time_first else WINDOWS),
        node("LSTM", f"{'f' if time_first else 'g'} W R", "h", hidden_size=4), node("Squeeze", "h axis", "y"),
    ]
    random = np.random.default_rng(SEED)
    shapes = {"W": (1, 16, FEATURES), "R": (1, 16, 4), "K": (FEATURES, FEATURES, 3)}
    weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    others = {"m": np.array(DAY, np.int64), "q": np.array(1 / DAY, np.float32), "axis": np.array([1], np.int64)}
    axes = ["time", "batch"] if time_first else ["batch", "time"]
    inputs = {"x": (INT64, [*axes, FEATURES])}
    write(tmp_path / "model.onnx", nodes, number(NOON) | weights | others, FLOAT, ("time", "batch", 4), inputs)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    server = serve(tmp_path / "model.onnx")
    sequences = []
    for steps in (1, 2, 7, 30, 61):
        shape = (steps, 1, FEATURES) if time_first else (1, steps, FEATURES)
        sequences.append(NOON + random.integers(-(1 << 40), 1 << 40, shape))

    def converse(index):
        client, x = Client(server, "model"), sequences[index]
        alone = client.infer({"x": x})["y"]
        (wanted,) = session.run(None, {"x": x})
        assert alike(alone, wanted)
        ends = cuts(random, len(wanted))
        replies = play(client, index + 1, {"x": x}, {}, ends, 0 if time_first else 1)
        assert joined(replies, 0, ["y"])["y"].tobytes() == alone.tobytes()
        client.close()

    in_threads(len(sequences), converse)
    server.wait_until_unused()


@pytest.mark.parametrize("step", [0, -1])
def test_a_step_of_a_session(serve, tmp_path, step):
    """Differences from a step of the whole sequence: no chunk knows it."""
    nodes = [
        node("Gather", "x c", "one", axis=0), node("Unsqueeze", "one first", "base"), node("Sub", "x base", "d"),
        node("Cast", "d", "f", to=FLOAT), node("LSTM", "f W R", "h y", hidden_size=4)]
    random = np.random.default_rng(SEED)
    weights = {"W": random.normal(size=(1, 16, FEATURES)), "R": random.normal(size=(1, 16, 4))}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    constants = number(step) | {"first": np.array([0], np.int64)} | weights
    inputs = {"x": (INT64, ["time", "batch", FEATURES])}
    write(tmp_path / "model.onnx", nodes, constants, FLOAT, (1, "batch", 4), inputs)
    client = Client(serve(tmp_path / "model.onnx"), "model")
    with pytest.raises(Refused, match="the model takes no sessions"):
        client.chunk(1, {"x": np.ones((2, 1, FEATURES), np.int64)}, True, False)
    client.close()


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Mod", "Equal"])
def test_a_program_has_no_constant_that_passes_32_bits(tmp_path, operator):
    element = BOOL if operator == "Equal" else INT64
    nodes = [node("CumSum", "x one", "s"), node(operator, "s c", "y")]
    write(tmp_path / "model.onnx", nodes, number(1 << 40) | {"one": np.array(1, np.int64)}, element)
    result = subprocess.run(
        [BINARY, "run", tmp_path / "model.onnx"], input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode != 0
    assert PASSES in result.stderr or "does not fit 32 bits" in result.stderr
