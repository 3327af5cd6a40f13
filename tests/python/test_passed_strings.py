"""Inputs of strings that a file hands on to its outputs, beside an LSTM: echoed as they came, alone, in batches and in the
chunks of a session. Strings that anything computes with are refused.
"""

import json
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.http
from conftest import BINARY
from onnx import TensorProto, helper, numpy_helper

HIDDEN, FEATURES, SEED = 5, 3, 31


def lstm_with_names(path, nodes=(), outputs=("again",), shape=("batch", 2)):
    """y = LSTM(x), and `name` handed on by `nodes` to `outputs`."""
    rng = np.random.default_rng(SEED)
    weights = [
        numpy_helper.from_array(rng.standard_normal(of, np.float32) / 3, name)
        for name, of in (("W", (1, 4 * HIDDEN, FEATURES)), ("R", (1, 4 * HIDDEN, HIDDEN)))
    ]
    lstm = helper.make_node("LSTM", ["x", "W", "R"], ["y"], hidden_size=HIDDEN)
    graph = helper.make_graph(
        [lstm, *nodes], "lstm_with_names",
        [
            helper.make_tensor_value_info("name", TensorProto.STRING, shape),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ("time", "batch", FEATURES)),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ("time", 1, "batch", HIDDEN)),
            *(helper.make_tensor_value_info(of, TensorProto.STRING, shape) for of in outputs),
        ],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


IDENTITIES = [
    helper.make_node("Identity", ["name"], ["between"]),
    helper.make_node("Identity", ["between"], ["again"]),
    helper.make_node("Identity", ["name"], ["once more"]),
]


def infer(url, model, names, x, outputs=None, **sequence):
    tensors = [
        tritonclient.http.InferInput("name", names.shape, "BYTES"),
        tritonclient.http.InferInput("x", x.shape, "FP32"),
    ]
    for tensor, array in zip(tensors, (names, x)):
        tensor.set_data_from_numpy(array)
    wanted = outputs and [tritonclient.http.InferRequestedOutput(of, binary_data=of != "y") for of in outputs]
    with tritonclient.http.InferenceServerClient(url) as client:
        reply = client.infer(model, tensors, outputs=wanted, **sequence)
    return {of["name"]: reply.as_numpy(of["name"]) for of in reply.get_response()["outputs"]}


def test_strings_come_back_as_they_were(serve, tmp_path):
    path = lstm_with_names(tmp_path / "names.onnx", IDENTITIES, ("again", "once more"))
    url = serve(path).http
    with tritonclient.http.InferenceServerClient(url) as client:
        metadata = client.get_model_metadata("names")
    assert {"name": "name", "datatype": "BYTES", "shape": [-1, 2]} in metadata["inputs"]
    assert {"name": "once more", "datatype": "BYTES", "shape": [-1, 2]} in metadata["outputs"]
    names = np.array([[b"\xff\x00", "Straße".encode()], [b"", b"x" * 5000], [b"a", b"a"]], np.object_)
    x = np.random.default_rng(SEED).standard_normal((7, 3, FEATURES), np.float32)
    found = infer(url, "names", names, x)
    (wanted,) = onnxruntime.InferenceSession(path).run(["y"], {"x": x, "name": np.full((3, 2), "a", np.object_)})
    assert np.max(np.abs(found["y"] - wanted)) <= 1e-5
    assert (found["again"] == names).all() and (found["once more"] == names).all()
    assert list(infer(url, "names", names, x, ["again", "y"])) == ["again", "y"]
    for bad, why in ((names[:, :1], "expected shape"), (names[0], "expected shape")):
        with pytest.raises(tritonclient.utils.InferenceServerException, match=why):
            infer(url, "names", bad, x)


def test_each_chunk_of_a_session_brings_its_own(serve, tmp_path):
    path = lstm_with_names(tmp_path / "names.onnx", IDENTITIES[:2])
    url = serve(path).http
    x = np.random.default_rng(SEED).standard_normal((6, 1, FEATURES), np.float32)
    names = [np.array([[f"chunk {at}".encode(), b""]], np.object_) for at in range(3)]
    whole = infer(url, "names", names[0], x)["y"]
    chunks = [
        infer(
            url, "names", name, x[2 * at : 2 * at + 2],
            sequence_id=1, sequence_start=at == 0, sequence_end=at == 2,
        )
        for at, name in enumerate(names)
    ]
    assert np.concatenate([chunk["y"] for chunk in chunks]).tobytes() == whole.tobytes()
    assert all((chunk["again"] == name).all() for chunk, name in zip(chunks, names))


def test_an_input_may_be_an_output(tmp_path):
    path = lstm_with_names(tmp_path / "names.onnx", outputs=("name",))
    request = {"inputs": [
        {"name": "x", "shape": [1, 1, FEATURES], "datatype": "FP32", "data": [0.0] * FEATURES},
        {"name": "name", "shape": [1, 2], "datatype": "BYTES", "data": ["one", "two"]},
    ]}
    done = subprocess.run([BINARY, "run", path], input=json.dumps(request), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outputs = {of["name"]: of for of in json.loads(done.stdout)["outputs"]}
    assert outputs["name"]["data"] == ["one", "two"] and outputs["name"]["shape"] == [1, 2]


def test_strings_that_a_node_computes_with_are_refused(tmp_path):
    nodes = [
        helper.make_node("StringConcat", ["name", "name"], ["joined"]),
        helper.make_node("Identity", ["joined"], ["again"]),
    ]
    path = lstm_with_names(tmp_path / "names.onnx", nodes)
    done = subprocess.run([BINARY, "inspect", path], capture_output=True, text=True)
    assert done.returncode == 1 and "StringConcat" in done.stderr and "panic" not in done.stderr, done.stderr


def test_a_file_of_strings_alone_gives_them_back(tmp_path):
    strings = [helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in ("name", "again")]
    graph = helper.make_graph([helper.make_node("Identity", ["name"], ["again"])], "strings", strings[:1], strings[1:])
    path = tmp_path / "strings.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    request = {"inputs": [{"name": "name", "shape": [2], "datatype": "BYTES", "data": ["one", "two"]}]}
    done = subprocess.run([BINARY, "run", path], input=json.dumps(request), capture_output=True, text=True)
    assert json.loads(done.stdout)["outputs"][0]["data"] == ["one", "two"], done.stderr
