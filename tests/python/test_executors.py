"""ONNX Runtime as the executor of what has no fused kernel: the same replies, alone and under load, and clear refusals."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from conftest import BINARY
from graph_builder import FEATURES, HIDDEN, Graph
from sessions import Client, cuts, in_threads, joined, play

SEED = 2207
LIBRARY = next(pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so*"))
EXECUTOR = ["--executor", f"onnxruntime={LIBRARY}"]
FASTER = ["--executor", f"faster={LIBRARY}"]


def speech(graph):
    """A causal convolution before an LSTM, a head behind it."""
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(10, FEATURES, 3), graph.weights(10), pads=[2, 0])
    graph.op("Relu")
    graph.op("Transpose", perm=[0, 2, 1])
    graph.lstm(10)
    graph.op("MatMul", graph.weights(HIDDEN, 7))
    return graph.op("Softmax", axis=-1)


def head(graph):
    graph.op("MatMul", graph.weights(FEATURES, 64))
    graph.op("Erf")
    graph.op("MatMul", graph.weights(64, 5))
    return graph.op("LogSoftmax", axis=-1)


def attention(graph):
    """Over the steps of a sequence; an index that a program computes."""
    graph.op("MatMul", graph.weights(FEATURES, 8))
    values = graph.last
    graph.op("Transpose", perm=[0, 2, 1])
    keys, graph.last = graph.last, values
    graph.op("MatMul", keys)
    graph.op("Softmax", axis=-1)
    graph.op("MatMul", values)
    graph.op("ArgMax", axis=2, keepdims=0)
    ids = graph.last
    graph.last = graph.weights(8, 6)
    return graph.op("Gather", ids)


def long_convolution(graph):
    """Long enough for several threads."""
    width = 640
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(width, FEATURES, 3), pads=[1, 1])
    for _ in range(2):
        graph.op("Conv", graph.constant(graph.random.standard_normal((width, width, 3)) / 50), pads=[1, 1])
        graph.op("Relu")
    return graph.op("ReduceMean", axes=[2], keepdims=0)


@pytest.fixture(params=[speech, head, attention], ids=lambda case: case.__name__)
def model(tmp_path, request):
    graph = Graph(SEED)
    request.param(graph)
    graph.save(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def close(a, b):
    return a.shape == b.shape and np.abs(a - b).max() <= 1e-5 * max(1.0, np.abs(b).max())


def inspect(path, *options):
    result = subprocess.run(
        [BINARY, "inspect", "--json", path, *options], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(result.stdout)["cells"]


def test_programs_run_in_onnx_runtime(model):
    general = [cell for cell in inspect(model, *EXECUTOR) if cell["how"] == "general"]
    assert general
    assert {cell["executor"] for cell in general} == {f"ONNX Runtime {onnxruntime.__version__}"}
    assert all(cell["executor"] is None for cell in inspect(model))


def check_replies(server, path, options):
    """Asks many requests at once; with `--executor-alone` each must have the bits that it has alone."""
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(SEED)
    shapes = [(random.integers(1, 4), random.integers(3, 40), FEATURES) for _ in range(32)]
    requests = [random.standard_normal(shape, np.float32) for shape in shapes]
    found = [None] * len(requests)

    def ask(index):
        client = Client(server, "model")
        (found[index],) = client.infer({"x": requests[index]}).values()
        client.close()

    in_threads(len(requests), ask)
    client = Client(server, "model")
    for x, reply in zip(requests, found):
        (wanted,) = session.run(None, {"x": x})
        assert close(reply, wanted)
        (again,) = client.infer({"x": x}).values()
        assert close(again, wanted)
        if "--executor-alone" in options:
            assert reply.tobytes() == again.tobytes()
    client.close()
    server.wait_until_unused()


@pytest.mark.parametrize("workers, threads", [(1, 2), (2, 1)])
@pytest.mark.parametrize(
    "executor", [EXECUTOR, [*EXECUTOR, "--executor-alone"], FASTER], ids=["onnxruntime", "alone", "faster"]
)
def test_replies_under_load(serve, model, executor, workers, threads):
    """As the executor's own, and with the same bits as alone where each sequence runs by itself."""
    server = serve(model, *executor, "--workers", workers, "--threads-per-worker", threads)
    check_replies(server, model, executor)


@pytest.mark.parametrize("workers, threads", [(1, 2), (2, 1)])
@pytest.mark.parametrize("executor", [EXECUTOR, [*EXECUTOR, "--executor-alone"]], ids=["onnxruntime", "alone"])
def test_long_programs_on_several_threads(serve, tmp_path, executor, workers, threads):
    """On those of the worker, or on all while other workers are idle."""
    graph = Graph(SEED)
    long_convolution(graph)
    graph.save(tmp_path / "model.onnx")
    server = serve(tmp_path / "model.onnx", *executor, "--workers", workers, "--threads-per-worker", threads)
    check_replies(server, tmp_path / "model.onnx", executor)


def executors(path):
    """What runs the cells, with `--executor faster`, and why it is not ONNX Runtime."""
    command = [BINARY, "inspect", path, *FASTER]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [line.partition("run by ")[2].partition(", batches")[0] for line in result.stdout.splitlines() if "run by" in line]


