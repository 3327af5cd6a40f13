"""The weights of an LSTM, read from an ONNX file, and its definition in plain numpy."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

import make_lstm


class ModelError(Exception):
    """The file is not one of those the peers run."""


@dataclass(frozen=True)
class Layer:
    """One layer as the ONNX operator holds it, float32, gates in the order i, o, f, c; of two
    directions the second is the reverse one.
    """

    w: np.ndarray  # [directions, 4*hidden, width]
    r: np.ndarray  # [directions, 4*hidden, hidden]
    b: np.ndarray  # [directions, 8*hidden]: the biases of the input, then those of the hidden state


@dataclass(frozen=True)
class Weights:
    """LSTMs, one above the other. A layer reads the states of all directions of the one below."""

    layers: list

    @property
    def input_size(self):
        return self.layers[0].w.shape[2]

    @property
    def hidden_size(self):
        return self.layers[0].r.shape[2]

    @property
    def directions(self):
        return len(self.layers[0].w)


def load(path):
    """Reads a file of `make_lstm.py`. Raises `ModelError` where the graph holds anything else."""
    try:
        graph = onnx.load(path).graph
    except Exception as error:  # protobuf's own error for what is no ONNX file, OSError, ...
        raise ModelError(f"cannot read {path}: {error}") from error
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    names = make_lstm.weight_names(sum(node.op_type == "LSTM" for node in graph.node))
    if not names or any(name not in tensors for of_layer in names for name in of_layer):
        raise ModelError(f"{path}: expected a file of make_lstm.py, with all weights")
    weights = Weights([Layer(*(tensors[name] for name in of_layer)) for of_layer in names])
    expected = make_lstm.nodes(weights.hidden_size, len(names), weights.directions == 2)
    if list(graph.node) != expected:
        raise ModelError(f"{path}: expected the operators of make_lstm.py and no others")
    if any(tensor.dtype != np.float32 for tensor in tensors.values()):
        raise ModelError(f"{path}: the weights must be float32")
    return weights


def states(layer, direction, rows):
    """The hidden states [time, hidden] of one direction over rows [time, width] in float64, in the
    order in which it computes them.
    """
    w, r, b = (a[direction].astype(np.float64) for a in (layer.w, layer.r, layer.b))
    bias = b[: len(b) // 2] + b[len(b) // 2 :]
    h = c = np.zeros(r.shape[1])
    found = []
    for row in rows if direction == 0 else rows[::-1]:
        i, o, f, g = np.split(w @ row + r @ h + bias, 4)
        i, o, f = (1.0 / (1.0 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        found.append(h)
    return np.array(found)


def reference(weights, x):
    """The last hidden states of the last layer [directions*hidden] of one sequence x [time, input],
    in float64. The reverse direction's last is that at the first row.
    """
    rows = x.astype(np.float64)
    for layer in weights.layers:
        found = [states(layer, direction, rows) for direction in range(weights.directions)]
        rows = np.concatenate([found[0], *(reverse[::-1] for reverse in found[1:])], axis=1)
    return np.concatenate([of_direction[-1] for of_direction in found])
