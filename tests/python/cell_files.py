"""Model directories whose cells are written here, and plain recursions over them."""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from conftest import ROOT

sys.path.insert(0, str(ROOT / "bench" / "peers"))

import make_tree_lstm  # noqa: E402  (found by the line above)
import recurrent_files  # noqa: E402


def info(name, *shape, of=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, of, ["batch", *shape])


def save(path, nodes, inputs, outputs, constants):
    initializers = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "cell", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def tree_lstm(folder, hidden, input_size, apart, seed):
    """A TreeLSTM whose reply has all nodes; its weights in float64."""
    drawn = make_tree_lstm.write(
        folder, hidden, input_size, 97, seed, apart=apart, all_nodes=True
    )
    return {name: values.astype(np.float64) for name, values in drawn.items()}


def tree_lstm_nodes(weights, words, children):
    """h and c of all nodes, each [nodes, hidden] float64: a recursion node by node."""
    h, c = [], []
    for word in words:
        i, o, u = np.split(weights["embedding"][word] @ weights["w"] + weights["w_b"], 3)
        c.append(sigmoid(i) * np.tanh(u))
        h.append(sigmoid(o) * np.tanh(c[-1]))
    for left, right in children:
        both = np.concatenate([h[left], h[right]])
        i, o, f_l, f_r, u = np.split(both @ weights["u"] + weights["u_b"], 5)
        c.append(sigmoid(i) * np.tanh(u) + sigmoid(f_l) * c[left] + sigmoid(f_r) * c[right])
        h.append(sigmoid(o) * np.tanh(c[-1]))
    return np.array(h), np.array(c)


TERNARY = """\
[[cell]]
name = "word"
graph = "word.onnx"
[[cell]]
name = "join"
graph = "join.onnx"
max_batch_size = 7

[unfold]
kind = "tree"
[unfold.leaf]
cell = "word"
sequence = ["x"]
[unfold.internal]
cell = "join"
children = [ { a = "h" }, { b = "h" }, { c = "h" } ]
[unfold.outputs]
all = { from = "h", every_step = true }
root = { from = "h" }
"""


def ternary_tree(folder, size, seed):
    """A tree of arity 3 that no fused kernel computes: leaves with a layer norm, inner nodes with a
    softmax over their children."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    uniform = lambda *shape: random.uniform(-0.5, 0.5, shape).astype(np.float32)
    node = helper.make_node
    save(
        folder / "word.onnx",
        [
            node("MatMul", ["x", "w"], ["product"]),
            node("LayerNormalization", ["product", "scale"], ["normal"], axis=-1),
            node("Tanh", ["normal"], ["h"]),
        ],
        [info("x", 2, 3)], [info("h", 2, size)],
        {"w": uniform(3, size), "scale": uniform(size)},
    )
    save(
        folder / "join.onnx",
        [
            node("Concat", ["a", "b", "c"], ["all"], axis=1),
            node("MatMul", ["all", "u"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=1),
            node("Mul", ["shares", "all"], ["weighted"]),
            node("Reshape", ["weighted", "by_child"], ["apart"]),
            node("ReduceSum", ["apart", "axis"], ["sum"], keepdims=0),
            node("Tanh", ["sum"], ["h"]),
        ],
        [info(name, 2, size) for name in "abc"], [info("h", 2, size)],
        {
            "u": uniform(size, size), "axis": np.array([1]),
            "by_child": np.array([-1, 3, 2, size]),
        },
    )
    (folder / "model.toml").write_text(TERNARY)


STEP = """\
[[cell]]
name = "step"
graph = "step.onnx"

[unfold]
kind = "chain"
cell = "step"
direction = "{direction}"
sequence = ["x"]
constant = ["speaker"]
state = {{ h = "h_out" }}
[unfold.outputs]
y = {{ from = "y", every_step = true }}
h_n = {{ from = "h_out" }}
"""


def chain(folder, direction, seed):
    """A recurrence in primitive operators with a constant input and an output of its own."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    uniform = lambda *shape: random.uniform(-0.5, 0.5, shape).astype(np.float32)
    node = helper.make_node
    save(
        folder / "step.onnx",
        [
            node("Concat", ["x", "speaker", "h"], ["all"], axis=1),
            node("MatMul", ["all", "w"], ["sums"]),
            node("Relu", ["sums"], ["squashed"]),
            node("Add", ["squashed", "h"], ["both"]),
            node("Tanh", ["both"], ["h_out"]),
            node("MatMul", ["h_out", "v"], ["y"]),
        ],
        [info("x", 3), info("speaker", 2), info("h", 5)], [info("h_out", 5), info("y", 4)],
        {"w": uniform(10, 5), "v": uniform(5, 4)},
    )
    (folder / "model.toml").write_text(STEP.format(direction=direction))


LSTM_STEP = """\
[[cell]]
name = "step"
graph = "step.onnx"

[unfold]
kind = "chain"
cell = "step"
sequence = ["token"]
state = { h = "h_out", c = "c_out" }
[unfold.outputs]
scores = { from = "scores", every_step = true }
h_n = { from = "h_out" }
c_n = { from = "c_out" }
"""


