"""Sessions over HTTP: sequences in chunks, beside whole ones, in batches that they share.

The replies to chunks, joined, are within 1e-5 of ONNX Runtime over the whole sequence, and bit for
bit the server's own over the whole sequence alone.
"""

import time

import cell_files
import numpy as np
import onnx
import onnxruntime
import pytest
import recurrent_files
import tritonclient.http as triton
from onnx import TensorProto, helper, numpy_helper
from sessions import Client, Refused, cuts, in_threads, joined, play

SEED = 4711
SIZE = 24


def recurrent(path, operator, **options):
    recurrent_files.write(
        path, seed=SEED, input_size=6, hidden_size=SIZE, layers=2, operator=operator, **options
    )
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


FILES = {
    "lstm": ("LSTM", {"head": 5}),
    "gru": ("GRU", {"linear_before_reset": 1}),
    "rnn": ("RNN", {}),
    "initial": ("LSTM", {"initial_states": True}),
}


def close(a, b):
    return a.shape == b.shape and np.abs(a - b).max() <= 1e-5 * max(1.0, np.abs(b).max())


@pytest.mark.parametrize("workers, threads", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("name", FILES)
def test_pieces_are_the_whole(serve, tmp_path, name, workers, threads):
    operator, options = FILES[name]
    session = recurrent(tmp_path / "model.onnx", operator, **options)
    server = serve(
        tmp_path / "model.onnx", "--workers", workers, "--threads-per-worker", threads
    )
    random = np.random.default_rng(SEED)
    normal = lambda *shape: random.standard_normal(shape, dtype=np.float32)
    sequences = [normal(n, 1, 6) for n in random.integers(1, 90, 40)]
    once = [
        {state: normal(1, 1, SIZE) for state in ("h0", "c0")} if name == "initial" else {}
        for _ in sequences
    ]
    ends = [cuts(random, len(x)) for x in sequences]
    names = [output.name for output in session.get_outputs()]
    expected = [
        dict(zip(names, session.run(None, {"x": x} | of))) for x, of in zip(sequences, once)
    ]
    found = [None] * len(sequences)

    def converse(index):
        client = Client(server, "model")
        if index % 3 == 2:
            found[index] = client.infer({"x": sequences[index]} | once[index])
        else:
            chunks = play(client, index + 1, {"x": sequences[index]}, once[index], ends[index], 0)
            found[index] = joined(chunks, 0, ["y"])
        client.close()

    in_threads(len(sequences), converse)
    client = Client(server, "model")
    for x, of, reply, wanted in zip(sequences, once, found, expected):
        alone = client.infer({"x": x} | of)
        for output in names:
            assert close(reply[output], wanted[output]), output
            assert reply[output].tobytes() == alone[output].tobytes(), output
    server.wait_until_unused()
    assert server.metrics()["batchmaker_sessions"] == 0


@pytest.mark.parametrize("model", ["chain", "staged"])
def test_pieces_of_chains_of_cells(serve, tmp_path, model):
    """Cells of one's own, with a constant that is said once and states of several steps."""
    random = np.random.default_rng(SEED)
    normal = lambda *shape: random.standard_normal(shape, dtype=np.float32)
    if model == "chain":
        cell_files.chain(tmp_path / "chain", "forward", SEED)
        whole, once = {"x": normal(37, 3)}, {"speaker": normal(2)}
    else:
        cell_files.recurrent_chain(tmp_path / "staged", 11, 8, SEED)
        whole, once = {"token": random.integers(0, 11, 37)}, {}
    server = serve(tmp_path / model)
    client = Client(server, model)
    alone = client.infer(whole | once)
    every_step = [name for name, array in alone.items() if array.shape[:1] == (37,)]
    assert every_step and len(every_step) < len(alone)
    for name, ends in (("one by one", list(range(38))), ("cut", cuts(random, 37))):
        chunks = joined(play(client, name, whole, once, ends, 0), 0, every_step)
        assert all(chunks[of].tobytes() == alone[of].tobytes() for of in alone), name
    server.wait_until_unused()


def refusal(call, *arguments, **options):
    with pytest.raises(Refused) as refused:
        call(*arguments, **options)
    return refused.value


def test_what_is_wrong_is_said(serve, tmp_path):
    recurrent(tmp_path / "model.onnx", "LSTM", initial_states=True)
    cell_files.tree_lstm(tmp_path / "tree", 5, 4, False, SEED)
    cell_files.chain(tmp_path / "backwards", "reverse", SEED)
    server = serve(tmp_path / "model.onnx", tmp_path / "tree", tmp_path / "backwards")
    client = Client(server, "model")
    x = np.zeros((2, 1, 6), np.float32)
    first = {"x": x, "h0": np.zeros((1, 1, SIZE), np.float32)}
    first["c0"] = first["h0"]

    error = refusal(client.chunk, 7, {"x": x})
    assert error.status == 400 and "sequence_id '7': no such sequence of model 'model'" in error.error
    assert "sequence_start" in error.error
    error = refusal(client.chunk, 7, {}, end=True)
    assert error.status == 400 and "no such sequence" in error.error

    batch = {"x": np.zeros((2, 3, 6), np.float32)} | {
        state: np.zeros((1, 3, SIZE), np.float32) for state in ("h0", "c0")
    }
    error = refusal(client.chunk, 7, batch, start=True)
    assert error.status == 400 and "one sequence, got a batch of 3" in error.error
    # Nothing began.
    assert "no such sequence" in refusal(client.chunk, 7, {"x": x}).error

    client.chunk(7, first, start=True)
    error = refusal(client.chunk, 7, {"x": x, "h0": first["h0"]})
    assert error.status == 400 and "tensor `h0`: a session's first chunk brings it" in error.error
    error = refusal(client.infer, {"x": x}, {"sequence_id": 7}, {"x-session-id": "8"})
    assert error.status == 400 and "'7'" in error.error and "'8'" in error.error
    # It goes on all the same, under its name in the header.
    client.send({"x": x}, {}, {"x-session-id": "7"})
    outputs, headers = client.receive()
    assert headers["x-session-id"] == "7" and outputs["y"].shape == (2, 1, SIZE)
    assert client.chunk(7, {}, end=True) == {}
    assert "no such sequence" in refusal(client.chunk, 7, {"x": x}).error

    tree = {"token": np.array([1]), "children": np.zeros((0, 2), np.int64)}
    error = refusal(Client(server, "tree").chunk, 1, tree, start=True)
    assert error.status == 400
    chain = {"x": np.zeros((2, 3), np.float32), "speaker": np.zeros(2, np.float32)}
    error = refusal(Client(server, "backwards").chunk, 1, chain, start=True)
    assert error.status == 400 and "takes no sessions: it reads its sequence backwards" in error.error
    server.wait_until_unused()


def whole_only(path, kind):
    """A file whose rows depend on more than the steps so far."""
    random = np.random.default_rng(SEED)
    node = helper.make_node
    weights = {
        "w": random.standard_normal((1, 16, 6)), "r": random.standard_normal((1, 16, 4)),
    }
    constants = [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()]
    constants.append(numpy_helper.from_array(np.array(0), "first"))
    lstm = lambda x, states, y, last: node("LSTM", [x, "w", "r", "", "", *states], [y, *last],
                                           hidden_size=4)
    time, outputs = "time", [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if kind == "the end is handed on":
        nodes = [lstm("x", [], "", ["h", "c"]), lstm("x", ["h", "c"], "y", [])]
    elif kind == "a step by its number":
        nodes = [lstm("x", [], "y", []), node("Gather", ["x", "first"], ["row"], axis=0),
                 node("Tanh", ["row"], ["z"])]
        outputs.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    else:
        nodes, time = [lstm("x", [], "y", [])], 7
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [time, "batch", 6])]
    graph = helper.make_graph(nodes, "whole", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("the end is handed on", "its steps depend on the end of its sequence"),
        ("a step by its number", "it reads a step by its number"),
        ("one length", "its sequences have one length"),
    ],
)
def test_what_needs_its_whole_sequence_takes_no_chunks(serve, tmp_path, kind, reason):
    whole_only(tmp_path / "model.onnx", kind)
    client = Client(serve(tmp_path / "model.onnx"), "model")
    x = np.zeros((7, 1, 6), np.float32)
    assert "y" in client.infer({"x": x})
    error = refusal(client.chunk, 1, {"x": x}, start=True)
    assert error.status == 400 and f"takes no sessions: {reason}" in error.error


