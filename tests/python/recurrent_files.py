"""Random models of LSTMs, GRUs and RNNs as ONNX files."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def write(
    path, *, seed, input_size, hidden_size, layers, initial_states=False, head=0, operator="LSTM",
    peepholes=False, **attributes,
):
    """Writes a stack of a forward recurrent operator with these attributes, time-major.

    Inputs: `x` [time, batch, input_size]; with `initial_states` also `h0` and, of LSTMs, `c0`
    [1, batch, hidden_size] of the first layer. Outputs: `y` [time, batch, hidden_size], or
    [time, batch, head] through a projection; `h_n` and, of LSTMs, `c_n` [1, batch, hidden_size] of
    the last layer.
    """
    gates, states = GATES[operator], ["h", "c"] if operator == "LSTM" else ["h"]
    random = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(hidden_size)
    initializers, nodes = [], []

    def constant(name, *shape):
        values = random.uniform(-scale, scale, shape).astype(np.float32)
        initializers.append(numpy_helper.from_array(values, name))
        return name

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    firsts, lasts = [f"{state}0" for state in states], [f"{state}_n" for state in states]
    inputs = [info("x", "time", "batch", input_size)]
    if initial_states:
        inputs += [info(name, 1, "batch", hidden_size) for name in firsts]
    current, width = "x", input_size
    for layer in range(layers):
        weights = [
            constant(f"w{layer}", 1, gates * hidden_size, width),
            constant(f"r{layer}", 1, gates * hidden_size, hidden_size),
            constant(f"b{layer}", 1, 2 * gates * hidden_size),
        ]
        optional = ["", *(firsts if initial_states and layer == 0 else [])]
        if peepholes:
            optional += [""] * (3 - len(optional)) + [constant(f"p{layer}", 1, 3 * hidden_size)]
        is_last = layer == layers - 1
        outputs = [f"y{layer}_4d", *(lasts if is_last else [])]
        nodes.append(
            helper.make_node(
                operator, [current, *weights, *optional], outputs, f"layer_{layer}",
                hidden_size=hidden_size, **attributes,
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
    outputs += [info(name, 1, "batch", hidden_size) for name in lasts]
    graph = helper.make_graph(nodes, "recurrent", inputs, outputs, initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path
