"""Loops without a trip count that count their steps themselves, as TensorFlow's converter writes recurrent layers: an index up to
the number of steps, weights that are handed from step to step, a mask, and sequences turned round by `ReverseSequence`.
"""

import json
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BINARY
from onnx import TensorProto, helper, numpy_helper
from sessions import Client

FEATURES, HIDDEN, SEED = 4, 6, 71
FLOAT, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def body(condition, addend):
    """h' = tanh(x[i] W + h R) where the step is no padding; i' = i + addend; goes on while `condition`."""
    nodes = [
        node("Add", f"i {addend}", "next_i"),
        node("Gather", "steps i", "x_i"),
        node("Gather", "inside i", "is_inside"),
        node("MatMul", "x_i w", "of_x"),
        node("MatMul", "h r", "of_h"),
        node("Add", "of_x of_h", "sum"),
        node("Tanh", "sum", "new_h"),
        node("Where", "is_inside new_h h", "next_h"),
        node("Identity", "next_h", "kept_h"),
        node("Cast", "next_i", "next_i_float", to=FLOAT),
        node("Cast", "n", "n_float", to=FLOAT),
        *condition,
        node("Identity", "less", "goes_on"),
        node("Identity", "w", "same_w"),
    ]
    info = helper.make_tensor_value_info
    states = [("i", INT32, []), ("h", FLOAT, ["b", HIDDEN]), ("n", INT32, []), ("w", FLOAT, [FEATURES, HIDDEN])]
    inputs = [info("step", TensorProto.INT64, []), info("before", BOOL, []), *(info(*of) for of in states)]
    outputs = [
        info("goes_on", BOOL, []), info("next_i", INT32, []), info("next_h", FLOAT, ["b", HIDDEN]),
        info("n", INT32, []), info("same_w", FLOAT, [FEATURES, HIDDEN]), info("kept_h", FLOAT, ["b", HIDDEN]),
    ]
    return helper.make_graph(nodes, "body", inputs, outputs)


LESS = [node("Less", "next_i_float n_float", "less")]
GREATER = [node("Greater", "n_float next_i_float", "less")]
BYTES = [node("Cast", "next_i", "i_byte", to=TensorProto.INT8), node("Cast", "n", "n_byte", to=TensorProto.INT8),
         node("Less", "i_byte n_byte", "less")]
SMALL = [node("ReduceMax", "next_h", "most", keepdims=0), node("Less", "most one_float", "less")]


def write(path, condition=LESS, addend="one", first=0, bound="n0", is_reversed=False):
    """y, the h of every step of [batch, time, features] x, and the last h."""
    rng = np.random.default_rng(SEED)
    constants = {
        "w0": rng.uniform(-0.7, 0.7, (FEATURES, HIDDEN)).astype(np.float32),
        "r": rng.uniform(-0.7, 0.7, (HIDDEN, HIDDEN)).astype(np.float32),
        "one": np.int32(1), "two": np.int32(2), "one_float": np.float32(1), "i0": np.int32(first),
        "zero": np.float32(0), "hidden": np.array([HIDDEN], np.int64), "first": np.array([0], np.int64),
        "second": np.array([1], np.int64), "zeros": np.zeros(1, np.float32), "limit": np.float32(-1.5),
        "last": np.array([2], np.int64),
    }
    reverse = [
        node("Slice", "shape first second", "time"), node("Slice", "shape second last", "batch_of_steps"),
        node("Expand", "time batch_of_steps", "lengths"),
        node("ReverseSequence", "in_order lengths", "steps", time_axis=0, batch_axis=1),
    ] if is_reversed else [node("Identity", "in_order", "steps")]
    nodes = [
        node("Transpose", "x", "in_order", perm=[1, 0, 2]),
        node("Shape", "in_order", "shape"),
        *reverse,
        node("ReduceMax", "steps", "largest", axes=[2], keepdims=1),
        node("Greater", "largest limit", "inside"),
        node("Slice", "shape first second", "steps_of"), node("Squeeze", "steps_of", "steps_64"),
        node("Cast", "steps_64", "n0", to=INT32), node("Add", "n0 one", "more"),
        node("Cast", "n0", "n_float0", to=FLOAT), node("Less", "zero n_float0", "begins"),
        node("Slice", "shape second last", "batch"), node("Concat", "batch hidden", "of_h0", axis=0),
        node("Expand", "zeros of_h0", "h0"),
        helper.make_node(
            "Loop", ["", "begins", "i0", "h0", bound, "w0"], ["steps_done", "h_n", "n_end", "w_end", "all_h"], "while",
            body=body(condition, addend),
        ),
        node("Transpose", "all_h", "y", perm=[1, 0, 2]),
        node("Identity", "h_n", "h_last"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "while", [info("x", FLOAT, ["batch", "time", FEATURES])],
        [info("y", FLOAT, ["batch", "time", HIDDEN]), info("h_last", FLOAT, ["batch", HIDDEN])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)


def inspect(path):
    return subprocess.run([BINARY, "inspect", path], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("condition", [LESS, GREATER], ids=["less", "greater"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_loop_that_counts_is_a_chain(serve, tmp_path, condition, is_reversed):
    path = tmp_path / "while.onnx"
    write(path, condition, is_reversed=is_reversed)
    told = inspect(path)
    assert "a loop over the steps of each sequence" in told.stdout, told.stderr
    client, session = Client(serve(path), "while"), onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    rng = np.random.default_rng(SEED)
    for batch, steps in ((1, 1), (1, 5), (3, 9), (2, 30)):
        x = rng.standard_normal((batch, steps, FEATURES), np.float32)
        found, wanted = client.infer({"x": x}), dict(zip(names, session.run(None, {"x": x})))
        for name in names:
            assert found[name].shape == wanted[name].shape
            assert np.max(np.abs(found[name] - wanted[name])) <= 1e-5
        for row in range(batch):
            alone = client.infer({"x": x[row : row + 1]})
            assert all(alone[name].tobytes() == found[name][row : row + 1].tobytes() for name in names)


@pytest.mark.parametrize("change", [
    {"condition": SMALL}, {"condition": BYTES}, {"addend": "two"}, {"first": 1}, {"bound": "more"},
], ids=["other condition", "a count that wraps", "steps of two", "begins at one", "one step more"])
def test_other_loops_are_refused_or_right(tmp_path, change):
    """No loop is taken for one that goes along all steps."""
    path = tmp_path / "while.onnx"
    write(path, **change)
    told = inspect(path)
    assert told.returncode == 1 and "while" in told.stderr and "panicked" not in told.stderr, told.stdout
    x = np.random.default_rng(SEED).standard_normal((1, 3, FEATURES), np.float32)
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    done = subprocess.run(
        [BINARY, "run", path], input=json.dumps({"inputs": [tensor]}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
