"""Writes a binary TreeLSTM with random weights as a model directory.

The server serves the directory as it stands; the tree peers read their weights from it. The cells
are those of Tai, Socher and Manning (2015), the N-ary form with N = 2, in primitive operators:

    leaf:    i, o = sigmoid(W x + b)    u = tanh(W x + b)    c = i u
    inner:   i, o, f_l, f_r = sigmoid(U [h_l, h_r] + b)    u = tanh(U [h_l, h_r] + b)
             c = i u + f_l c_l + f_r c_r
    both:    h = o tanh(c)
"""

import argparse
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from make_lstm import positive

LEAF_GATES = ("i", "o", "u")
INNER_GATES = ("i", "o", "f_l", "f_r", "u")

MODEL_TOML = """\
[[cell]]
name = "leaf"
graph = "leaf.onnx"
[[cell]]
name = "internal"
graph = "internal.onnx"

[unfold]
kind = "tree"
[unfold.leaf]
cell = "leaf"
sequence = ["token"]
[unfold.internal]
cell = "internal"
children = [ { h_l = "h", c_l = "c" }, { h_r = "h", c_r = "c" } ]
[unfold.outputs]
root = { from = "h" }
"""

ALL_NODES = """\
nodes = { from = "h", every_step = true }
cells = { from = "c", every_step = true }
"""