def test_a_start_begins_anew(serve, tmp_path):
    recurrent(tmp_path / "model.onnx", "GRU")
    server = serve(tmp_path / "model.onnx")
    client, random = Client(server, "model"), np.random.default_rng(SEED)
    x = random.standard_normal((9, 1, 6), dtype=np.float32)
    client.chunk("again", {"x": x[:4]}, start=True)
    assert client.chunk("again", {"x": x}, start=True)["y"].tobytes() == (
        client.infer({"x": x})["y"].tobytes()
    )
    client.chunk("again", {}, end=True)
    server.wait_until_unused()


def test_their_number_is_bounded(serve, tmp_path):
    recurrent(tmp_path / "model.onnx", "LSTM")
    server = serve(tmp_path / "model.onnx", "--max-sessions", 3)
    client, x = Client(server, "model"), np.zeros((2, 1, 6), np.float32)
    for name in (1, 2, 3):
        client.chunk(name, {"x": x}, start=True)
    error = refusal(client.chunk, 4, {"x": x}, start=True)
    assert error.status == 503 and error.headers["Retry-After"] and "3 sessions" in error.error
    # One that runs may begin anew, and whole sequences are none.
    client.chunk(2, {"x": x}, start=True)
    client.infer({"x": x})
    client.chunk(3, {}, end=True)
    client.chunk(4, {"x": x}, start=True)
    for name in (1, 2, 4):
        client.chunk(name, {}, end=True)
    server.wait_until_unused()