RECURRENT_STEP = """\
[[cell]]
name = "step"
graph = "step.onnx"

[unfold]
kind = "chain"
cell = "step"
sequence = ["token"]
state = { h = "h_out" }
[unfold.outputs]
scores = { from = "scores", every_step = true }
h_n = { from = "h_out" }
"""


def step_nodes(token, states, operator, size, **attributes):
    """One step of a recurrent operator over row `token` of `table`: its states to `h_out`, ..."""
    node = helper.make_node
    firsts, lasts = [f"{state}_0" for state in states], [f"{state}_1" for state in states]
    return [
        node("Gather", ["table", token], ["embedded"]),
        node("Unsqueeze", ["embedded", "zero"], ["x"]),
        *(node("Unsqueeze", [state, "zero"], [f"{state}_0"]) for state in states),
        node(
            operator, ["x", "W", "R", "B", "", *firsts], ["", *lasts], hidden_size=size,
            **attributes,
        ),
        *(node("Squeeze", [f"{state}_1", "zero"], [f"{state}_out"]) for state in states),
    ]


def recurrent_chain(folder, vocabulary, size, seed, operator="LSTM", **attributes):
    """A cell with a recurrent operator of one step between an embedding and a head that sees h."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    uniform = lambda *shape: random.uniform(-0.5, 0.5, shape).astype(np.float32)
    node, gates = helper.make_node, recurrent_files.GATES[operator]
    states = ["h", "c"] if operator == "LSTM" else ["h"]
    save(
        folder / "step.onnx",
        [
            *step_nodes("token", states, operator, size, **attributes),
            node("MatMul", ["h_out", "head"], ["logits"]),
            node("Softmax", ["logits"], ["scores"], axis=-1),
        ],
        [info("token", of=TensorProto.INT64), *(info(state, size) for state in states)],
        [info("scores", 4), *(info(f"{state}_out", size) for state in states)],
        {
            "table": uniform(vocabulary, 6), "zero": np.array([0]), "head": uniform(size, 4),
            "W": uniform(1, gates * size, 6), "R": uniform(1, gates * size, size),
            "B": uniform(1, 2 * gates * size),
        },
    )
    (folder / "model.toml").write_text(LSTM_STEP if operator == "LSTM" else RECURRENT_STEP)


STACKED_STATE = """\
fixed = { rate = 4, gain = [0.5, 2.0, 1.0] }

[[cell]]
name = "step"
graph = "step.onnx"
batch_axis = { state = 1, state_out = 1 }

[unfold]
kind = "chain"
cell = "step"
sequence = ["x"]
state = { state = "state_out" }
[unfold.outputs]
y = { from = "y", every_step = true }
state_n = { from = "state_out" }
"""


def stacked_state(folder, size, seed):
    """An LSTM step whose h and c are one tensor [2, batch, size], as exporters of voice detectors
    write it; x [batch, 3] is multiplied by the inputs `gain` [3] and 1 / `rate`, a scalar."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    uniform = lambda *shape: random.uniform(-0.5, 0.5, shape).astype(np.float32)
    node = helper.make_node
    tensor = helper.make_tensor_value_info
    save(
        folder / "step.onnx",
        [
            node("Cast", ["rate"], ["rate_f"], to=TensorProto.FLOAT),
            node("Div", ["x", "rate_f"], ["x_1"]),
            node("Mul", ["x_1", "gain"], ["x_2"]),
            node("Unsqueeze", ["x_2", "zero"], ["x_3"]),
            node("Gather", ["state", "index_0"], ["h"], axis=0),
            node("Gather", ["state", "index_1"], ["c"], axis=0),
            node("Unsqueeze", ["h", "zero"], ["h_0"]),
            node("Unsqueeze", ["c", "zero"], ["c_0"]),
            node(
                "LSTM", ["x_3", "W", "R", "", "", "h_0", "c_0"], ["", "h_1", "c_1"],
                hidden_size=size,
            ),
            node("Concat", ["h_1", "c_1"], ["state_out"], axis=0),
            node("Squeeze", ["h_1", "zero"], ["h_2"]),
            node("MatMul", ["h_2", "head"], ["logits"]),
            node("Sigmoid", ["logits"], ["y"]),
        ],
        [
            info("x", 3), tensor("state", TensorProto.FLOAT, [2, "batch", size]),
            tensor("rate", TensorProto.INT64, []), tensor("gain", TensorProto.FLOAT, [3]),
        ],
        [info("y", 1), tensor("state_out", TensorProto.FLOAT, [2, "batch", size])],
        {
            "zero": np.array([0]), "index_0": np.array(0), "index_1": np.array(1),
            "W": uniform(1, 4 * size, 3), "R": uniform(1, 4 * size, size), "head": uniform(size, 1),
        },
    )
    (folder / "model.toml").write_text(STACKED_STATE)


