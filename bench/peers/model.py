"""The weights of an LSTM, read from an ONNX file, and its definition in plain numpy."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper


class ModelError(Exception):
    """The file is not one plain forward LSTM."""


@dataclass(frozen=True)
class Weights:
    """One forward LSTM as the ONNX operator holds it, float32, gates in the order i, o, f, c."""

    w: np.ndarray  # [1, 4*hidden, input]
    r: np.ndarray  # [1, 4*hidden, hidden]
    b: np.ndarray  # [1, 8*hidden]: the biases of the input, then those of the hidden state

    @property
    def input_size(self):
        return self.w.shape[2]

    @property
    def hidden_size(self):
        return self.r.shape[2]


def load(path):
    """Reads a file of `make_lstm.py`. Raises `ModelError` where the graph holds anything else."""
    try:
        graph = onnx.load(path).graph
    except Exception as error:  # protobuf's own error for what is no ONNX file, OSError, ...
        raise ModelError(f"cannot read {path}: {error}") from error
    if [node.op_type for node in graph.node] != ["LSTM"]:
        raise ModelError(f"{path}: expected a graph of exactly one LSTM operator")
    node = graph.node[0]
    if {attribute.name for attribute in node.attribute} != {"hidden_size"} or len(node.input) != 4:
        raise ModelError(f"{path}: expected a forward LSTM with inputs x, w, r, b and no options")
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    missing = [name for name in node.input[1:] if name not in tensors]
    if missing:
        raise ModelError(f"{path}: {', '.join(missing)} must be initializers")
    weights = [tensors[name] for name in node.input[1:]]
    if any(tensor.dtype != np.float32 for tensor in weights):
        raise ModelError(f"{path}: the weights must be float32")
    return Weights(*weights)


def reference(weights, x):
    """The last hidden state [hidden] of one sequence x [time, input], in float64."""
    w, r, b = (a[0].astype(np.float64) for a in (weights.w, weights.r, weights.b))
    bias = b[: len(b) // 2] + b[len(b) // 2 :]
    h = c = np.zeros(weights.hidden_size)
    for row in x.astype(np.float64):
        i, o, f, g = np.split(w @ row + r @ h + bias, 4)
        i, o, f = (1.0 / (1.0 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
    return h
