"""Early exits and skips: by rules of a `model.toml` and by `If`s in a file, under each policy, against ONNX Runtime."""

import concurrent.futures
import json
import re
import subprocess
import urllib.request

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BINARY, ROOT
from onnx import TensorProto, helper, numpy_helper

DIGITS = ROOT / "models" / "digits"
HEADS = ["probabilities_1", "probabilities_2", "probabilities"]
POLICIES = ["cellular", "staged", "staged:batch=3:pairs=1", "delay:window=1ms:batch=4", "padded:1", "merged"]


def ask(server, model, name, array):
    tensor = {"name": name, "shape": array.shape, "datatype": "FP32", "data": array.ravel().tolist()}
    url = f"http://{server.http}/v2/models/{model}/infer"
    body = json.dumps({"inputs": [tensor]}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        outputs = json.load(response)["outputs"]
    return {output["name"]: np.array(output["data"], np.float32).reshape(output["shape"]) for output in outputs}


def ask_all(server, model, name, arrays):
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda array: ask(server, model, name, array), arrays))


def images(random, count):
    """Something like digits: a few strokes of different clarity, so that all exits are taken."""
    rows = np.arange(8)
    image = lambda: sum(
        np.exp(-((rows[:, None] - y) ** 2 + (rows - x) ** 2) / 3.0) * random.uniform(0.2, 1.5)
        for x, y in random.uniform(0, 8, (random.integers(2, 7), 2))
    )
    return np.stack([np.clip(image(), 0, 1) for _ in range(count)])[:, None].astype(np.float32)


def expected_digits(batch):
    session = onnxruntime.InferenceSession(str(DIGITS / "model.onnx"))
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, {"image": batch})))
    early, later = (outputs[name] > 0.9 for name in ("confidence_1", "confidence_2"))
    exits = np.where(early, 0, np.where(later, 1, 2))
    return np.stack([outputs[name] for name in HEADS])[exits, np.arange(len(batch))], exits


@pytest.mark.parametrize("policy", POLICIES)
def test_digits_leave_by_their_exits(serve, policy):
    """Requests of one and of several images, each of which leaves by itself."""
    arrays = np.split(images(np.random.default_rng(7), 120), np.cumsum([1, 1, 3, 8, 1, 16, 2] * 3)[:-1])
    server = serve(DIGITS, "--policy", policy, "--workers", "2", "--threads-per-worker", "1")
    taken = []
    for array, reply in zip(arrays, ask_all(server, "digits", "image", arrays), strict=True):
        wanted, exits = expected_digits(array)
        assert list(reply) == ["probabilities"]
        assert np.abs(reply["probabilities"] - wanted).max() < 1e-5
        taken += exits.tolist()
    assert set(taken) == {0, 1, 2}, "the images take all exits"
    server.wait_until_unused()


def test_what_is_left_out_does_not_run(serve):
    """The cells behind an exit run for those that stay, and for no others."""
    array = images(np.random.default_rng(8), 64)
    _, exits = expected_digits(array)
    server = serve(DIGITS)

    def nodes():
        matches = ((re.match(r'batchmaker_nodes_total\{.*cell="([^"]+)"', name), value) for name, value in server.metrics().items())
        return {match.group(1): value for match, value in matches if match}

    before = nodes()
    ask(server, "digits", "image", array)
    ran = [value - before[cell] for cell, value in nodes().items()]
    stay = [len(exits), int(np.sum(exits > 0)), int(np.sum(exits > 1))]
    assert sorted(ran, reverse=True) == stay


def test_inspect_shows_exits():
    text = subprocess.run([BINARY, "inspect", DIGITS], capture_output=True, text=True, check=True).stdout
    assert "only where exit 1 gives false" in text and "only where exit 2 gives false" in text


def network(path, random, layers=4):
    """Residual layers, each behind a gate of its own in an `If`: [1, 16] to [1, 16]."""
    weights = {f"W{at}": random.standard_normal((16, 16), np.float32) / 4 for at in range(layers)}
    weights["zero"] = np.zeros([], np.float32)
    nodes, last = [], "x"
    for at in range(layers):
        inner = [
            helper.make_node("MatMul", [last, f"W{at}"], [f"product{at}"]),
            helper.make_node("Tanh", [f"product{at}"], [f"tanh{at}"]),
            helper.make_node("Add", [f"tanh{at}", last], [f"layer{at}"]),
        ]
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16])
        then = helper.make_graph(inner, "then", [], [value(f"layer{at}")])
        same = [helper.make_node("Identity", [last], [f"same{at}"])]
        otherwise = helper.make_graph(same, "else", [], [value(f"same{at}")])
        nodes += [
            helper.make_node("ReduceSum", [last], [f"sum{at}"], keepdims=0),
            helper.make_node("Greater", [f"sum{at}", "zero"], [f"gate{at}"]),
            helper.make_node("If", [f"gate{at}"], [f"y{at}"], f"if{at}", then_branch=then, else_branch=otherwise),
        ]
        last = f"y{at}"
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])]
    outputs = [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, 16])]
    graph = helper.make_graph(nodes, "gated", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("policy", ["cellular", "staged"])
def test_gated_layers_of_a_file(tmp_path, serve, policy):
    random = np.random.default_rng(9)
    path = tmp_path / "gated.onnx"
    network(path, random)
    session = onnxruntime.InferenceSession(str(path))
    arrays = [random.standard_normal((1, 16), np.float32) for _ in range(40)]
    server = serve(path, "--policy", policy, "--workers", "2", "--threads-per-worker", "1")
    for array, reply in zip(arrays, ask_all(server, "gated", "x", arrays), strict=True):
        (wanted,) = session.run(None, {"x": array})
        assert np.abs(reply["y3"] - wanted).max() < 1e-5
    server.wait_until_unused()


def test_a_rule_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes((DIGITS / "model.onnx").read_bytes())
    toml = (DIGITS / "model.toml").read_text().replace('"confidence_2"', '"certainty"')
    (tmp_path / "model.toml").write_text(toml)
    refused = subprocess.run([BINARY, "inspect", tmp_path], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "[[exit]] 2: no output depends on a tensor `certainty`" in refused.stderr