class Graph:
    """Nodes and constants of one ONNX graph."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, values):
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def add(self, operator, inputs, output, **attributes):
        outputs = [output] if isinstance(output, str) else output
        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return output

    def save(self, path, inputs, outputs):
        graph = helper.make_graph(self.nodes, "cell", inputs, outputs, self.constants)
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def info(name, *shape, of=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, of, ["batch", *shape])


def weights(hidden, input_size, vocabulary, seed):
    """Draws all weights: `embedding` [vocabulary, input], `w` [input, 3 * hidden], `w_b`
    [3 * hidden], `u` [2 * hidden, 5 * hidden] (rows of the left child first), `u_b` [5 * hidden].
    """
    random = np.random.default_rng(seed)
    uniform = lambda scale, *shape: random.uniform(-scale, scale, shape).astype(np.float32)
    scale = 1.0 / np.sqrt(hidden)
    return {
        "embedding": uniform(1.0, vocabulary, input_size),
        "w": uniform(1.0 / np.sqrt(input_size), input_size, 3 * hidden),
        "w_b": uniform(scale, 3 * hidden),
        "u": uniform(scale, 2 * hidden, 5 * hidden),
        "u_b": uniform(scale, 5 * hidden),
    }


def gates_of_one_product(graph, x, w, b, names):
    """All gates as columns of one product, split after the activations of all but the last."""
    hidden = w.shape[1] // len(names)
    graph.add("MatMul", [x, graph.constant("weights", w)], "products")
    graph.add("Add", ["products", graph.constant("biases", b)], "sums")
    sizes = np.array([hidden * (len(names) - 1), hidden], np.int64)
    graph.add("Split", ["sums", graph.constant("parts", sizes)], ["to_sigmoid", "to_tanh"], axis=1)
    graph.add("Sigmoid", ["to_sigmoid"], "gates")
    each = np.full(len(names) - 1, hidden, np.int64)
    names_ = list(names[:-1])
    graph.add("Split", ["gates", graph.constant("each", each)], names_, axis=1)
    graph.add("Tanh", ["to_tanh"], names[-1])


def gates_apart(graph, inputs, w, b, names):
    """Every gate by itself: `Gemm` of the first input, and the sum with that of the second."""
    hidden = w.shape[1] // len(names)
    parts = np.split(w, len(inputs))
    for number, name in enumerate(names):
        columns = slice(number * hidden, (number + 1) * hidden)
        bias = graph.constant(f"b_{name}", b[columns])
        first = np.ascontiguousarray(parts[0][:, columns].T)
        first = graph.constant(f"w0_{name}", first)
        sums = graph.add("Gemm", [inputs[0], first, bias], f"sum0_{name}", transB=1)
        for place, (part, input_) in enumerate(zip(parts[1:], inputs[1:]), 1):
            of = graph.constant(f"w{place}_{name}", np.ascontiguousarray(part[:, columns]))
            product = graph.add("MatMul", [input_, of], f"product{place}_{name}")
            sums = graph.add("Add", [product, sums], f"sum{place}_{name}")
        graph.add("Tanh" if name == "u" else "Sigmoid", [sums], name)


def write_leaf(path, drawn, hidden, apart):
    graph = Graph()
    embedding = graph.constant("embedding", drawn["embedding"])
    graph.add("Gather", [embedding, "token"], "x")
    if apart:
        gates_apart(graph, ["x"], drawn["w"], drawn["w_b"], LEAF_GATES)
    else:
        gates_of_one_product(graph, "x", drawn["w"], drawn["w_b"], LEAF_GATES)
    graph.add("Mul", ["i", "u"], "c")
    graph.add("Tanh", ["c"], "tanh_c")
    graph.add("Mul", ["o", "tanh_c"], "h")
    outputs = [info("h", hidden), info("c", hidden)]
    graph.save(path, [info("token", of=TensorProto.INT64)], outputs)


def write_inner(path, drawn, hidden, apart):
    graph = Graph()
    if apart:
        gates_apart(graph, ["h_l", "h_r"], drawn["u"], drawn["u_b"], INNER_GATES)
    else:
        graph.add("Concat", ["h_l", "h_r"], "children", axis=1)
        gates_of_one_product(graph, "children", drawn["u"], drawn["u_b"], INNER_GATES)
    graph.add("Mul", ["i", "u"], "written")
    graph.add("Mul", ["f_l", "c_l"], "left")
    graph.add("Mul", ["c_r", "f_r"], "right")
    graph.add("Add", ["left", "right"], "kept")
    graph.add("Add", ["written", "kept"], "c")
    graph.add("Tanh", ["c"], "tanh_c")
    graph.add("Mul", ["tanh_c", "o"], "h")
    inputs = [info(name, hidden) for name in ("h_l", "c_l", "h_r", "c_r")]
    graph.save(path, inputs, [info("h", hidden), info("c", hidden)])


def write(folder, hidden, input_size, vocabulary, seed, *, apart=False, all_nodes=False):
    """Writes the directory; returns the weights (see `weights`)."""
    drawn = weights(hidden, input_size, vocabulary, seed)
    os.makedirs(folder, exist_ok=True)
    write_leaf(os.path.join(folder, "leaf.onnx"), drawn, hidden, apart)
    write_inner(os.path.join(folder, "internal.onnx"), drawn, hidden, apart)
    with open(os.path.join(folder, "model.toml"), "w", encoding="utf-8") as file:
        file.write(MODEL_TOML + (ALL_NODES if all_nodes else ""))
    return drawn


def main():
    parser = argparse.ArgumentParser(
        description="Write a binary TreeLSTM with seeded random weights as a model directory.",
        epilog="example: python make_tree_lstm.py --hidden 1024 --out target/peers/tree-1024",
    )
    option = parser.add_argument
    option("--hidden", type=positive, required=True, help="width of h and c")
    option("--input", type=positive, help="width of an embedding (default: --hidden)")
    option("--vocabulary", type=positive, default=5000, help="number of words (default: 5000)")
    option("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    option("--apart", action="store_true", help="write every gate as a product of its own")
    option("--all-nodes", action="store_true", help="reply with h and c of all nodes as well")
    option("--out", required=True, metavar="FOLDER", help="the directory to write")
    args = parser.parse_args()
    try:
        write(
            args.out, args.hidden, args.input or args.hidden, args.vocabulary, args.seed,
            apart=args.apart, all_nodes=args.all_nodes,
        )
    except (OSError, ValueError) as error:
        sys.exit(f"make_tree_lstm: {error}")


if __name__ == "__main__":
    main()
