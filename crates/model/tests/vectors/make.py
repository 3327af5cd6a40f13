"""Writes small ONNX files and what ONNX Runtime computes with them.

Needs torch, onnx, onnxruntime and numpy. Every case is `NAME.onnx` and `NAME.txt`. The text
file holds requests and their replies: a line `case` starts one; `in` or `out`, a name, an
element type, a shape (`2x3`, `-` for a scalar) and the elements follow, one tensor a line.
"""

import pathlib
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

HERE = pathlib.Path(__file__).parent
TYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}
random = np.random.default_rng(7)
torch.manual_seed(7)
warnings.filterwarnings("ignore")


def line(kind, name, array):
    array = np.asarray(array)
    shape = "x".join(map(str, array.shape)) or "-"
    if array.dtype == np.float32:
        values = " ".join(f"{x:.9g}" for x in array.ravel())
    else:
        values = " ".join(str(int(x)) for x in array.ravel())
    return f"{kind} {name} {TYPES[str(array.dtype)]} {shape} {values}\n"


def record(name, requests):
    session = onnxruntime.InferenceSession(HERE / f"{name}.onnx")
    outputs = [output.name for output in session.get_outputs()]
    with open(HERE / f"{name}.txt", "w") as file:
        for request in requests:
            file.write("case\n")
            for key, array in request.items():
                file.write(line("in", key, array))
            for key, array in zip(outputs, session.run(None, request)):
                file.write(line("out", key, array))


def floats(*shape):
    return random.normal(size=shape).astype(np.float32)


SIZES = [(1, 1), (1, 2), (1, 7), (3, 7), (3, 1)]


class Plain(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.lstm = nn.LSTM(5, 4, **options)


class Stateless(Plain):
    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return y, h, c


class Stateful(Plain):

    def forward(self, x, h0, c0):
        y, (h, c) = self.lstm(x, (h0, c0))
        return y, h, c


class Tagger(nn.Module):
    """Embedding, LSTM, a projection of every step."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.linear = nn.Linear(8, 3)

    def forward(self, ids):
        y, _ = self.lstm(self.embedding(ids))
        return torch.log_softmax(self.linear(y), -1)


class Classifier(nn.Module):
    """A classifier of the last step, with norms, dropout and a residual around."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(5, 8)
        self.norm = nn.LayerNorm(8)
        self.lstm = nn.LSTM(8, 8)
        self.dropout = nn.Dropout(0.3)
        self.outside = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))

    def forward(self, x):
        x = torch.tanh(self.norm(self.inside(x)))
        y, _ = self.lstm(x)
        y = self.dropout(y + x)
        logits = self.outside(y[-1])
        return torch.softmax(logits, -1), logits.argmax(-1)


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.lstm = nn.LSTM(4, 4, num_layers=2, batch_first=True)
        self.linear = nn.Linear(8, 3)

    def forward(self, ids):
        _, (h, _) = self.lstm(self.embedding(ids))
        return self.linear(torch.cat([h[0], h[1]], -1))