def test_idle_ones_end(serve, tmp_path):
    recurrent(tmp_path / "model.onnx", "LSTM")
    server = serve(tmp_path / "model.onnx", "--session-idle", 0.3)
    client, x = Client(server, "model"), np.zeros((2, 1, 6), np.float32)
    client.chunk("idle", {"x": x}, start=True)
    client.chunk("busy", {"x": x}, start=True)
    for _ in range(12):
        time.sleep(0.1)
        client.chunk("busy", {"x": x})
    assert "no such sequence" in refusal(client.chunk, "idle", {"x": x}).error
    server.wait_until_unused(5)
    assert server.metrics()['batchmaker_sessions_ended_total{by="idle"}'] == 2


def steps(server):
    """The number of nodes that ran."""
    samples = server.metrics().items()
    return sum(value for name, value in samples if name.startswith("batchmaker_nodes_total"))


def test_who_leaves_frees_what_it_held(serve, tmp_path):
    recurrent_files.write(
        tmp_path / "model.onnx", seed=SEED, input_size=6, hidden_size=512, layers=1
    )
    server = serve(tmp_path / "model.onnx")
    leaver, other = Client(server, "model"), Client(server, "model")
    x = np.zeros((20, 1, 6), np.float32)
    long = np.zeros((30_000, 1, 6), np.float32)
    leaver.chunk("left", {"x": x}, start=True)
    leaver.send({"x": long}, {"sequence_id": "left"})
    end = time.monotonic() + 30
    # The second chunk runs: one that has not begun when its client leaves takes nothing with it.
    while steps(server) <= 20:
        assert time.monotonic() < end
        time.sleep(0.01)
    leaver.close()
    server.wait_until_unused(5)
    assert "no such sequence" in refusal(other.chunk, "left", {"x": x}).error
    assert server.metrics()['batchmaker_sessions_ended_total{by="broken"}'] == 1


def test_closed_batches_take_none(serve, tmp_path):
    recurrent(tmp_path / "model.onnx", "LSTM")
    server = serve(tmp_path / "model.onnx", "--policy", "padded")
    x = np.zeros((2, 1, 6), np.float32)
    error = refusal(Client(server, "model").chunk, 1, {"x": x}, start=True)
    assert error.status == 400 and "sessions need the policy 'cellular'" in error.error


def test_tritonclient_speaks_them(serve, tmp_path):
    session = recurrent(tmp_path / "model.onnx", "LSTM")
    client = triton.InferenceServerClient(serve(tmp_path / "model.onnx").http)
    assert "sequence" in client.get_server_metadata()["extensions"]
    x = np.random.default_rng(SEED).standard_normal((10, 1, 6), dtype=np.float32)
    rows = []
    for first in range(0, 10, 5):
        tensor = triton.InferInput("x", [5, 1, 6], "FP32")
        tensor.set_data_from_numpy(x[first : first + 5])
        reply = client.infer(
            "model", [tensor], sequence_id=2**63 + 5, sequence_start=first == 0,
            sequence_end=first == 5,
        )
        rows.append(reply.as_numpy("y"))
    assert close(np.concatenate(rows), session.run(["y"], {"x": x})[0])
    client.close()
