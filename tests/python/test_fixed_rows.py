"""Files that are refused for lengths that they leave open, and served with fixed ones: the refusal says how, and what it
says works as it stands.
"""

import json
import re
import subprocess

import numpy as np
import onnxruntime
import pytest
from conftest import BINARY
from graph_builder import FEATURES, Graph
from sessions import Client, Refused

SEED = 417


def padded_to_even(graph):
    """[batch, 6, T] to an even number of steps: the number of steps to add is computed from T."""
    x = graph.last
    graph.op("Shape", start=2, end=3)
    graph.op("Mod", graph.constant([2], np.int64))
    more = graph.last
    graph.last = graph.constant([0, 0, 0, 0, 0], np.int64)
    graph.op("Concat", more, axis=0)
    pads, graph.last = graph.last, x
    graph.op("Pad", pads)
    graph.op("Conv", graph.weights(4, FEATURES, 2), strides=[2])


def inspect(path):
    return subprocess.run([BINARY, "inspect", path], capture_output=True, text=True)


@pytest.mark.parametrize("length", [64, 33])
def test_the_advice_of_a_refusal_serves(serve, tmp_path, length):
    graph = Graph(SEED)
    padded_to_even(graph)
    path = tmp_path / "even.onnx"
    graph.save(path, ("batch", FEATURES, "T"))
    refused = inspect(path)
    assert refused.returncode != 0 and "Pad `n3`" in refused.stderr, refused.stderr
    says = re.search(r"`(\[unfold\])`, `(kind = .*?)`, `(graph = .*?)`, `(row = .*?)`", refused.stderr)
    assert says, refused.stderr
    assert json.loads(re.search(r"= (\[[^=]*\]) }", says[4])[1]) == [FEATURES, 64]
    lines = [line.replace("64", str(length)) for line in says.groups()]
    (tmp_path / "model.toml").write_text("\n".join(lines))

    client = Client(serve(tmp_path), tmp_path.name)
    x = np.random.default_rng(SEED).standard_normal((3, FEATURES, length), np.float32)
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    (found,) = client.infer({"x": x}).values()
    assert found.shape == wanted.shape and np.max(np.abs(found - wanted)) <= 1e-5
    with pytest.raises(Refused, match="expected shape"):
        client.infer({"x": x[:, :, 1:]})


def test_no_advice_where_no_length_helps(tmp_path):
    graph = Graph(SEED)
    graph.op("NonZero")
    path = tmp_path / "places.onnx"
    graph.save(path, ("batch", "T"))
    refused = inspect(path)
    assert "NonZero `n0`" in refused.stderr and "model.toml" not in refused.stderr, refused.stderr


def test_a_row_that_does_not_fit_is_an_error(tmp_path):
    graph = Graph(SEED)
    graph.op("Relu")
    graph.save(tmp_path / "m.onnx", ("batch", FEATURES, "T"))
    unfold = '[unfold]\nkind = "onnx"\ngraph = "m.onnx"\n'
    for row, reason in [
        ("row = { x = [7, 9] }", "axis 1 is 6 in the file, not 7"),
        ("row = { x = [9] }", "it has 2 axes beside the batch, not 1"),
        ("row = { y = [6, 9] }", "row of `y`: there is no such input"),
    ]:
        (tmp_path / "model.toml").write_text(unfold + row)
        assert reason in inspect(tmp_path).stderr
