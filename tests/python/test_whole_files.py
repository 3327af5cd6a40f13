"""Files whose parts take all steps of a sequence at once: convolutions, pools, attention, softmax over
time; files without a recurrent operator; branches that fold. Through `batchmaker run` against ONNX
Runtime.

A reply is within 1e-5 of ONNX Runtime's (|a - b| <= 1e-5 * max(1, max|b|)) and, bit for bit, the same
as the reply to the same request sent alone.
"""

import json
import re
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BINARY
from graph_builder import FEATURES, HIDDEN, Graph
from onnx import TensorProto, helper, numpy_helper

SEED = 20268


def convolution(graph):
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(10, FEATURES, 3), graph.weights(10), pads=[1, 1], strides=[2])
    graph.op("Relu")
    graph.op("Transpose", perm=[0, 2, 1])
    return graph.lstm(10, "bidirectional")


def pools(graph):
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Pad", graph.constant([0, 0, 2, 0, 0, 1], np.int64), mode="edge")
    graph.op("MaxPool", kernel_shape=[3], strides=[1], pads=[1, 1])
    graph.op("AveragePool", kernel_shape=[2], strides=[1])
    graph.op("Transpose", perm=[0, 2, 1])
    return graph.lstm(FEATURES)


def clipped_pools(graph):
    """Over sequences of two and five steps, the first window of a pool passes their end."""
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("MaxPool", kernel_shape=[3], strides=[2])
    graph.op("AveragePool", kernel_shape=[4], strides=[4], pads=[1, 0])
    graph.op("MaxPool", kernel_shape=[2], strides=[2])
    graph.op("Transpose", perm=[0, 2, 1])
    return graph.lstm(FEATURES)


def attention_pooling(graph):
    y = graph.lstm(FEATURES, "bidirectional")
    graph.op("MatMul", graph.weights(2 * HIDDEN, 1))
    graph.op("Softmax", axis=1)
    graph.op("Mul", y)
    return graph.op("ReduceSum", graph.constant([1], np.int64), keepdims=0)


def self_attention(graph):
    y = graph.lstm(FEATURES)
    graph.op("MatMul", graph.weights(HIDDEN, HIDDEN))
    query = graph.op("Mul", graph.constant(0.5))
    graph.last = y
    keys = graph.op("Transpose", perm=[0, 2, 1])
    graph.last = query
    graph.op("MatMul", keys)
    graph.op("Softmax", axis=-1)
    graph.op("MatMul", y)
    return graph.op("Add", y)


def softmax_over_first_axis(graph):
    """Along the axis of time where it is axis 0: no row's own business."""
    graph.lstm(FEATURES)
    graph.op("Transpose", perm=[1, 0, 2])
    graph.op("Softmax", axis=0)
    return graph.op("CumSum", graph.constant(0, np.int64))


def all_steps_of_all_sequences(graph):
    """One axis of both, steps first."""
    graph.lstm(FEATURES)
    graph.op("Transpose", perm=[1, 0, 2])
    graph.op("Softmax", axis=0)
    return graph.op("Reshape", graph.constant([-1, HIDDEN], np.int64))


def ties_and_zeros(graph):
    """The first of equal elements, the sign of zero, the truth of halves."""
    graph.op("Relu")
    graph.op("Sign")
    graph.op("Cast", to=TensorProto.BOOL)
    graph.op("Cast", to=TensorProto.FLOAT)
    graph.op("ArgMax", axis=2, keepdims=0)
    return graph.op("Cast", to=TensorProto.FLOAT)


def backwards(graph):
    graph.lstm(FEATURES)
    backwards = [graph.constant([n], np.int64) for n in (-1, -(2**62), 1, -1)]
    graph.op("Slice", *backwards)
    graph.lstm(HIDDEN)
    graph.op("Slice", *[graph.constant([n], np.int64) for n in (0, -1, 1)])
    return graph.op("ReduceMax", axes=[1], keepdims=0)


