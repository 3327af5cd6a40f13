"""Sessions of models with windows over steps: causal convolutions, strided windows, pools.

The replies to chunks, joined, have the bits of the server's own reply over the whole sequence, which is within 1e-5 of
ONNX Runtime's. Chunks may be too short for a window: their replies have no step, and later ones have them.
"""

import time

import numpy as np
import onnxruntime
import pytest
from graph_builder import FEATURES, HIDDEN, Graph
from sessions import Client, Refused, cuts, in_threads, play

SEED = 1402


def channels(graph):
    return graph.op("Transpose", perm=[0, 2, 1])


def convolution(graph, inputs, outputs, kernel, **attributes):
    of_group = inputs // attributes.get("group", 1)
    weights = [graph.weights(outputs, of_group, kernel), graph.weights(outputs)]
    return graph.op("Conv", *weights, **attributes)


def causal(graph):
    """Padded on the left, before an LSTM."""
    channels(graph)
    convolution(graph, FEATURES, 10, 3, pads=[2, 0])
    graph.op("Relu")
    channels(graph)
    return graph.lstm(10)


def padded(graph):
    """By an operator of its own, twice, with dilations and a residue."""
    channels(graph)
    for dilation in (1, 2, 4):
        before = graph.last
        graph.op("Pad", graph.constant([0, 0, 2 * dilation, 0, 0, 0], np.int64))
        convolution(graph, FEATURES, FEATURES, 3, dilations=[dilation])
        graph.op("Tanh")
        graph.op("Add", before)
    return channels(graph)


def cut(graph):
    """Padded on both sides, and cut at the end."""
    channels(graph)
    for dilation in (1, 2):
        more = 2 * dilation
        convolution(graph, FEATURES, FEATURES, 3, dilations=[dilation], pads=[more, more])
        ends = [graph.constant([n], np.int64) for n in (0, -more, 2)]
        graph.op("Slice", *ends)
        graph.op("Relu")
    channels(graph)
    return graph.lstm(FEATURES)


def strided(graph):
    """Windows of windows, and a pool: a step of the output for twelve of the input."""
    channels(graph)
    convolution(graph, FEATURES, 8, 5, strides=[3])
    graph.op("Relu")
    convolution(graph, 8, 8, 3, strides=[2], pads=[1, 0])
    graph.op("MaxPool", kernel_shape=[2], strides=[2])
    channels(graph)
    graph.lstm(8)
    graph.op("MatMul", graph.weights(HIDDEN, 4))
    return graph.op("Softmax", axis=-1)


def row_wise_between(graph):
    """A product of every step between two convolutions."""
    graph.op("MatMul", graph.weights(FEATURES, 7))
    channels(graph)
    convolution(graph, 7, 7, 4, pads=[3, 0], group=7)
    channels(graph)
    graph.op("MatMul", graph.weights(7, 9))
    channels(graph)
    convolution(graph, 9, 5, 2, pads=[1, 0])
    return channels(graph)


def padded_beyond(graph):
    """The first windows hold padding alone, but wait for steps of the values between."""
    channels(graph)
    convolution(graph, FEATURES, 7, 5)
    convolution(graph, 7, 7, 2, strides=[2], pads=[4, 0])
    graph.op("AveragePool", kernel_shape=[2])
    channels(graph)
    return graph.lstm(7)


def over_features(graph):
    """Windows over steps and features. With 64 channels, two steps are computed together."""
    graph.op("Unsqueeze", graph.constant([1], np.int64))
    for inputs in (1, 64):
        weights = graph.random.standard_normal((64, inputs, 3, 3)) / (9 * inputs) ** 0.5
        graph.op("Conv", graph.constant(weights), graph.weights(64), pads=[2, 1, 0, 1])
        graph.op("Relu")
    graph.op("ReduceMean", axes=[1], keepdims=0)
    return graph.lstm(FEATURES)


STREAMED = [padded_beyond, causal, padded, cut, strided, row_wise_between, over_features]


def wide(graph):
    """A step of the output depends on the next step."""
    channels(graph)
    convolution(graph, FEATURES, 5, 3, pads=[1, 1])
    return channels(graph)


def over_states(graph):
    graph.lstm(FEATURES)
    channels(graph)
    convolution(graph, HIDDEN, 5, 3, pads=[2, 0])
    return channels(graph)


def over_all(graph):
    graph.op("Softmax", axis=1)
    return graph.lstm(FEATURES)


def mean_of_all(graph):
    """A sequence has one mean, which a window reads."""
    graph.op("ReduceMean", graph.constant([1], np.int64), keepdims=1)
    graph.op("Sub", "x")
    channels(graph)
    convolution(graph, FEATURES, 5, 3, pads=[2, 0])
    return channels(graph)


