"""The models that are attacked: those that come with the project, and a few that are easy to abuse."""

import pathlib
import shutil

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
SEED = 77
FEATURES, WIDTH, STATE, HIDDEN = 4, 4096, 262_144, 512


def save(path, nodes, inputs, outputs, constants=()):
    import onnx  # Here, since the processes that attack need only the lengths above.
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node(*node, **attributes) for *node, attributes in nodes]
    tensor = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes, "graph", [tensor(*of) for of in inputs], [tensor(*of) for of in outputs],
        [numpy_helper.from_array(values, name) for name, values in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def attention(path):
    """Every step looks at every step: the square of the steps in memory."""
    nodes = [
        ("Transpose", ["x"], ["keys"], {"perm": [0, 2, 1]}),
        ("MatMul", ["x", "keys"], ["scores"], {}),
        ("Softmax", ["scores"], ["weights"], {"axis": -1}),
        ("MatMul", ["weights", "x"], ["y"], {}),
    ]
    save(path, nodes, [("x", "batch", "time", FEATURES)], [("y", "batch", "time", FEATURES)])


def wide(path):
    """A number of the request becomes 4,096 of the reply."""
    weights = np.random.default_rng(SEED).standard_normal((1, WIDTH)).astype(np.float32)
    nodes = [("MatMul", ["x", "w"], ["y"], {})]
    save(path, nodes, [("x", "batch", "time", 1)], [("y", "batch", "time", WIDTH)], [("w", weights)])


def recurrent(path, hidden=HIDDEN):
    """An LSTM of 512 units, or of `hidden`, which occupies a core for a while."""
    random = np.random.default_rng(SEED)
    drawn = lambda *shape: random.uniform(-0.04, 0.04, shape).astype(np.float32)
    nodes = [("LSTM", ["x", "w", "r"], ["", "h"], {"hidden_size": hidden})]
    constants = [("w", drawn(1, 4 * hidden, FEATURES)), ("r", drawn(1, 4 * hidden, hidden))]
    save(path, nodes, [("x", "time", "batch", FEATURES)], [("h", 1, "batch", hidden)], constants)


HOARD = """\
[[cell]]
name = "hoard"
graph = "hoard.onnx"
[unfold]
kind = "chain"
cell = "hoard"
sequence = ["x"]
state = { h = "h_next" }
[unfold.outputs]
y = { from = "y" }
"""


def hoard(folder):
    """A cell without weights whose state is 1 MiB."""
    folder.mkdir()
    nodes = [
        ("Add", ["h", "x"], ["h_next"], {}),
        ("ReduceMax", ["h_next"], ["y"], {"axes": [1], "keepdims": 1}),
    ]
    inputs = [("x", "batch", 1), ("h", "batch", STATE)]
    save(folder / "hoard.onnx", nodes, inputs, [("h_next", "batch", STATE), ("y", "batch", 1)])
    (folder / "model.toml").write_text(HOARD)


def write(folder):
    """Writes the models into `folder` and returns the arguments that serve all of them."""
    folder = pathlib.Path(folder)
    shutil.copy(ROOT / "models/langid/model.onnx", folder / "tokens.onnx")
    shutil.copy(ROOT / "models/charlm/model.onnx", folder / "next.onnx")
    attention(folder / "attention.onnx")
    wide(folder / "wide.onnx")
    recurrent(folder / "recurrent.onnx")
    hoard(folder / "hoard")
    own = ["tokens.onnx", "next.onnx", "attention.onnx", "wide.onnx", "recurrent.onnx", "hoard"]
    shipped = ["langid", "g2p", "charlm"]
    return [str(ROOT / "models" / name) for name in shipped] + [str(folder / name) for name in own]
