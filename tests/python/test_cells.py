"""Model directories of cells (`kind = "tree"` and `"chain"`) through the server, many requests in
flight, against plain recursions.

A reply is within 1e-5 of the recursion (|a - b| <= 1e-5 * max(1, max|b|)) and, bit for bit, the
same as the reply to the same request sent alone.
"""

import concurrent.futures
import http.client
import json
import subprocess
import time
import urllib.error
import urllib.request

import cell_files
import numpy as np
import pytest
from conftest import BINARY

SEED = 20265


def infer(server, model, tensors, parameters=None):
    """Sends tensors {name: (datatype, array)} as JSON; the reply's tensors as arrays."""
    inputs = [
        {"name": name, "datatype": datatype, "shape": array.shape, "data": array.ravel().tolist()}
        for name, (datatype, array) in tensors.items()
    ]
    url = f"http://{server.http}/v2/models/{model}/infer"
    body = json.dumps({"inputs": inputs, "parameters": parameters or {}}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as response:
        outputs = json.load(response)["outputs"]
    return {
        of["name"]: np.array(of["data"], np.float32).reshape(of["shape"]) for of in outputs
    }


def infer_together(server, model, requests, parameters):
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        return list(pool.map(lambda request: infer(server, model, request, parameters), requests))


def random_tree(random, leaves, arity):
    """Children of inner nodes; which nodes are joined is random."""
    open_, children = list(range(leaves)), []
    while len(open_) > 1:
        chosen = [open_.pop(random.integers(len(open_))) for _ in range(arity)]
        open_.append(leaves + len(children))
        children.append(chosen)
    return children


def trees(random, arity, count):
    """Children of trees: one leaf, 52 leaves branching left and right, then any."""
    joins = 51 // (arity - 1)
    leaves = joins * (arity - 1) + 1

    def branching(is_left):
        children, node = [], 0 if is_left else leaves - 1
        for join in range(joins):
            first = 1 + join * (arity - 1)
            others = [first + at for at in range(arity - 1)]
            if not is_left:
                others = [leaves - 1 - other for other in reversed(others)]
            children.append([node, *others] if is_left else [*others, node])
            node = leaves + join
        return leaves, children

    yield 1, []
    yield branching(True)
    yield branching(False)
    for _ in range(count):
        leaves = int(random.integers(0, 30)) * (arity - 1) + 1
        yield leaves, random_tree(random, leaves, arity)


def close(a, b):
    return np.all(np.abs(a - b) <= 1e-5 * np.abs(b).max(initial=1.0))


def check(server, model, requests, expected, parameters=None):
    """Sends all requests together; each reply is close to what is expected, and the same alone."""
    replies = infer_together(server, model, requests, parameters)
    for request, reply, wanted in zip(requests, replies, expected):
        for name, array in wanted.items():
            assert reply[name].shape == array.shape and close(reply[name], array), name
        alone = infer(server, model, request, parameters)
        assert all(alone[name].tobytes() == reply[name].tobytes() for name in reply)
    server.wait_until_unused()


def children_tensor(children, arity):
    return "INT32", np.array(children, np.int32).reshape(len(children), arity)


@pytest.mark.parametrize("apart", [False, True], ids=["one_product", "gates_apart"])
@pytest.mark.parametrize("hidden", [19, 150])
def test_tree_lstm(serve, tmp_path, hidden, apart):
    weights = cell_files.tree_lstm(tmp_path / "tree", hidden, hidden + 7, apart, SEED)
    shown = subprocess.run([BINARY, "inspect", tmp_path / "tree", "--json"], capture_output=True)
    cells = json.loads(shown.stdout)["cells"]
    assert [cell["how"] for cell in cells] == ["fused", "fused"], cells
    random = np.random.default_rng(SEED)
    requests, expected = [], []
    for leaves, children in trees(random, 2, 60):
        words = random.integers(0, 97, leaves)
        requests.append({"token": ("INT64", words), "children": children_tensor(children, 2)})
        h, c = cell_files.tree_lstm_nodes(weights, words, children)
        expected.append({"nodes": h, "cells": c, "root": h[-1]})
    check(serve(tmp_path / "tree", "--workers", 2), "tree", requests, expected)


def test_trees_of_arity_3_and_rows_of_two_axes(serve, tmp_path):
    cell_files.ternary_tree(tmp_path / "ternary", 6, SEED)
    word, join = (cell_files.session(tmp_path / "ternary" / f"{of}.onnx") for of in ("word", "join"))
    random = np.random.default_rng(SEED)
    requests, expected = [], []
    for leaves, children in trees(random, 3, 40):
        x = random.standard_normal((leaves, 2, 3)).astype(np.float32)
        requests.append({"x": ("FP32", x), "children": children_tensor(children, 3)})
        nodes = list(word.run(["h"], {"x": x})[0])
        for of_node in children:
            feeds = {name: nodes[child][None] for name, child in zip("abc", of_node)}
            nodes.append(join.run(["h"], feeds)[0][0])
        expected.append({"all": np.array(nodes), "root": nodes[-1]})
    check(serve(tmp_path / "ternary"), "ternary", requests, expected)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_chain(serve, tmp_path, direction):
    cell_files.chain(tmp_path / "chain", direction, SEED)
    step = cell_files.session(tmp_path / "chain" / "step.onnx")
    random = np.random.default_rng(SEED)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)
    requests, expected = [], []
    for length in [1, 2, *random.integers(1, 40, 40)]:
        x, speaker, h = normal(length, 3), normal(2), np.zeros(5, np.float32)
        request = {"x": ("FP32", x), "speaker": ("FP32", speaker)}
        if random.random() < 0.5:
            h = normal(5)
            request["h"] = ("FP32", h)
        requests.append(request)
        y = np.zeros((length, 4), np.float32)
        for row in range(length) if direction == "forward" else reversed(range(length)):
            feeds = {"x": x[row][None], "speaker": speaker[None], "h": h[None]}
            (h,), (y[row],) = step.run(["h_out", "y"], feeds)
        expected.append({"y": y, "h_n": h})
    check(serve(tmp_path / "chain"), "chain", requests, expected)