def last_pool(graph):
    channels(graph)
    convolution(graph, FEATURES, 5, 3, pads=[2, 0])
    graph.op("GlobalMaxPool")
    return channels(graph)


WHOLE_ONLY = [wide, over_states, over_all, mean_of_all, last_pool]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    for case in STREAMED + WHOLE_ONLY:
        graph = Graph(SEED)
        case(graph)
        graph.save(folder / f"{case.__name__}.onnx")
    return folder


@pytest.mark.parametrize("workers, threads", [(1, 1), (2, 1)])
@pytest.mark.parametrize("case", STREAMED, ids=lambda case: case.__name__)
def test_chunks_are_the_whole(serve, folder, case, workers, threads):
    path = folder / f"{case.__name__}.onnx"
    session = onnxruntime.InferenceSession(path)
    server = serve(path, "--workers", workers, "--threads-per-worker", threads)
    random = np.random.default_rng(SEED)
    sequences = [
        random.standard_normal((1, length, FEATURES), np.float32)
        for length in random.integers(24, 120, 24)
    ]
    found = [None] * len(sequences)

    def converse(index):
        x, client = sequences[index], Client(server, case.__name__)
        # Steps one by one, chunks of any length, and long ones.
        ends = cuts(np.random.default_rng(index), x.shape[1], longest=[1, 9, 60][index % 3])
        replies = play(client, index + 1, {"x": x}, {}, ends, 1)
        found[index] = np.concatenate([array for reply in replies for array in reply.values()], 1)
        client.close()

    in_threads(len(sequences), converse)
    client = Client(server, case.__name__)
    for x, reply in zip(sequences, found):
        (whole,) = client.infer({"x": x}).values()
        (wanted,) = session.run(None, {"x": x})
        assert np.max(np.abs(whole - wanted)) <= 1e-5 * max(1.0, np.max(np.abs(wanted)))
        assert reply.shape == whole.shape
        assert reply.tobytes() == whole.tobytes()
    server.wait_until_unused()


@pytest.mark.parametrize("case", WHOLE_ONLY, ids=lambda case: case.__name__)
def test_what_depends_on_later_steps_comes_whole(serve, folder, case):
    server = serve(folder / f"{case.__name__}.onnx")
    x = {"x": np.zeros((1, 9, FEATURES), np.float32)}
    with pytest.raises(Refused, match="the model takes no sessions"):
        Client(server, case.__name__).chunk(1, x, start=True)


def test_a_session_that_never_had_a_window_ends(serve, folder):
    server = serve(folder / "strided.onnx", "--max-sessions", 2)
    client = Client(server, "strided")
    x = {"x": np.zeros((1, 2, FEATURES), np.float32)}
    for turn in range(6):
        (reply,) = client.chunk(turn + 1, x, start=True).values()
        assert reply.shape[:2] == (1, 0)
        client.chunk(turn + 1, x, end=True)
    with pytest.raises(Refused, match="no such sequence"):
        client.chunk(1, x)
    client.chunk("again", x, start=True)
    # Begun anew, it has no steps of before.
    sequence = {"x": np.random.default_rng(SEED).standard_normal((1, 40, FEATURES), np.float32)}
    (reply,) = client.chunk("again", sequence, start=True, end=True).values()
    (whole,) = client.infer(sequence).values()
    assert reply.tobytes() == whole.tobytes()
    server.wait_until_unused()


def test_a_session_that_never_had_a_window_is_idle(serve, folder):
    server = serve(folder / "strided.onnx", "--session-idle", 0.2)
    client = Client(server, "strided")
    client.chunk(1, {"x": np.zeros((1, 2, FEATURES), np.float32)}, start=True)
    end = time.monotonic() + 10
    while server.metrics()['batchmaker_sessions_ended_total{by="idle"}'] != 1:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_total_of_no_new_window_is_refused_and_loses_nothing(serve, tmp_path):
    graph = Graph(SEED)
    strided(graph)
    graph.op("Transpose", perm=[1, 0, 2])
    graph.op("Gather", graph.constant(-1, np.int64), axis=0)
    graph.save(tmp_path / "last.onnx")
    server = serve(tmp_path / "last.onnx")
    client = Client(server, "last")
    x = np.random.default_rng(SEED).standard_normal((1, 40, FEATURES), np.float32)
    replies = []
    for first, end in [(0, 20), (20, 22), (20, 40)]:
        try:
            replies += client.chunk(1, {"x": x[:, first:end]}, start=first == 0).values()
        except Refused as refused:
            assert "too few for another window" in refused.error and (first, end) == (20, 22)
    (whole,) = client.infer({"x": x}).values()
    assert len(replies) == 2 and replies[1].tobytes() == whole.tobytes()
