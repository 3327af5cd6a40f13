"""Writes the example's cells, with seeded random weights, into the folder `cells`. Needs `onnx`."""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN = 16
LETTERS, UNARY, BINARY = 26, 3, 4


def write(name, random, functions, arguments):
    """h = tanh(table[id] + W [arguments]): a row of `table` for each function, W [n * 16, 16]."""
    node = helper.make_node
    inputs = [helper.make_tensor_value_info("id", TensorProto.INT64, ["batch"])]
    for argument in arguments:
        info = helper.make_tensor_value_info(argument, TensorProto.FLOAT, ["batch", HIDDEN])
        inputs.append(info)
    uniform = lambda *shape: random.uniform(-0.7, 0.7, shape).astype(np.float32)
    constants = {"table": uniform(functions, HIDDEN)}
    nodes = [node("Gather", ["table", "id"], ["sum"])]
    if arguments:
        constants["W"] = uniform(len(arguments) * HIDDEN, HIDDEN)
        nodes[0].output[0] = "function"
        nodes += [
            node("Concat", arguments, ["all"], axis=1),
            node("MatMul", ["all", "W"], ["product"]),
            node("Add", ["function", "product"], ["sum"]),
        ]
    nodes.append(node("Tanh", ["sum"], ["h"]))
    output = helper.make_tensor_value_info("h", TensorProto.FLOAT, ["batch", HIDDEN])
    initializers = [numpy_helper.from_array(values, key) for key, values in constants.items()]
    graph = helper.make_graph(nodes, name, inputs, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, pathlib.Path(__file__).parent / "cells" / f"{name}.onnx")


def main():
    random = np.random.default_rng(1)
    write("symbol", random, LETTERS, [])
    write("unary", random, UNARY, ["a"])
    write("binary", random, BINARY, ["a", "b"])


if __name__ == "__main__":
    main()