@pytest.mark.parametrize(
    "operator, attributes",
    [
        ("LSTM", {}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("RNN", {}),
        ("RNN", {"activations": ["Relu"]}),
    ],
)
def test_a_recurrent_operator_inside_a_cell(serve, tmp_path, operator, attributes):
    folder = tmp_path / "step"
    cell_files.recurrent_chain(folder, 31, 20, SEED, operator, **attributes)
    shown = subprocess.run([BINARY, "inspect", folder, "--json"], capture_output=True)
    assert f"{operator} (fused kernel)" in json.loads(shown.stdout)["cells"][0]["why"]
    step = cell_files.session(folder / "step.onnx")
    names = ["h", "c"] if operator == "LSTM" else ["h"]
    random = np.random.default_rng(SEED)
    requests, expected = [], []
    for length in [1, *random.integers(1, 40, 40)]:
        tokens, states = random.integers(0, 31, length), np.zeros((len(names), 20), np.float32)
        request = {"token": ("INT64", tokens)}
        if random.random() < 0.5:
            states = random.standard_normal(states.shape, np.float32)
            request |= {name: ("FP32", state) for name, state in zip(names, states)}
        requests.append(request)
        scores = []
        for token in tokens:
            feeds = {name: np.float32(state)[None] for name, state in zip(names, states)}
            feeds["token"] = np.array([token])
            row, *states = step.run(["scores", *(f"{name}_out" for name in names)], feeds)
            states = [state[0] for state in states]
            scores.append(row[0])
        last = {f"{name}_n": state for name, state in zip(names, states)}
        expected.append({"scores": np.array(scores), **last})
    check(serve(folder), "step", requests, expected)


def test_constants_and_a_batch_that_is_not_in_front(serve, tmp_path):
    size = 12
    cell_files.stacked_state(tmp_path / "voice", size, SEED)
    step = cell_files.session(tmp_path / "voice" / "step.onnx")
    fixed = {"rate": np.array(4), "gain": np.array([0.5, 2, 1], np.float32)}
    random = np.random.default_rng(SEED)
    requests, expected = [], []
    for length in [1, *random.integers(1, 40, 30)]:
        x, state = random.standard_normal((length, 3), np.float32), np.zeros((2, size), np.float32)
        request = {"x": ("FP32", x)}
        if random.random() < 0.5:
            state = random.standard_normal(state.shape, np.float32)
            request["state"] = ("FP32", state)
        requests.append(request)
        rows = []
        for row in x:
            y, state = step.run(None, {"x": row[None], "state": state[:, None], **fixed})
            state = state[:, 0]
            rows.append(y[0])
        expected.append({"y": np.array(rows), "state_n": state})
    check(serve(tmp_path / "voice"), "voice", requests, expected)


@pytest.mark.parametrize(
    "workers, threads, policy",
    [(1, 1, "cellular"), (2, 1, "cellular"), (1, 2, "cellular"), (2, 1, "padded"), (1, 1, "merged")],
)
def test_encoder_decoder(serve, tmp_path, workers, threads, policy):
    size, vocabulary = 24, 15
    folder = tmp_path / "translator"
    cell_files.translator(folder, vocabulary, size, SEED + 1)
    encoder = cell_files.session(folder / "encoder.onnx")
    decoder = cell_files.session(folder / "decoder.onnx")
    server = serve(
        folder, "--workers", workers, "--threads-per-worker", threads, "--policy", policy
    )
    random = np.random.default_rng(SEED)
    sources = [random.integers(0, vocabulary, n) for n in [1, *random.integers(1, 60, 60)]]
    requests = [{"source": ("INT64", source)} for source in sources]

    def expected(**limits):
        return [cell_files.translate(encoder, decoder, s, size, **limits) for s in sources]

    unbounded = expected()
    lengths = {len(reply["token"]) for reply in unbounded}
    assert 0 in lengths and len(lengths) > 5, lengths
    bounds = [int(np.ceil(0.1 * len(source) + 8)) for source in sources]
    assert any(len(reply["token"]) == bound for reply, bound in zip(unbounded, bounds))
    check(server, "translator", requests, unbounded)
    check(server, "translator", requests, expected(bound=4), {"max_steps": 4})
    check(server, "translator", requests, expected(force=33), {"force_steps": 33})
    wasted = [name for name in server.metrics() if name.startswith("batchmaker_wasted_steps")]
    assert wasted

    def refusal(parameters):
        with pytest.raises(urllib.error.HTTPError) as refused:
            infer(server, "translator", requests[0], parameters)
        assert refused.value.code == 400
        return json.load(refused.value)["error"]

    assert "expected 1 to 400 steps, got 401" in refusal({"force_steps": 401})
    assert "expected 1 to 400 steps, got 0" in refusal({"max_steps": 0})
    assert "expected a number of steps" in refusal({"max_steps": -1})


@pytest.mark.parametrize("workers, threads", [(2, 1), (1, 2)])
@pytest.mark.parametrize("vocabulary", [3, 30_001])
def test_arg_max_of_a_product_is_fused(serve, tmp_path, vocabulary, workers, threads):
    size = 40
    folder = tmp_path / "translator"
    cell_files.translator(folder, vocabulary, size, SEED, scored=False)
    shown = subprocess.run([BINARY, "inspect", folder, "--json"], capture_output=True)
    decoder = json.loads(shown.stdout)["cells"][1]
    assert "MatMul, ArgMax (fused kernel)" in decoder["why"], decoder
    server = serve(folder, "--workers", workers, "--threads-per-worker", threads)
    random = np.random.default_rng(SEED)
    sources = [random.integers(0, vocabulary, n) for n in random.integers(1, 40, 50)]
    sessions = [cell_files.session(folder / f"{cell}.onnx") for cell in ("encoder", "decoder")]
    for limits in ({}, {"force": 19}):
        expected = [cell_files.translate(*sessions, source, size, **limits) for source in sources]
        parameters = {"force_steps": 19} if limits else None
        requests = [{"source": ("INT64", source)} for source in sources]
        check(server, "translator", requests, expected, parameters)


MALFORMED = {
    "a child that is no node": ([[0, 5]], "node 3 has child 5; there are 4 nodes"),
    "a child below 0": ([[0, -1], [3, 1]], "node 3 has child -1; there are 5 nodes"),
    "a child after its parent": ([[0, 4], [3, 1]], "node 3 has child 4, which does not come before"),
    "a node that is its own child": ([[0, 3], [3, 1]], "node 3 has child 3, which does not come"),
    "two parents": ([[0, 1], [0, 3]], "node 0 has two parents"),
    "one child twice": ([[0, 0], [3, 1]], "node 0 has two parents"),
    "two roots": ([[0, 1]], "two roots: node 2 has no parent, and node 3 is last"),
    "leaves that nothing joins": ([], "two roots: node 0 has no parent, and node 2 is last"),
    "another arity": ([[0, 1, 2]], "expected shape [inner, 2], got [1, 3]"),
}


def test_malformed_trees_are_refused(serve, tmp_path):
    cell_files.tree_lstm(tmp_path / "tree", 5, 4, False, SEED)
    server = serve(tmp_path / "tree")

    def refusal(tensors):
        with pytest.raises(urllib.error.HTTPError) as refused:
            infer(server, "tree", tensors)
        assert refused.value.code == 400
        return json.load(refused.value)["error"]

    words = ("INT64", np.array([3, 1, 4]))
    for what, (children, expected) in MALFORMED.items():
        arity = len(children[0]) if children else 2
        error = refusal({"token": words, "children": children_tensor(children, arity)})
        assert expected in error, f"{what}: {error}"
    joined = children_tensor([[0, 1], [3, 2]], 2)
    empty = ("INT64", np.array([], np.int64))
    assert "empty sequence" in refusal({"token": empty, "children": children_tensor([], 2)})
    unknown = ("INT64", np.array([3, 97, 4]))
    assert "ids in 0..97, got 97" in refusal({"token": unknown, "children": joined})
    assert "missing" in refusal({"token": words})
    assert "root" in infer(server, "tree", {"token": words, "children": joined})
    server.wait_until_unused()


@pytest.mark.parametrize("end_by", ["the client leaves", "a deadline"])
def test_a_tree_ends_at_its_next_node(serve, tmp_path, end_by):
    cell_files.tree_lstm(tmp_path / "tree", 512, 16, False, SEED)
    server = serve(tmp_path / "tree")
    leaves = 20_000
    children = [[leaves + at - 1 if at else 0, at + 1] for at in range(leaves - 1)]
    body = {"inputs": [
        {"name": "token", "datatype": "INT64", "shape": [leaves], "data": [1] * leaves},
        {"name": "children", "datatype": "INT32", "shape": [leaves - 1, 2], "data": children},
    ]}
    if end_by == "a deadline":
        body["parameters"] = {"timeout": 400_000}

    def inner_nodes():
        name = 'batchmaker_nodes_total{model="tree",cell="internal"}'
        return server.metrics()[name]

    # Its inner nodes run one after the other: that would take seconds.
    connection = http.client.HTTPConnection(server.http)
    connection.request("POST", "/v2/models/tree/infer", json.dumps(body))
    if end_by == "a deadline":
        reply = connection.getresponse()
        assert reply.status == 504 and b"400000" in reply.read()
    else:
        end = time.monotonic() + 30
        while inner_nodes() == 0:
            assert time.monotonic() < end, "the request never arrived"
            time.sleep(0.01)
    connection.close()
    server.wait_until_unused(5)
    assert inner_nodes() < leaves - 1


def test_equal_cells_of_two_models_are_one_type(tmp_path):
    types = []
    for name, apart in [("one", False), ("two", False), ("three", True)]:
        cell_files.tree_lstm(tmp_path / name, 8, 6, apart, SEED)
        shown = subprocess.run([BINARY, "inspect", tmp_path / name, "--json"], capture_output=True)
        types.append([cell["type"] for cell in json.loads(shown.stdout)["cells"]])
    # However a file spells them.
    assert types[0] == types[1] == types[2]


def refused(folder, toml):
    (folder / "model.toml").write_text(toml)
    done = subprocess.run([BINARY, "inspect", folder], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_directories_that_do_not_fit_are_refused(tmp_path):
    cell_files.chain(tmp_path / "chain", "forward", SEED)
    folder, toml = tmp_path / "chain", (tmp_path / "chain" / "model.toml").read_text()
    for old, new, expected in [
        ('cell = "step"', 'cell = "stop"', "there is no [[cell]] named `stop`"),
        ('sequence = ["x"]', 'sequence = ["z"]', "cell `step` has no input `z`"),
        ('constant = ["speaker"]', "constant = []", "nothing feeds its input `speaker`"),
        ('"forward"', '"sideways"', 'expected "forward" or "reverse", got "sideways"'),
        ('h = "h_out"', 'h = "y"', "its state: output `y` is FP32 [4], input `h` FP32 [5]"),
        ('from = "y"', 'from = "z"', "cell `step` has no output `z`"),
        ('[unfold]', '[[cell]]\nname = "b"\ngraph = "step.onnx"\n[unfold]', "makes no use of it"),
        ('sequence = ["x"]', 'sequence = ["x", "h"]', "its input `h` is fed twice"),
    ]:
        assert old in toml
        assert expected in refused(folder, toml.replace(old, new, 1)), new
    node = cell_files.helper.make_node
    cell_files.save(
        folder / "step.onnx",
        [node("ReduceMean", ["x"], ["mean"], axes=[0]), node("Sub", ["x", "mean"], ["y"])],
        [cell_files.info("x", 3)], [cell_files.info("y", 3)], {},
    )
    assert "rows interact" in refused(folder, toml)


@pytest.mark.parametrize(
    "given, changed, reason",
    [
        ("state = 1,", "state = 3,", "batch_axis of `state`: there is no axis 3: its rank is 3"),
        ("state = 1,", "stat = 1,", "batch_axis of `stat`: there is no such input or output"),
        ("rate = 4", "rate = 4, speed = 1", "fixed `speed`: there is no such input"),
        ("rate = 4", "rate = 4.5", "fixed `rate`: the input is INT64, the value is FP32"),
        ("[0.5, 2.0, 1.0]", "[1, 2]", "fixed `gain`: expected shape [3] or one number, got [2]"),
    ],
)
def test_constants_and_axes_that_do_not_fit_are_refused(tmp_path, given, changed, reason):
    cell_files.stacked_state(tmp_path / "voice", 8, SEED)
    table = tmp_path / "voice" / "model.toml"
    table.write_text(table.read_text().replace(given, changed))
    shown = subprocess.run([BINARY, "inspect", tmp_path / "voice"], capture_output=True, text=True)
    assert shown.returncode == 1 and reason in shown.stderr


def test_cells_that_are_more_than_one_step_are_refused(tmp_path):
    cell_files.chain(tmp_path / "chain", "forward", SEED)
    toml = (tmp_path / "chain" / "model.toml").read_text()
    node, constants = cell_files.helper.make_node, cell_files.lstm_constants(3, 5, SEED)
    nodes = [
        node("Transpose", ["x"], ["by_step"], perm=[1, 0, 2]),
        node("LSTM", ["by_step", "W", "R"], ["", "last"], hidden_size=5),
        node("Squeeze", ["last", "zero"], ["y"]),
    ]
    for steps, expected in [(4, "its X is [4, batch, 3]"), ("steps", "input `x`: its shape is")]:
        inputs, outputs = [cell_files.info("x", steps, 3)], [cell_files.info("y", 5)]
        cell_files.save(tmp_path / "chain" / "step.onnx", nodes, inputs, outputs, constants)
        assert expected in refused(tmp_path / "chain", toml)
    inputs = [cell_files.info("x", 0, 3)]
    cell_files.save(
        tmp_path / "chain" / "step.onnx",
        [node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], inputs, [cell_files.info("y", 3)],
        {"axes": np.array([1])},
    )
    assert "input `x`: its dimension 1 is 0" in refused(tmp_path / "chain", toml)


def test_ids_that_a_table_may_not_have_are_not_fed_back(tmp_path):
    """A token that feeds itself: the arg-max of as many scores as the table has rows, or of more."""
    folder = tmp_path / "greedy"
    for scores, is_refused in [(7, False), (8, True)]:
        cell_files.greedy_chain(folder, 7, scores, SEED)
        if is_refused:
            toml = (folder / "model.toml").read_text()
            assert "integers that input `token`, ids below 7, cannot take" in refused(folder, toml)
        else:
            subprocess.run([BINARY, "inspect", folder], check=True, capture_output=True)


def test_a_child_that_is_fed_twice_is_refused(tmp_path):
    cell_files.tree_lstm(tmp_path / "tree", 5, 4, False, SEED)
    toml = (tmp_path / "tree" / "model.toml").read_text()
    assert "its input `h_l` is fed twice" in refused(tmp_path / "tree", toml.replace("h_r", "h_l"))
