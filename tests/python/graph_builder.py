"""Builds ONNX files of nodes one after the other, with random weights."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, HIDDEN = 6, 8


class Graph:
    """Nodes after each other; the last value is the output."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants = [], []
        self.last = "x"

    def constant(self, values, kind=np.float32):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def weights(self, *shape):
        return self.constant(self.random.uniform(-0.5, 0.5, shape))

    def op(self, operator, *inputs, outputs=1, **attributes):
        """Adds a node that reads the last value and `inputs`; gives (and makes last) its output."""
        names = [f"v{len(self.nodes)}_{port}" for port in range(outputs)]
        self.nodes.append(
            helper.make_node(operator, [self.last, *inputs], names, f"n{len(self.nodes)}", **attributes)
        )
        self.last = names[0]
        return names if outputs > 1 else names[0]

    def lstm(self, width, direction="forward"):
        """[batch, time, width] to [batch, time, directions * HIDDEN]."""
        count = 2 if direction == "bidirectional" else 1
        self.op("Transpose", perm=[1, 0, 2])
        weights = [self.weights(count, 4 * HIDDEN, width), self.weights(count, 4 * HIDDEN, HIDDEN)]
        self.op("LSTM", *weights, hidden_size=HIDDEN, direction=direction)
        self.op("Transpose", perm=[2, 0, 1, 3])
        return self.op("Reshape", self.constant([0, 0, -1], np.int64))

    def save(self, path, shape=("batch", "time", FEATURES), kind=TensorProto.FLOAT, opset=17):
        element = TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes, "graph", [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info(self.last, element, None)], self.constants,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
        )
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
