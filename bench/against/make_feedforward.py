"""Writes models without recurrence as ONNX files, with seeded random weights: a transformer's encoder and
a residual CNN. Both are as exporters write them: activations in primitive operators, heads by Reshape
and Transpose.
"""

import argparse
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY = 1000
POSITIONS = 512


class Graph:
    """Nodes and constants of one ONNX graph, drawn from a seed."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants = [], []

    def constant(self, values):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weights(self, *shape, fan_in):
        """Uniform, such that the sums of a layer keep the variance of its inputs."""
        bound = np.sqrt(3.0 / fan_in)
        return self.constant(self.random.uniform(-bound, bound, shape).astype(np.float32))

    def near(self, value, *shape):
        """Numbers about `value`, such as the scales of a normalisation."""
        return self.constant((value + self.random.uniform(-0.1, 0.1, shape)).astype(np.float32))

    def op(self, operator, *inputs, **attributes):
        """Adds a node; gives the name of its output."""
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def save(self, path, inputs, outputs):
        """Writes the file; `outputs` is {name: value}, as each value is called in the file."""
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "feedforward", inputs, infos, self.constants)
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def linear(graph, x, inputs, outputs):
    product = graph.op("MatMul", x, graph.weights(inputs, outputs, fan_in=inputs))
    return graph.op("Add", product, graph.near(0.0, outputs))


def gelu(graph, x):
    scaled = graph.op("Div", x, graph.constant(np.float32(np.sqrt(2.0))))
    risen = graph.op("Add", graph.op("Erf", scaled), graph.constant(np.float32(1.0)))
    return graph.op("Mul", graph.op("Mul", x, risen), graph.constant(np.float32(0.5)))


def normalised(graph, x, width):
    return graph.op("LayerNormalization", x, graph.near(1.0, width), graph.near(0.0, width), axis=-1)


def attention(graph, x, width, heads):
    """Every token looks at all tokens of its sequence."""
    apart = graph.constant(np.array([0, 0, heads, width // heads]))
    together = graph.constant(np.array([0, 0, width]))

    def by_head(order):
        rows = graph.op("Reshape", linear(graph, x, width, width), apart)
        return graph.op("Transpose", rows, perm=order)

    query, keys, values = by_head([0, 2, 1, 3]), by_head([0, 2, 3, 1]), by_head([0, 2, 1, 3])
    scale = graph.constant(np.float32(1.0 / np.sqrt(width // heads)))
    scores = graph.op("Mul", graph.op("MatMul", query, keys), scale)
    seen = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), values)
    rows = graph.op("Reshape", graph.op("Transpose", seen, perm=[0, 2, 1, 3]), together)
    return linear(graph, rows, width, width)


def transformer(path, layers, width, heads, seed=1):
    """Input: `token` [batch, time] int64. Outputs: `y` [batch, time, width], `mean` [batch, width]."""
    graph = Graph(seed)
    x = graph.op("Gather", graph.weights(VOCABULARY, width, fan_in=1), "token")
    # The first rows of the table of positions, one a token.
    zero, one = graph.constant(np.array([0])), graph.constant(np.array([1]))
    time = graph.op("Gather", graph.op("Shape", "token"), one, axis=0)
    positions = graph.weights(POSITIONS, width, fan_in=1)
    x = graph.op("Add", x, graph.op("Slice", positions, zero, time, zero))
    for _ in range(layers):
        x = normalised(graph, graph.op("Add", x, attention(graph, x, width, heads)), width)
        inner = gelu(graph, linear(graph, x, width, 4 * width))
        x = normalised(graph, graph.op("Add", x, linear(graph, inner, 4 * width, width)), width)
    mean = graph.op("ReduceMean", x, axes=[1], keepdims=0)
    token = helper.make_tensor_value_info("token", TensorProto.INT64, ["batch", "time"])
    graph.save(path, [token], {"y": x, "mean": mean})


def convolution(graph, x, inputs, outputs, size, stride=1):
    """With its normalisation folded into it, as exporters do."""
    weights = graph.weights(outputs, inputs, size, size, fan_in=inputs * size * size)
    return graph.op(
        "Conv", x, weights, graph.near(0.0, outputs), kernel_shape=[size, size],
        strides=[stride, stride], pads=[size // 2] * 4,
    )


def block(graph, x, inputs, outputs, stride):
    """Two convolutions beside a shortcut."""
    inner = graph.op("Relu", convolution(graph, x, inputs, outputs, 3, stride))
    inner = convolution(graph, inner, outputs, outputs, 3)
    if inputs != outputs:
        x = convolution(graph, x, inputs, outputs, 1, stride)
    return graph.op("Relu", graph.op("Add", inner, x))


def cnn(path, width, pixels, classes=1000, seed=1):
    """The layers of ResNet-18, `width` channels after the first (64 there).

    Input: `image` [batch, 3, pixels, pixels]. Output: `scores` [batch, classes].
    """
    graph = Graph(seed)
    x = graph.op("Relu", convolution(graph, "image", 3, width, 7, 2))
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = width
    for stage in range(4):
        outputs = width << stage
        x = block(graph, x, inputs, outputs, 1 if stage == 0 else 2)
        x = block(graph, x, outputs, outputs, 1)
        inputs = outputs
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x))
    scores = graph.op(
        "Gemm", x, graph.weights(classes, inputs, fan_in=inputs), graph.near(0.0, classes), transB=1
    )
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, pixels, pixels])
    graph.save(path, [image], {"scores": scores})


def main():
    parser = argparse.ArgumentParser(
        description="Write a model without recurrence, with seeded random weights.",
        epilog="example: python make_feedforward.py cnn --width 64 --pixels 112 --out cnn.onnx",
    )
    option = parser.add_argument
    option("kind", choices=["transformer", "cnn"])
    option("--width", type=int, help="of a token (256), or channels after the first layer (64)")
    option("--layers", type=int, default=6, help="of the transformer (default: 6)")
    option("--heads", type=int, default=4, help="of the transformer (default: 4)")
    option("--pixels", type=int, default=112, help="of the CNN's images, a side (default: 112)")
    option("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    option("--out", required=True, metavar="FILE.onnx", help="the file to write")
    args = parser.parse_args()
    try:
        if args.kind == "cnn":
            cnn(args.out, args.width or 64, args.pixels, seed=args.seed)
        else:
            transformer(args.out, args.layers, args.width or 256, args.heads, args.seed)
    except (OSError, ValueError) as error:
        sys.exit(f"make_feedforward: {error}")


if __name__ == "__main__":
    main()