TRANSLATOR = """\
max_length = 400

[[cell]]
name = "encoder"
graph = "encoder.onnx"
[[cell]]
name = "decoder"
graph = "decoder.onnx"
max_batch_size = 32

[unfold]
kind = "encoder_decoder"
[unfold.encoder]
cell = "encoder"
sequence = ["source"]
state = { h = "h_out", c = "c_out" }
[unfold.decoder]
cell = "decoder"
feed = { token = "token_out" }
start = { token = 1 }
stop = { output = "token_out", value = 2 }
state = { h = "h_out", c = "c_out" }
init = { h = "encoder.h_out", c = "encoder.c_out" }
max_steps = { per_input = 0.1, plus = 8 }
[unfold.outputs]
token = { from = "decoder.token_out", every_step = true }
scores = { from = "decoder.scores", every_step = true }
h_n = { from = "decoder.h_out" }
"""


def translator(folder, vocabulary, size, seed, scored=True):
    """An LSTM encoder, and an LSTM decoder whose next token is the arg-max of its scores, which the
    reply holds as well if it is to be `scored`."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    uniform = lambda *shape: random.uniform(-1, 1, shape).astype(np.float32)
    node = helper.make_node

    def step(name, token, after, outputs, constants):
        constants |= {
            "table": uniform(vocabulary, 8), "zero": np.array([0]), "W": uniform(1, 4 * size, 8),
            "R": 0.3 * uniform(1, 4 * size, size), "B": uniform(1, 8 * size),
        }
        save(
            folder / name,
            [*step_nodes(token, ["h", "c"], "LSTM", size), *after],
            [info(token, of=TensorProto.INT64), info("h", size), info("c", size)],
            [*outputs, info("h_out", size), info("c_out", size)],
            constants,
        )

    step("encoder.onnx", "source", [], [], {})
    head = [
        node("MatMul", ["h_out", "head"], ["product"]),
        node("Add", ["product", "bias"], ["scores"]),
        node("ArgMax", ["scores"], ["token_out"], axis=1, keepdims=0),
    ]
    # Stopping is not rare, nor the rule.
    bias = np.zeros(vocabulary, np.float32)
    bias[2] = 0.3
    outputs = [info("token_out", of=TensorProto.INT64)]
    if scored:
        outputs.append(info("scores", vocabulary))
    constants = {"head": uniform(size, vocabulary), "bias": bias}
    step("decoder.onnx", "token", head, outputs, constants)
    lines = TRANSLATOR.splitlines(keepends=True)
    lines = [line for line in lines if scored or not line.startswith("scores")]
    (folder / "model.toml").write_text("".join(lines))


def translate(encoder, decoder, source, size, *, bound=None, force=None):
    """The reply of a model that :func:`translator` wrote, by its cells' ONNX Runtime sessions."""
    h, c = np.zeros((1, size), np.float32), np.zeros((1, size), np.float32)
    for token in source:
        h, c = encoder.run(["h_out", "c_out"], {"source": np.array([token]), "h": h, "c": c})
    if bound is None:
        bound = int(np.ceil(0.1 * len(source) + 8))
    token, last = np.array([1]), np.zeros_like(h)
    tokens, scores = [], []
    scored = [output.name for output in decoder.get_outputs() if output.name == "scores"]
    while len(tokens) < (force or bound):
        feeds = {"token": token, "h": h, "c": c}
        token, h, c, *rows = decoder.run(["token_out", "h_out", "c_out", *scored], feeds)
        if token[0] == 2 and not force:
            break
        tokens.append(token[0])
        scores += [row[0] for row in rows]
        last = h
    reply = {"token": np.array(tokens, np.int64), "h_n": last[0]}
    if scored:
        width = decoder.get_outputs()[1].shape[1]
        reply["scores"] = np.array(scores, np.float32).reshape(len(tokens), width)
    return reply


def lstm_constants(input_size, hidden_size, seed):
    random = np.random.default_rng(seed)
    uniform = lambda *shape: random.uniform(-0.5, 0.5, shape).astype(np.float32)
    return {
        "W": uniform(1, 4 * hidden_size, input_size), "R": uniform(1, 4 * hidden_size, hidden_size),
        "zero": np.array([0]),
    }


GREEDY = """\
[[cell]]
name = "step"
graph = "step.onnx"

[unfold]
kind = "chain"
cell = "step"
sequence = ["x"]
state = { token = "next" }
[unfold.outputs]
token = { from = "next", every_step = true }
"""


def greedy_chain(folder, vocabulary, scores, seed):
    """A cell whose token is the arg-max of `scores` scores of the token before."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    node = helper.make_node
    save(
        folder / "step.onnx",
        [
            node("Gather", ["table", "token"], ["embedded"]),
            node("Add", ["embedded", "x"], ["both"]),
            node("MatMul", ["both", "head"], ["scores"]),
            node("ArgMax", ["scores"], ["next"], axis=1, keepdims=0),
        ],
        [info("x", 3), info("token", of=TensorProto.INT64)], [info("next", of=TensorProto.INT64)],
        {
            "table": random.standard_normal((vocabulary, 3)).astype(np.float32),
            "head": random.standard_normal((3, scores)).astype(np.float32),
        },
    )
    (folder / "model.toml").write_text(GREEDY)