def causal_attention(graph):
    """Scores of [batch, time, time] under a mask of triangles, by Trilu and by comparing positions."""
    keys = graph.lstm(FEATURES)
    graph.op("Shape")
    size = graph.op("Gather", graph.constant(1, np.int64), axis=0)
    zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
    graph.last = zero
    positions = graph.op("Range", size, one)
    row = graph.op("Unsqueeze", graph.constant([0], np.int64))
    graph.last = positions
    graph.op("Unsqueeze", graph.constant([1], np.int64))
    later = graph.op("Less", row)
    graph.last = size
    length = graph.op("Unsqueeze", graph.constant([0], np.int64))
    square = graph.op("Concat", length, axis=0)
    graph.last = graph.constant(-1e9)
    graph.op("Expand", square)
    triangle = graph.op("Trilu", graph.constant(1, np.int64), upper=1)
    graph.last = keys
    graph.op("Einsum", keys, equation="bth,bsh->bts")
    graph.op("Add", triangle)
    scores = graph.op("Softmax", axis=-1)
    graph.last = later
    masked = graph.op("Where", graph.constant(0.5), scores)
    graph.last = masked
    graph.op("MatMul", keys)
    return graph.lstm(HIDDEN)


def composed(graph):
    graph.op("Mish")
    names = graph.op(
        "LayerNormalization", graph.weights(FEATURES), graph.weights(FEATURES), outputs=3, axis=-1
    )
    graph.op("Add", names[1])
    graph.op("Mul", names[2])
    graph.op("RMSNormalization", graph.weights(FEATURES), axis=-1, epsilon=1e-4)
    graph.op("Einsum", graph.weights(3, FEATURES, 4), equation="btf,kfo->btok")
    graph.op("Reshape", graph.constant([0, 0, -1], np.int64))
    return graph.lstm(12)


def vector_weights(graph):
    """Products with a vector, which lose an axis: a score of each step, and of each sequence."""
    scores = graph.op("MatMul", graph.weights(FEATURES))
    graph.last = "x"
    means = graph.op("ReduceMean", axes=[1], keepdims=0)
    of_all = graph.op("MatMul", graph.weights(FEATURES))
    graph.op("Unsqueeze", graph.constant([1], np.int64))
    graph.op("Add", scores)
    graph.last = graph.op("Unsqueeze", graph.constant([2], np.int64))
    graph.op("Mul", graph.weights(HIDDEN))
    scaled = graph.op("ReduceMax", axes=[1], keepdims=0)
    graph.last = means
    graph.op("MatMul", graph.weights(FEATURES, HIDDEN))
    graph.op("Add", scaled)
    graph.op("Transpose", perm=[1, 0])
    graph.op("Mul", of_all)
    return graph.op("Transpose", perm=[1, 0])


def scores(graph):
    """A number for each step: of a product with a vector."""
    score = graph.op("MatMul", graph.weights(FEATURES))
    graph.last = graph.op("Unsqueeze", graph.constant([2], np.int64))
    graph.op("Mul", "x")
    graph.op("MatMul", graph.weights(FEATURES))
    return graph.op("Mul", score)


def time_first(graph):
    """A mean over the first axis, with sequences behind it."""
    graph.op("Transpose", perm=[1, 2, 0])
    graph.op("ReduceMean", axes=[0], keepdims=0)
    return graph.op("Transpose", perm=[1, 0])


def no_recurrence(graph):
    graph.op("MatMul", graph.weights(FEATURES, HIDDEN))
    graph.op("Tanh")
    graph.op("ReduceMean", axes=[1], keepdims=0)
    return graph.op("Softmax", axis=-1)


def branch(graph):
    """An `If` on the rank of its input, inside another."""
    inner = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["inner"])], "then",
        [], [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Squeeze", ["x"], ["other"])], "else",
        [], [helper.make_tensor_value_info("other", TensorProto.FLOAT, None)],
    )
    graph.op("Shape")
    graph.op("Size")
    graph.op("Equal", graph.constant(3, np.int64))
    graph.op("Cast", to=TensorProto.BOOL)
    condition = graph.nodes.pop().input[0]
    graph.nodes.append(
        helper.make_node("If", [condition], ["branched"], "if", then_branch=inner, else_branch=other)
    )
    graph.last = "branched"
    return graph.lstm(FEATURES)


