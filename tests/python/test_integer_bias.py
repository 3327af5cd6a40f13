"""Convolutions of bytes whose bias is added as INT32, as ONNX Runtime's quantiser writes them, against ONNX Runtime.

Between two of them stand casts to INT32 and back, which are left out: the sums are the same in FLOAT.
"""

import subprocess

import numpy as np
import onnxruntime
import pytest
from conftest import BINARY
from graph_builder import FEATURES, Graph
from onnx import TensorProto
from test_whole_files import run

SEED = 317
CHANNELS = 5


def convolved(graph, inputs, bias_scale=1.0):
    """A convolution of quantised numbers, [batch, inputs, T] to [batch, CHANNELS, T]; gives the sums as INT32 too."""
    x, scale, zero = graph.op("DynamicQuantizeLinear", outputs=3)
    graph.last = scale
    unit = graph.op("Mul", graph.constant(0.01))
    graph.last = graph.constant(bias_scale * graph.random.uniform(-0.5, 0.5, CHANNELS))
    graph.op("Div", unit)
    graph.op("Floor")
    graph.op("Cast", to=TensorProto.INT32)
    bias = graph.op("Reshape", graph.constant([1, -1, 1], np.int64))
    graph.last = x
    weights = graph.constant(graph.random.integers(0, 256, (CHANNELS, inputs, 3)), np.uint8)
    graph.op("ConvInteger", weights, zero, graph.constant(131, np.uint8), pads=[1, 1])
    sums = graph.op("Add", bias)
    graph.op("Cast", to=TensorProto.FLOAT)
    graph.op("Mul", unit)
    return sums


def file(path, bias_scale=1.0, ends_with=None):
    graph = Graph(SEED)
    graph.op("Transpose", perm=[0, 2, 1])
    convolved(graph, FEATURES, bias_scale)
    graph.op("Relu")
    sums = convolved(graph, CHANNELS, bias_scale)
    if ends_with is not None:
        # The whole numbers are read otherwise than as FLOAT, too.
        sums_of, graph.last = graph.last, sums
        graph.op(ends_with, graph.constant(2, np.int32))
        graph.op("Cast", to=TensorProto.FLOAT)
        graph.op("Add", sums_of)
    graph.save(path, (1, "time", FEATURES))


def compare(path, arrays):
    session = onnxruntime.InferenceSession(path)
    for array, reply in zip(arrays, run(path, arrays), strict=True):
        (wanted,) = session.run(None, {"x": array})
        assert reply.shape == wanted.shape
        assert np.max(np.abs(reply - wanted)) <= 1e-5 * max(1.0, np.max(np.abs(wanted)))


def arrays():
    random = np.random.default_rng(SEED)
    drawn = [random.standard_normal((1, steps, FEATURES), np.float32) for steps in (1, 7, 12)]
    return [*drawn, np.zeros((1, 4, FEATURES), np.float32), 1e-4 * drawn[1]]


def test_a_bias_of_integers(tmp_path):
    path = tmp_path / "model.onnx"
    file(path)
    compare(path, arrays())


def test_a_bias_beyond_the_whole_numbers_of_float(tmp_path):
    path = tmp_path / "model.onnx"
    file(path, bias_scale=1e5)
    compare(path, arrays()[:3])


def test_sums_that_are_read_as_integers(tmp_path):
    path = tmp_path / "model.onnx"
    file(path, ends_with="Mul")
    compare(path, arrays()[:3])


def moved_between_sum_and_cast(graph):
    """The axes of sums of a product are moved before they are cast."""
    x, _, zero = graph.op("DynamicQuantizeLinear", outputs=3)
    graph.last = x
    weights = graph.constant(graph.random.integers(0, 256, (FEATURES, 4)), np.uint8)
    graph.op("MatMulInteger", weights, zero)
    graph.op("Add", graph.constant([7, -900, 20_000, 3], np.int32))
    graph.op("Transpose", perm=[1, 0, 2])
    return graph.op("Cast", to=TensorProto.FLOAT)


def divided_into_heads(graph):
    """The axes of products are moved before they are cast, and so are those of other products without a bias."""
    x, _, zero = graph.op("DynamicQuantizeLinear", outputs=3)
    graph.last = x
    weights = graph.constant(graph.random.integers(0, 256, (FEATURES, 4)), np.uint8)
    graph.op("MatMulInteger", weights, zero)
    graph.op("Reshape", graph.constant([0, 0, 2, 2], np.int64))
    graph.op("Transpose", perm=[0, 2, 1, 3])
    return graph.op("Cast", to=TensorProto.FLOAT)


def in_two_shapes(graph):
    """A bias is added as `[3]`, and as `[3, 1]` to what has three steps."""
    graph.op("Slice", *(graph.constant([of], np.int64) for of in (0, 3, 1)))
    x, scale, zero = graph.op("DynamicQuantizeLinear", outputs=3)
    graph.last = scale
    graph.op("Mul", graph.constant([100.0, -2000.0, 30_000.0]))
    graph.op("Floor")
    bias = graph.op("Cast", to=TensorProto.INT32)
    column = graph.op("Reshape", graph.constant([3, 1], np.int64))
    graph.last = x
    weights = graph.constant(graph.random.integers(0, 256, (FEATURES, 3)), np.uint8)
    sums = graph.op("MatMulInteger", weights, zero)
    graph.op("Add", bias)
    one = graph.op("Cast", to=TensorProto.FLOAT)
    graph.last = sums
    graph.op("Add", column)
    graph.op("Cast", to=TensorProto.FLOAT)
    return graph.op("Mul", one)


@pytest.mark.parametrize("case", [moved_between_sum_and_cast, divided_into_heads, in_two_shapes])
def test_shapes_of_integers(tmp_path, case):
    graph, path = Graph(SEED), tmp_path / "model.onnx"
    case(graph)
    graph.save(path, (1, "time", FEATURES))
    compare(path, [array for array in arrays() if array.shape[1] >= 3])


def test_nothing_is_cast_between_products(tmp_path):
    def casts(path):
        command = [BINARY, "profile", path, "--operators", "1", "--output", tmp_path / "profile.json", "--goal", "latency"]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        assert "Conv" in told
        return told.count("Cast")

    path = tmp_path / "model.onnx"
    file(path)
    assert casts(path) == 0
    file(path, ends_with="Mul")
    assert casts(path) > 0
