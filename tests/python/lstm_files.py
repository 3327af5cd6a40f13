"""Random LSTM models as ONNX files."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write(path, *, seed, input_size, hidden_size, layers, initial_states=False, head=0):
    """Writes a stack of forward LSTMs, time-major.

    Inputs: `x` [time, batch, input_size]; with `initial_states` also `h0` and `c0`
    [1, batch, hidden_size] of the first layer. Outputs: `y` [time, batch, hidden_size], or
    [time, batch, head] through a projection; `h_n` and `c_n` [1, batch, hidden_size] of the last
    layer.
    """
    random = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(hidden_size)
    initializers, nodes = [], []

    def constant(name, *shape):
        values = random.uniform(-scale, scale, shape).astype(np.float32)
        initializers.append(numpy_helper.from_array(values, name))
        return name

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inputs = [info("x", "time", "batch", input_size)]
    if initial_states:
        inputs += [info(name, 1, "batch", hidden_size) for name in ("h0", "c0")]
    current, width = "x", input_size
    for layer in range(layers):
        weights = [
            constant(f"w{layer}", 1, 4 * hidden_size, width),
            constant(f"r{layer}", 1, 4 * hidden_size, hidden_size),
            constant(f"b{layer}", 1, 8 * hidden_size),
        ]
        states = ["", "h0", "c0"] if initial_states and layer == 0 else []
        is_last = layer == layers - 1
        outputs = [f"y{layer}_4d", *(["h_n", "c_n"] if is_last else [])]
        nodes.append(
            helper.make_node(
                "LSTM", [current, *weights, *states], outputs, f"lstm_{layer}",
                hidden_size=hidden_size,
            )
        )
        squeezed = "y" if is_last and not head else f"y{layer}"
        nodes.append(helper.make_node("Squeeze", [outputs[0], "axis_1"], [squeezed]))
        current, width = squeezed, hidden_size
    initializers.append(numpy_helper.from_array(np.array([1], np.int64), "axis_1"))
    if head:
        nodes.append(helper.make_node("MatMul", [current, constant("p", hidden_size, head)], ["p_y"]))
        nodes.append(helper.make_node("Add", ["p_y", constant("p_b", head)], ["y"], "head"))
    outputs = [info("y", "time", "batch", head or hidden_size)]
    outputs += [info(name, 1, "batch", hidden_size) for name in ("h_n", "c_n")]
    graph = helper.make_graph(nodes, "lstm", inputs, outputs, initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