class Speaker(nn.Module):
    """A constant of the sequence joins every step; flattened rows go through the head."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(7, 4)
        self.linear = nn.Linear(4, 3)

    def forward(self, x, speaker):
        steps = x.shape[0]
        x = torch.cat([x, speaker.unsqueeze(0).expand(steps, -1, -1)], -1)
        y, _ = self.lstm(x)
        flat = self.linear(y.reshape(-1, 4))
        return flat.reshape(steps, -1, 3), y[0]


def export(name, module, args, inputs, outputs, axes, dynamo=False):
    path = HERE / f"{name}.onnx"
    options = {"dynamic_axes": axes} if not dynamo else {"dynamic_shapes": axes}
    torch.onnx.export(
        module.eval(), args, path, input_names=inputs, output_names=outputs,
        dynamo=dynamo, external_data=False, **options,
    )
    model = onnx.load(path)
    for node in model.graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    for info in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        info.ClearField("metadata_props")
    model.graph.ClearField("metadata_props")
    onnx.save(model, path)


def plain(name, layers, batch_first, states, bias, dynamo=False):
    module = (Stateful if states else Stateless)(num_layers=layers, batch_first=batch_first, bias=bias)
    shape = (lambda b, t: (b, t, 5)) if batch_first else (lambda b, t: (t, b, 5))
    x_axes = {0: "batch", 1: "seq"} if batch_first else {0: "seq", 1: "batch"}
    args = [torch.randn(*shape(2, 3))]
    inputs, axes = ["x"], {"x": x_axes, "y": x_axes, "h_n": {1: "batch"}, "c_n": {1: "batch"}}
    if states:
        args += [torch.randn(layers, 2, 4), torch.randn(layers, 2, 4)]
        inputs += ["h0", "c0"]
        axes |= {"h0": {1: "batch"}, "c0": {1: "batch"}}
    if dynamo:
        batch, seq = torch.export.Dim("batch"), torch.export.Dim("seq")
        names = {"batch": batch, "seq": seq}
        axes = ({k: names[v] for k, v in x_axes.items()}, *([{1: batch}] * 2 if states else []))
    export(name, module, tuple(args), inputs, ["y", "h_n", "c_n"], axes, dynamo)
    requests = []
    for b, t in SIZES:
        request = {"x": floats(*shape(b, t))}
        if states:
            request |= {"h0": floats(layers, b, 4), "c0": floats(layers, b, 4)}
        requests.append(request)
    record(name, requests)


def torch_files():
    plain("lstm1", 1, False, False, True)
    plain("lstm1_batch_first_states", 1, True, True, False)
    plain("lstm2_states", 2, False, True, True)
    plain("lstm2_batch_first", 2, True, False, True)
    plain("lstm2_dynamo", 2, True, False, True, dynamo=True)
    ids = lambda n, *shape: random.integers(0, n, shape)
    export("tagger", Tagger(), (torch.zeros(2, 3, dtype=torch.int64),), ["ids"], ["tags"],
           {"ids": {0: "batch", 1: "seq"}, "tags": {0: "batch", 1: "seq"}})
    record("tagger", [{"ids": ids(11, b, t)} for b, t in SIZES])
    export("classifier", Classifier(), (torch.randn(3, 2, 5),), ["x"], ["p", "best"],
           {"x": {0: "seq", 1: "batch"}, "p": {0: "batch"}, "best": {0: "batch"}})
    record("classifier", [{"x": floats(t, b, 5)} for b, t in SIZES])
    export("last_state", LastState(), (torch.zeros(2, 3, dtype=torch.int64),), ["ids"], ["scores"],
           {"ids": {0: "batch", 1: "seq"}, "scores": {0: "batch"}})
    record("last_state", [{"ids": ids(9, b, t)} for b, t in SIZES])
    export("speaker", Speaker(), (torch.randn(3, 2, 5), torch.randn(2, 2)), ["x", "speaker"],
           ["z", "first"],
           {"x": {0: "seq", 1: "batch"}, "speaker": {0: "batch"}, "z": {0: "seq", 1: "batch"},
            "first": {0: "batch"}})
    record("speaker", [{"x": floats(t, b, 5), "speaker": floats(b, 2)} for b, t in SIZES])
    export("static", Tagger(), (torch.zeros(1, 7, dtype=torch.int64),), ["ids"], ["tags"], {})
    record("static", [{"ids": ids(11, 1, 7)}])
    export("unbatched", Stateless(), (torch.randn(3, 5),), ["x"], ["y", "h_n", "c_n"],
           {"x": {0: "seq"}, "y": {0: "seq"}})
    record("unbatched", [{"x": floats(t, 5)} for t in (1, 2, 7)])


def raw_lstm(name, x_shape, outputs, extra_nodes=(), extra_weights=(), opset=17, state=None,
             requests=None, state_inputs=(), **attributes):
    weights = [("W", floats(1, 16, 3)), ("R", floats(1, 16, 4)), ("B", floats(1, 32))]
    weights += list(extra_weights)
    inputs = ["x", "W", "R", "B", "", *(["h0", "c0"] if state is not None or state_inputs else [])]
    if state is not None:
        weights += [("h0", state[0]), ("c0", state[1])]
    lstm = helper.make_node("LSTM", inputs, ["Y", "Y_h", "Y_c"], "lstm", hidden_size=4, **attributes)
    info = lambda n, s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
    graph = helper.make_graph(
        [lstm, *extra_nodes], "g", [info("x", x_shape), *(info(n, s) for n, s in state_inputs)],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
        [numpy_helper.from_array(array, n) for n, array in weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, HERE / f"{name}.onnx")
    if requests:
        record(name, requests)


def raw_files():
    full = [("Y", TensorProto.FLOAT, None), ("Y_h", TensorProto.FLOAT, None),
            ("Y_c", TensorProto.FLOAT, None)]
    requests = [{"x": floats(t, b, 3)} for b, t in SIZES]
    raw_lstm("raw", [None, None, 3], full, requests=requests)
    raw_lstm("raw_constant_state", ["T", "B", 3], full,
             state=(floats(1, 1, 4).repeat(1, 1), np.zeros((1, 1, 4), np.float32)))
    # ONNX Runtime wants the batch of a first state to be that of X.
    record("raw_constant_state", [r for r in requests if r["x"].shape[1] == 1])
    raw_lstm("raw_states", ["T", 3, 3], full, state_inputs=[("h0", [1, 3, 4]), ("c0", [1, 3, 4])],
             requests=[{"x": floats(t, 3, 3), "h0": floats(1, 3, 4), "c0": floats(1, 3, 4)}
                       for t in (1, 2, 7)])
    # Rows in another order than the axes of the output, a transpose within rows, an old softmax.
    nodes = [
        helper.make_node("Squeeze", ["Y"], ["y3"], axes=[1]),
        helper.make_node("Transpose", ["y3"], ["bth"], perm=[1, 2, 0]),
        helper.make_node("Reshape", ["Y", "two"], ["r"]),
        helper.make_node("Transpose", ["r"], ["rt"], perm=[0, 1, 3, 2]),
        helper.make_node("Softmax", ["rt"], ["s"], axis=3),
        helper.make_node("ReduceMean", ["s"], ["m"], axes=[2], keepdims=0),
        helper.make_node("Slice", ["y3", "s0", "s1", "s2"], ["second"]),
        helper.make_node("Greater", ["m", "half"], ["big"]),
    ]
    ints = lambda *xs: np.array(xs, np.int64)
    raw_lstm("layout", ["T", "B", 3],
             [("bth", TensorProto.FLOAT, ["B", 4, "T"]), ("m", TensorProto.FLOAT, None),
              ("second", TensorProto.FLOAT, None), ("big", TensorProto.BOOL, None)],
             extra_nodes=nodes, opset=11,
             extra_weights=[("two", ints(0, -1, 2, 2)), ("s0", ints(1)), ("s1", ints(2)),
                            ("s2", ints(0)), ("half", np.array(0.5, np.float32))],
             requests=[{"x": floats(t, b, 3)} for b, t in SIZES if t > 1])


def bidirectional():
    """Both directions of a layer side by side, as PyTorch exports them. Its numbers are its own: it can be made alone."""
    own = np.random.default_rng(8)
    draw = lambda *shape: own.normal(size=shape).astype(np.float32)
    weights = {"W": draw(2, 16, 5), "R": draw(2, 16, 4), "B": draw(2, 32), "side": np.array([0, 0, -1], np.int64)}
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R", "B"], ["Y"], "lstm", hidden_size=4, direction="bidirectional"),
        helper.make_node("Transpose", ["Y"], ["tbdh"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["tbdh", "side"], ["y"]),
    ]
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes, "g", [info("x", ["T", "B", 5])], [info("y", ["T", "B", 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, HERE / "bidirectional.onnx")
    record("bidirectional", [{"x": draw(t, b, 5)} for b, t in SIZES])


if __name__ == "__main__":
    torch_files()
    raw_files()
    bidirectional()