def resized(graph):
    """More steps, repeated, interpolated and by a transposed convolution; then half as many."""
    graph.op("Transpose", perm=[0, 2, 1])
    scales = graph.constant([1, 1, 2], np.float32)
    graph.op(
        "Resize", "", scales, mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    graph.op("Resize", "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    graph.op("ConvTranspose", graph.weights(FEATURES, 5, 4), graph.weights(5), strides=[2], pads=[1, 1])
    graph.op("InstanceNormalization", graph.weights(5), graph.weights(5))
    graph.op("MaxPool", kernel_shape=[3], strides=[2], ceil_mode=1)
    graph.op("Transpose", perm=[0, 2, 1])
    return graph.lstm(5)


def quantised(graph):
    """Numbers quantised by scales of the file: one for a tensor, one for every column."""
    scale, zero = graph.constant(0.03), graph.constant(7, np.uint8)
    columns = graph.constant(graph.random.uniform(0.001, 0.01, HIDDEN))
    graph.op("QuantizeLinear", scale, zero)
    x = graph.op("DequantizeLinear", scale, zero)
    graph.last = graph.constant(graph.random.integers(-127, 128, (FEATURES, HIDDEN)), np.int8)
    weights = graph.op("DequantizeLinear", columns, graph.constant([0] * HIDDEN, np.int8), axis=1)
    graph.last = x
    graph.op("MatMul", weights)
    return graph.lstm(HIDDEN)


def selected(graph):
    """Rows and elements at computed places, some of them counted from the end."""
    y = graph.lstm(FEATURES)
    _, places = graph.op("TopK", graph.constant([3], np.int64), outputs=2, axis=2)
    graph.last = places
    from_the_end = graph.op("Sub", graph.constant(HIDDEN, np.int64))
    graph.last = y
    graph.op("GatherElements", from_the_end, axis=2)
    graph.op("Mul", graph.constant(-0.5))
    halved, graph.last = graph.last, y
    chosen = graph.op("ScatterElements", from_the_end, halved, axis=2)
    graph.op("ArgMin", axis=2, keepdims=0)
    ids = graph.op("Mod", graph.constant(5, np.int64))
    graph.last = graph.weights(5, HIDDEN)
    rows = graph.op("Gather", ids, axis=0)
    graph.last = chosen
    return graph.op("Add", rows)


def clipped(graph):
    """Bounds that are computed, of a row and of a constant; axes of one element dropped unnamed."""
    least = graph.op("ReduceMin", axes=[1, 2], keepdims=0)
    graph.last = "x"
    graph.op("Max", graph.constant(-1.0))
    graph.last = graph.constant([[[2.0]]])
    most = graph.op("Squeeze")
    graph.last = "x"
    graph.op("Clip", "", most)
    half = graph.op("Mul", graph.constant(0.5))
    graph.last = least
    graph.op("Unsqueeze", graph.constant([1, 2], np.int64))
    return graph.op("Max", half)


def branch_of_the_length(graph):
    """Eight steps or more take another way than fewer."""
    def subgraph(name, operator):
        return helper.make_graph(
            [helper.make_node(operator, ["x"], [name])], name, [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        )

    graph.op("Shape")
    graph.op("Gather", graph.constant(1, np.int64), axis=0)
    long = graph.op("Greater", graph.constant(7, np.int64))
    branches = {"then_branch": subgraph("long", "Tanh"), "else_branch": subgraph("short", "Relu")}
    graph.nodes.append(helper.make_node("If", [long], ["branched"], "if", **branches))
    graph.last = "branched"
    return graph.lstm(FEATURES)


def filter_bank(graph):
    """Weights that the file keeps as their places in zeros, some of them counted from the end."""
    x, graph.last = graph.last, graph.constant([FEATURES * HIDDEN], np.int64)
    graph.op("ConstantOfShape")
    places = graph.random.permutation(FEATURES * HIDDEN)[:20] - FEATURES * HIDDEN // 2
    graph.op("ScatterElements", graph.constant(places, np.int64), graph.weights(20), axis=0)
    weights = graph.op("Reshape", graph.constant([FEATURES, HIDDEN], np.int64))
    graph.last = x
    graph.op("MatMul", weights)
    return graph.lstm(HIDDEN)


def dequantised(graph, shape, kind, scales, axis):
    """The last value as bytes stand for it, and weights `shape` likewise."""
    scale, zero = graph.constant(0.03), graph.constant(9, np.uint8)
    graph.op("QuantizeLinear", scale, zero)
    x = graph.op("DequantizeLinear", scale, zero)
    low, high, middle = (-128, 128, 0) if kind is np.int8 else (0, 256, 131)
    graph.last = graph.constant(graph.random.integers(low, high, shape), kind)
    zero = graph.constant(np.full(np.shape(scales), middle), kind)
    weights = graph.op("DequantizeLinear", graph.constant(scales), zero, axis=axis)
    graph.last = x
    return weights


def dequantised_convolution(graph):
    graph.op("Transpose", perm=[0, 2, 1])
    scales = graph.random.uniform(0.001, 0.01, 10)
    graph.op("Conv", dequantised(graph, (10, FEATURES, 3), np.int8, scales, 0), graph.weights(10), pads=[1, 1])
    graph.op("Relu")
    graph.op("Transpose", perm=[0, 2, 1])
    return graph.lstm(10)


def dequantised_product(graph):
    graph.op("MatMul", dequantised(graph, (FEATURES, 12), np.uint8, 0.004, 0))
    graph.op("Add", graph.weights(12))
    return graph.lstm(12)


def dequantised_gemm(graph):
    """The last step of each sequence, through a `Gemm` of bytes."""
    graph.lstm(FEATURES)
    graph.op("Gather", graph.constant(-1, np.int64), axis=1)
    weights = dequantised(graph, (7, HIDDEN), np.int8, graph.random.uniform(0.001, 0.01, 7), 0)
    return graph.op("Gemm", weights, graph.weights(7), transB=1)


CASES = [
    convolution, pools, clipped_pools, attention_pooling, self_attention, softmax_over_first_axis,
    causal_attention, composed, all_steps_of_all_sequences, ties_and_zeros, backwards, vector_weights,
    scores, time_first, no_recurrence, branch, resized, quantised, selected, clipped, branch_of_the_length, filter_bank,
    dequantised_convolution, dequantised_product, dequantised_gemm,
]


def outputs(path, arrays):
    """The outputs of `batchmaker run`, a list for each request."""
    def body(array):
        kind = {"float32": "FP32", "int64": "INT64"}[str(array.dtype)]
        tensor = {"name": "x", "shape": array.shape, "datatype": kind, "data": array.ravel().tolist()}
        return json.dumps({"inputs": [tensor]})

    text = "\n".join(body(array) for array in arrays) + "\n"
    result = subprocess.run(
        [BINARY, "run", path], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    def array(reply):
        return np.array(reply["data"], np.float32).reshape(reply["shape"])

    replies = [json.loads(line)["outputs"] for line in result.stdout.splitlines()]
    return [[array(reply) for reply in of_request] for of_request in replies]


def run(path, arrays):
    """The first output of each request."""
    return [of_request[0] for of_request in outputs(path, arrays)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_against_onnx_runtime(tmp_path, case):
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    case(graph)
    graph.save(path, opset=23 if case is composed else 17)
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(SEED)
    shapes = [(1, 5), (1, 5), (3, 5), (2, 9), (1, 9), (1, 2), (4, 31)]
    arrays = [random.standard_normal((*shape, FEATURES), np.float32) for shape in shapes]
    replies = run(path, arrays)
    for array, reply in zip(arrays, replies, strict=True):
        (wanted,) = session.run(None, {"x": array})
        assert reply.shape == wanted.shape
        assert np.max(np.abs(reply - wanted)) <= 1e-5 * max(1.0, np.max(np.abs(wanted)))
        (alone,) = run(path, [array])
        assert np.array_equal(alone, reply)


def test_a_long_chain(tmp_path):
    """Executors that call themselves for each operator need a large stack."""
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    for number in range(15_000):
        graph.op(("Sin", "Cos")[number % 2])
    graph.save(path)
    (reply,) = run(path, [np.ones((1, 1, FEATURES), np.float32)])
    assert np.max(np.abs(reply - 0.76817)) < 1e-4


def test_sequences_too_short(tmp_path):
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(10, FEATURES, 5))
    graph.op("Transpose", perm=[0, 2, 1])
    graph.lstm(10)
    graph.save(path)
    result = subprocess.run(
        [BINARY, "run", path], capture_output=True, text=True, timeout=60, check=False,
        input=json.dumps({"inputs": [
            {"name": "x", "shape": [1, 4, FEATURES], "datatype": "FP32", "data": [0.0] * 4 * FEATURES}
        ]}) + "\n",
    )
    assert result.returncode == 1
    assert "4 steps are too few for the model" in result.stdout


def quantised_by_the_sequence(graph):
    """Every sequence is quantised by the range of its own numbers."""
    x, scale, zero = graph.op("DynamicQuantizeLinear", outputs=3)
    weights = graph.constant(graph.random.integers(0, 256, (FEATURES, HIDDEN)), np.uint8)
    middle = graph.constant(120, np.uint8)
    graph.last = x
    graph.op("MatMulInteger", weights, zero, middle)
    product = graph.op("Cast", to=TensorProto.FLOAT)
    graph.last = scale
    factor = graph.op("Mul", graph.constant(0.01))
    graph.last = product
    graph.op("Mul", factor)
    channels, scale, zero = graph.op("DynamicQuantizeLinear", outputs=3)
    graph.last = channels
    graph.op("Transpose", perm=[0, 2, 1])
    kernel = graph.constant(graph.random.integers(0, 256, (5, HIDDEN, 3)), np.uint8)
    graph.op("ConvInteger", kernel, zero, middle, pads=[1, 1])
    graph.op("Cast", to=TensorProto.FLOAT)
    graph.op("Mul", scale)
    graph.op("Mul", graph.constant(np.full((5, 1), 0.01)))
    graph.op("Transpose", perm=[0, 2, 1])
    steps, scale, zero = graph.op("DynamicQuantizeLinear", outputs=3)
    graph.last = steps
    graph.op("DequantizeLinear", scale, zero)
    return graph.lstm(5)


def test_a_scale_is_of_one_sequence(tmp_path):
    """A request of several sequences has the numbers of the sequences sent one by one."""
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    quantised_by_the_sequence(graph)
    graph.save(path)
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(SEED)
    arrays = [random.standard_normal((batch, 11, FEATURES), np.float32) for batch in (1, 4, 2)]
    for array, reply in zip(arrays, run(path, arrays), strict=True):
        alone = [session.run(None, {"x": sequence[None]})[0] for sequence in array]
        wanted = np.concatenate(alone)
        assert np.max(np.abs(reply - wanted)) <= 1e-5 * max(1.0, np.max(np.abs(wanted)))
    profile = subprocess.run([BINARY, "profile", path, "--operators"], capture_output=True, text=True, check=True).stdout
    assert "Div, Add, Sub, Add, Clip, Sub" in profile, "rounded in one pass, though the zero point is known after the scale"


def fixed_lengths(graph, step=-1):
    """Products of each and of single steps between convolutions; gives the output of a product of every step too, which
    nothing but another product reads."""
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(4, FEATURES, 3), pads=[1, 1])
    graph.op("Transpose", perm=[0, 2, 1])
    every_step = graph.op("MatMul", graph.weights(4, 5))
    graph.op("MatMul", graph.weights(5, FEATURES))
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(10, FEATURES, 3), graph.weights(10), pads=[1, 1])
    channels = graph.op("Relu")
    convolved = graph.op("Transpose", perm=[0, 2, 1])
    heads = []
    for at in (0, 4, step):
        graph.last = channels
        graph.op("Gather", graph.constant(at, np.int64), axis=2)
        graph.op("MatMul", graph.weights(10, 5))
        heads.append(graph.op("Unsqueeze", graph.constant([2], np.int64)))
    graph.last = heads[0]
    graph.op("Concat", *heads[1:], axis=2)
    graph.op("Pad", graph.constant([0, 0, 1, 0, 0, 5], np.int64))
    graph.op("Transpose", perm=[0, 2, 1])
    products = graph.op("MatMul", graph.weights(5, 7))
    graph.op("Softmax", axis=1)
    graph.op("Mul", products)
    graph.op("Concat", convolved, axis=2)
    graph.lstm(17)
    return every_step


def over_whole_sequences(path):
    """Cells over whole sequences, and row-wise ones."""
    text = subprocess.run([BINARY, "inspect", path], capture_output=True, text=True, check=True).stdout
    return text.count("over whole sequences"), text.count("row-wise")


def test_fixed_lengths(tmp_path):
    """Where the file fixes the number of steps, row-wise operators between convolutions are computed with these."""
    graph, path, steps = Graph(SEED), tmp_path / "model.onnx", 9
    fixed_lengths(graph)
    graph.save(path, ("batch", steps, FEATURES))
    assert over_whole_sequences(path) == (1, 0)
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(SEED)
    arrays = [random.standard_normal((batch, steps, FEATURES), np.float32) for batch in (1, 4, 2)]
    for array, reply in zip(arrays, run(path, arrays), strict=True):
        (wanted,) = session.run(None, {"x": array})
        assert np.max(np.abs(reply - wanted)) <= 1e-5 * max(1.0, np.max(np.abs(wanted)))
        (alone,) = run(path, [array])
        assert np.array_equal(alone, reply)


def test_a_line_of_pixels(tmp_path):
    """A convolution in two dimensions along a line, whose other axis goes, takes the shift and the activation behind that."""
    graph, path, steps = Graph(SEED), tmp_path / "model.onnx", 9
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Unsqueeze", graph.constant([2], np.int64))
    graph.op("Conv", graph.weights(10, FEATURES, 1, 3))
    graph.op("Squeeze", graph.constant([2], np.int64))
    graph.op("Add", graph.weights(1, 10, 1))
    graph.op("Relu")
    graph.op("Transpose", perm=[0, 2, 1])
    graph.lstm(10)
    graph.save(path, ("batch", steps, FEATURES))
    profile = subprocess.run([BINARY, "profile", path, "--operators"], capture_output=True, text=True, check=True).stdout
    assert f"Conv 1x3, {FEATURES} to 10, Relu" in profile
    session = onnxruntime.InferenceSession(path)
    arrays = [np.random.default_rng(SEED).standard_normal((batch, steps, FEATURES), np.float32) for batch in (1, 3)]
    for array, reply in zip(arrays, run(path, arrays), strict=True):
        (wanted,) = session.run(None, {"x": array})
        assert np.max(np.abs(reply - wanted)) <= 1e-5 * max(1.0, np.max(np.abs(wanted)))


def test_rows_of_a_widened_operator(tmp_path):
    """An output whose rows have time before the batch, of an operator that is computed with convolutions."""
    graph, path, steps = Graph(SEED), tmp_path / "model.onnx", 9
    graph.last = fixed_lengths(graph)
    graph.op("Transpose", perm=[1, 0, 2])
    graph.op("Reshape", graph.constant([-1, 5], np.int64))
    graph.save(path, ("batch", steps, FEATURES))
    model = onnx.load(path)
    steps_of_lstm = next(node for node in model.graph.node if node.op_type == "Reshape").output[0]
    model.graph.output.insert(0, helper.make_tensor_value_info(steps_of_lstm, TensorProto.FLOAT, None))
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    session = onnxruntime.InferenceSession(path)
    array = np.random.default_rng(SEED).standard_normal((3, steps, FEATURES), np.float32)
    wanted = session.run(None, {"x": array})
    replies = outputs(path, [array])[0]
    assert len(replies) == 2
    for reply, of_session in zip(replies, wanted, strict=True):
        assert np.max(np.abs(reply - of_session)) <= 1e-5 * max(1.0, np.max(np.abs(of_session)))


@pytest.mark.parametrize("step", [9, -10])
def test_a_step_that_no_sequence_has(tmp_path, step):
    """It is refused, and other requests are not touched."""
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    fixed_lengths(graph, step)
    graph.save(path, ("batch", 9, FEATURES))
    tensor = {"name": "x", "shape": [1, 9, FEATURES], "datatype": "FP32", "data": [0.0] * 9 * FEATURES}
    result = subprocess.run(
        [BINARY, "run", path], capture_output=True, text=True, timeout=60, check=False,
        input=json.dumps({"inputs": [tensor]}) + "\n",
    )
    assert result.returncode == 1
    assert "expected at least 10 steps, got 9" in result.stdout, result.stdout + result.stderr


def test_open_lengths_stay_row_wise(tmp_path):
    """What each sequence has once is shared by sequences of all lengths, where they have several."""
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(8, FEATURES, 3), pads=[1, 1])
    convolved = graph.op("Transpose", perm=[0, 2, 1])
    graph.op("ReduceMean", axes=[1], keepdims=1)
    graph.op("MatMul", graph.weights(8, 8))
    graph.op("Tanh")
    query = graph.op("Transpose", perm=[0, 2, 1])
    graph.last = convolved
    graph.op("MatMul", query)
    graph.op("Softmax", axis=1)
    graph.op("Mul", convolved)
    graph.lstm(8)
    graph.save(path)
    text = subprocess.run([BINARY, "inspect", path], capture_output=True, text=True, check=True).stdout
    assert "row-wise, once a sequence" in text, text


def test_products_of_dequantised_numbers(tmp_path):
    """They are products of bytes where scales can move behind them, and the model says how many there are."""
    def note(case):
        graph, path = Graph(SEED), tmp_path / "model.onnx"
        case(graph)
        graph.save(path)
        return subprocess.run([BINARY, "inspect", path], capture_output=True, text=True, check=True).stdout

    assert "1 Conv with the file's own arithmetic" in note(dequantised_convolution)
    assert "1 MatMul with the file's own arithmetic" in note(dequantised_product)
    assert "1 Gemm with the file's own arithmetic" in note(dequantised_gemm)

    def scaled(graph):
        graph.lstm(FEATURES)
        graph.op("Gather", graph.constant(-1, np.int64), axis=1)
        weights = dequantised(graph, (HIDDEN, 7), np.int8, 0.01, 0)
        graph.op("Gemm", weights, alpha=0.5)

    def of_inputs(graph):
        # A scale for each of the numbers that are summed.
        scales = graph.random.uniform(0.001, 0.01, FEATURES)
        graph.op("MatMul", dequantised(graph, (FEATURES, 12), np.int8, scales, 0))
        graph.lstm(12)

    assert "own arithmetic" not in note(scaled)
    assert "own arithmetic" not in note(of_inputs)


def test_unrolled_steps_share_weights(tmp_path):
    """Operators that read one matrix turn it once."""
    graph, path, width = Graph(SEED), tmp_path / "model.onnx", 40
    graph.op("MatMul", graph.weights(FEATURES, width))
    graph.op("ReduceMean", axes=[1], keepdims=0)
    weights, bias = graph.weights(width, width), graph.weights(width)
    for _ in range(8):
        graph.op("Gemm", weights, bias, transB=1)
        graph.op("Tanh")
    graph.save(path, ("batch", 5, FEATURES))
    text = subprocess.run([BINARY, "inspect", path], capture_output=True, text=True, check=True).stdout
    (size, unit), = re.findall(r"(\d+) (bytes|kB) of weights", text)
    assert int(size) * {"bytes": 1, "kB": 1000}[unit] < 3 * 4 * width * width, text
    session = onnxruntime.InferenceSession(path)
    array = np.random.default_rng(SEED).standard_normal((3, 5, FEATURES), np.float32)
    (reply,), (wanted,) = run(path, [array]), session.run(None, {"x": array})
    assert np.max(np.abs(reply - wanted)) <= 1e-5


def test_two_open_axes(tmp_path):
    """Images of any height and width: convolved, pooled, resized and read row by row."""
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    graph.op("Conv", graph.weights(4, 1, 3, 3), graph.weights(4), pads=[1, 1, 1, 1])
    graph.op("LRN", size=3)
    graph.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    graph.op(
        "Resize", "", graph.constant([1, 1, 2, 2], np.float32), mode="nearest",
        nearest_mode="floor", coordinate_transformation_mode="asymmetric",
    )
    graph.op("Conv", graph.weights(2, 4, 1, 1), graph.weights(2))
    graph.save(path, ("batch", 1, "height", "width"))
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(SEED)
    shapes = [(1, 1, 6, 4), (2, 1, 4, 10), (1, 1, 7, 5), (1, 1, 4, 4), (3, 1, 12, 3)]
    arrays = [random.standard_normal(shape, np.float32) for shape in shapes]
    for array, reply in zip(arrays, run(path, arrays), strict=True):
        (wanted,) = session.run(None, {"x": array})
        assert reply.shape == wanted.shape
        assert np.max(np.abs(reply - wanted)) <= 1e-5 * max(1.0, np.max(np.abs(wanted)))
        (alone,) = run(path, [array])
        assert np.array_equal(alone, reply)