def test_the_faster_executor(tmp_path):
    graph = Graph(SEED)
    head(graph)
    graph.save(tmp_path / "short.onnx")
    assert executors(tmp_path / "short.onnx") == ["the own executor (its runs are short)"]
    graph = Graph(SEED)
    long_convolution(graph)
    graph.save(tmp_path / "long.onnx")
    (of_long,) = executors(tmp_path / "long.onnx")
    # Which one it is depends on the machine.
    theirs = f"ONNX Runtime {onnxruntime.__version__} (its last bits depend on the batch)"
    assert of_long == theirs or re.fullmatch(r"the own executor \(\d+\.\d\d times as fast as the other\)", of_long), of_long


def test_sessions(serve, tmp_path):
    graph = Graph(SEED)
    speech(graph)
    graph.save(tmp_path / "model.onnx")
    server = serve(tmp_path / "model.onnx", *EXECUTOR)
    client = Client(server, "model")
    x = np.random.default_rng(SEED).standard_normal((1, 50, FEATURES), np.float32)
    (wanted,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x})
    ends = cuts(np.random.default_rng(SEED), 50)
    (name,) = client.infer({"x": x})
    assert close(joined(play(client, 1, {"x": x}, {}, ends, 1), 1, [name])[name], wanted)
    client.close()


@pytest.mark.parametrize(
    "options, reason",
    [
        (["--executor", "onnxruntime=/nowhere.so"], "cannot be loaded from /nowhere.so: No such file"),
        (["--executor", f"onnxruntime={__file__}"], "ONNX Runtime cannot be loaded from"),
        (["--executor", "faster="], "expected own"),
        (["--executor", "own=/lib"], "expected own"),
        (["--executor", "tvm"], "expected own, onnxruntime, onnxruntime=PATH, faster or faster=PATH"),
        (["--executor-alone"], "--executor-alone is for --executor onnxruntime"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, options, reason):
    graph = Graph(SEED)
    head(graph)
    graph.save(tmp_path / "model.onnx")
    result = subprocess.run(
        [BINARY, "run", tmp_path / "model.onnx", *options], input="", capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode != 0 and reason in result.stderr, result.stderr


def test_the_library_of_the_python_environment(tmp_path):
    graph = Graph(SEED)
    head(graph)
    graph.save(tmp_path / "model.onnx")
    environment = {"VIRTUAL_ENV": sys.prefix}
    command = [BINARY, "inspect", "--executor", "onnxruntime", tmp_path / "model.onnx"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert f"run by ONNX Runtime {onnxruntime.__version__} (its last bits depend on the batch)" in result.stdout


def profile(model, *arguments):
    """The table that `profile` prints, and the curves of the cells."""
    command = [BINARY, "profile", model, "--precision", "f32", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (cells,) = json.loads((model.parent / "profile.json").read_text())["models"].values()
    return done.stdout, {name: cell["curves"] for name, cell in cells["cells"].items()}, done.stderr


def test_profile_measures_programs(tmp_path):
    graph = Graph(SEED)
    attention(graph)
    graph.save(tmp_path / "model.onnx")
    table, cells, _ = profile(tmp_path / "model.onnx", "--steps", 24, "--operators", 3)
    sequences = [curves["f32"] for curves in cells.values() if "steps" in curves.get("f32", {})]
    assert sequences and all(curve["steps"] == 24 for curve in sequences)
    assert all(len(curve["points"]) > 3 for curve in sequences)
    assert "whole sequences, here of 24 steps" in table
    assert "operator by operator, a batch of 3 of 24 steps" in table
    lines = [line.split() for line in table.split("operator by operator")[1].splitlines()[2:]]
    shares = [float(line[1].rstrip("%")) for line in lines[: next(i for i, of in enumerate(lines) if of[-1] == "all")]]
    assert shares == sorted(shares, reverse=True) and 99 < sum(shares) < 101
    assert "MatMul, Softmax, MatMul" in table


def test_profile_in_onnx_runtime(tmp_path):
    graph = Graph(SEED)
    head(graph)
    graph.save(tmp_path / "model.onnx")
    _, own, _ = profile(tmp_path / "model.onnx")
    _, theirs, _ = profile(tmp_path / "model.onnx", *EXECUTOR)
    assert own.keys() == theirs.keys()


def test_profile_of_lengths_that_a_cell_does_not_take(tmp_path):
    """The others are measured, and a note says why this is not."""
    graph = Graph(SEED)
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("Conv", graph.weights(4, FEATURES, 9), graph.weights(4))
    graph.op("Transpose", perm=[0, 2, 1])
    graph.op("MatMul", graph.weights(4, 3))
    graph.save(tmp_path / "model.onnx")
    table, _, notes = profile(tmp_path / "model.onnx", "--steps", 5, "--operators")
    assert "is not measured in f32: " in notes and "the operators of " in notes
    assert "was not measured" in table
    table, cells, _ = profile(tmp_path / "model.onnx")
    assert "of 64 steps" in table and cells
