"""The six networks of DVABatch's evaluation, thinner, through `batchmaker run` against ONNX Runtime."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from conftest import BINARY

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "stages"))

from make_networks import NETWORKS, WORDS, write

PIXELS, THIN = 64, 16


def requests(name, random):
    """Requests of one and of several sequences or images; sentences of several lengths."""
    if name.startswith("bert"):
        shapes = [(1, 7), (3, 7), (1, 19), (2, 1)]
        return [random.integers(0, WORDS, shape) for shape in shapes]
    return [random.standard_normal((batch, 3, PIXELS, PIXELS), np.float32) for batch in (1, 2)]


def replies(path, arrays):
    """The outputs of each request, by name."""
    def body(array):
        name, kind = ("input_ids", "INT64") if array.dtype == np.int64 else ("image", "FP32")
        tensor = {"name": name, "shape": array.shape, "datatype": kind, "data": array.ravel().tolist()}
        return json.dumps({"inputs": [tensor]})

    text = "\n".join(body(array) for array in arrays) + "\n"
    result = subprocess.run(
        [BINARY, "run", path], input=text, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr
    def outputs(line):
        of_line = json.loads(line)["outputs"]
        return {o["name"]: np.array(o["data"], np.float32).reshape(o["shape"]) for o in of_line}
    return [outputs(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("name", NETWORKS)
def test_against_onnx_runtime(tmp_path, name):
    path = tmp_path / f"{name}.onnx"
    write(name, path, THIN, PIXELS)
    session = onnxruntime.InferenceSession(path)
    (taken,) = session.get_inputs()
    arrays = requests(name, np.random.default_rng(20268))
    for array, reply in zip(arrays, replies(path, arrays), strict=True):
        names = [output.name for output in session.get_outputs()]
        for output, wanted in zip(names, session.run(None, {taken.name: array}), strict=True):
            assert reply[output].shape == wanted.shape
            error = np.max(np.abs(reply[output] - wanted))
            assert error <= 1e-5 * max(1.0, np.max(np.abs(wanted))), output
