"""Writes the six networks of DVABatch's evaluation (Table 1 of the paper) as ONNX files, with seeded random weights:
ResNet-152, VGG19, BERT base and large, U-Net and LinkNet, in the shapes of the papers that define them.

Normalisations are folded into convolutions, as exporters do. `--thin` divides widths, for tests.
"""

import argparse
import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "against"))

from make_feedforward import Graph, attention, convolution, gelu, linear, normalised

WORDS, POSITIONS, CLASSES = 30_522, 512, 1000


def relu(graph, x):
    return graph.op("Relu", x)


def head(graph, x, inputs, outputs):
    weights = graph.weights(outputs, inputs, fan_in=inputs)
    return graph.op("Gemm", x, weights, graph.near(0.0, outputs), transB=1)


def pooled(graph, x, size, stride, pad):
    return graph.op("MaxPool", x, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4)


def upwards(graph, x, inputs, outputs, size, pad=0):
    """A transposed convolution that doubles height and width."""
    weights = graph.weights(inputs, outputs, size, size, fan_in=inputs * size * size // 4)
    return graph.op(
        "ConvTranspose", x, weights, graph.near(0.0, outputs), kernel_shape=[size] * 2, strides=[2, 2],
        pads=[pad] * 4, output_padding=[2 * pad + 2 - size] * 2,
    )


def bottleneck(graph, x, inputs, width, stride):
    """Three convolutions beside a shortcut, to `4 * width` channels (He et al. 2016, figure 5)."""
    inner = relu(graph, convolution(graph, x, inputs, width, 1))
    inner = relu(graph, convolution(graph, inner, width, width, 3, stride))
    inner = convolution(graph, inner, width, 4 * width, 1)
    if inputs != 4 * width or stride != 1:
        x = convolution(graph, x, inputs, 4 * width, 1, stride)
    return relu(graph, graph.op("Add", inner, x))


def basic_block(graph, x, inputs, outputs, stride):
    """Two convolutions beside a shortcut."""
    inner = relu(graph, convolution(graph, x, inputs, outputs, 3, stride))
    inner = convolution(graph, inner, outputs, outputs, 3)
    if inputs != outputs or stride != 1:
        x = convolution(graph, x, inputs, outputs, 1, stride)
    return relu(graph, graph.op("Add", inner, x))


def resnet152(graph, width):
    """`image` [batch, 3, 224, 224] to `scores` [batch, 1000] (He et al. 2016, table 1)."""
    x = relu(graph, convolution(graph, "image", 3, width, 7, 2))
    x, inputs = pooled(graph, x, 3, 2, 1), width
    for stage, blocks in enumerate([3, 8, 36, 3]):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            x = bottleneck(graph, x, inputs, width << stage, stride)
            inputs = 4 * (width << stage)
    return {"scores": head(graph, graph.op("Flatten", graph.op("GlobalAveragePool", x)), inputs, CLASSES)}


def vgg19(graph, width, pixels):
    """`image` [batch, 3, 224, 224] to `scores` [batch, 1000] (Simonyan and Zisserman 2015, table 1, column E)."""
    x, inputs = "image", 3
    for stage, count in enumerate([2, 2, 4, 4, 4]):
        outputs = width * min(1 << stage, 8)
        for _ in range(count):
            x, inputs = relu(graph, convolution(graph, x, inputs, outputs, 3)), outputs
        x = pooled(graph, x, 2, 2, 0)
    x, inputs = graph.op("Flatten", x), inputs * (pixels // 32) ** 2
    for _ in range(2):
        x, inputs = relu(graph, head(graph, x, inputs, 64 * width)), 64 * width
    return {"scores": head(graph, x, inputs, CLASSES)}


def unet(graph, width):
    """`image` [batch, 3, 256, 256] to `mask` [batch, 1, 256, 256] (Ronneberger et al. 2015, figure 1; convolutions keep
    the size of their images)."""
    def twice(x, inputs, outputs):
        x = relu(graph, convolution(graph, x, inputs, outputs, 3))
        return relu(graph, convolution(graph, x, outputs, outputs, 3))

    x, inputs, skipped = "image", 3, []
    for level in range(4):
        x, inputs = twice(x, inputs, width << level), width << level
        skipped.append((x, inputs))
        x = pooled(graph, x, 2, 2, 0)
    x, inputs = twice(x, inputs, width << 4), width << 4
    for beside, outputs in reversed(skipped):
        x = graph.op("Concat", beside, upwards(graph, x, inputs, outputs, 2), axis=1)
        x, inputs = twice(x, 2 * outputs, outputs), outputs
    return {"mask": graph.op("Sigmoid", convolution(graph, x, inputs, 1, 1))}


def linknet(graph, width, classes=20):
    """`image` [batch, 3, 256, 256] to `scores` [batch, 20, 256, 256] (Chaurasia and Culurciello 2017, figures 1 and 2)."""
    x = relu(graph, convolution(graph, "image", 3, width, 7, 2))
    x, inputs, encoded = pooled(graph, x, 3, 2, 1), width, [width]
    skipped = []
    for level in range(4):
        outputs = width << level
        x = basic_block(graph, x, inputs, outputs, 2 if level > 0 else 1)
        x, inputs = basic_block(graph, x, outputs, outputs, 1), outputs
        skipped.append(x)
        encoded.append(outputs)
    for level in reversed(range(4)):
        inner, outputs = max(inputs // 4, 1), encoded[level]
        x = relu(graph, convolution(graph, x, inputs, inner, 1))
        if level > 0:
            x = relu(graph, upwards(graph, x, inner, inner, 3, pad=1))
        else:
            x = relu(graph, convolution(graph, x, inner, inner, 3))
        x, inputs = relu(graph, convolution(graph, x, inner, outputs, 1)), outputs
        if level > 0:
            x = graph.op("Add", x, skipped[level - 1])
    half = max(width // 2, 1)
    x = relu(graph, upwards(graph, x, inputs, half, 3, pad=1))
    x = relu(graph, convolution(graph, x, half, half, 3))
    return {"scores": upwards(graph, x, half, classes, 2)}


def bert(graph, layers, width, heads):
    """`input_ids` [batch, time] to `y` [batch, time, width] and `pooled` [batch, width] (Devlin et al. 2019, section 3).
    No padding: sequences come as long as they are."""
    zero, one = graph.constant(np.array([0])), graph.constant(np.array([1]))
    time = graph.op("Gather", graph.op("Shape", "input_ids"), one, axis=0)
    words = graph.op("Gather", graph.weights(WORDS, width, fan_in=width), "input_ids")
    places = graph.op("Slice", graph.weights(POSITIONS, width, fan_in=width), zero, time, zero)
    x = normalised(graph, graph.op("Add", words, places), width)
    for _ in range(layers):
        x = normalised(graph, graph.op("Add", x, attention(graph, x, width, heads)), width)
        inner = gelu(graph, linear(graph, x, width, 4 * width))
        x = normalised(graph, graph.op("Add", x, linear(graph, inner, 4 * width, width)), width)
    first = graph.op("Gather", x, graph.constant(np.array(0)), axis=1)
    return {"y": x, "pooled": graph.op("Tanh", linear(graph, first, width, width))}


NETWORKS = {
    "resnet152": lambda graph, thin, pixels: resnet152(graph, 64 // thin),
    "vgg19": lambda graph, thin, pixels: vgg19(graph, 64 // thin, pixels),
    "unet": lambda graph, thin, pixels: unet(graph, 64 // thin),
    "linknet": lambda graph, thin, pixels: linknet(graph, 64 // thin),
    "bert-base": lambda graph, thin, pixels: bert(graph, 12, 768 // thin, 12),
    "bert-large": lambda graph, thin, pixels: bert(graph, 24, 1024 // thin, 16),
}


def write(name, path, thin=1, pixels=None, seed=1):
    """Writes a network to a file. `pixels`: a side of its images."""
    graph, pixels = Graph(seed), pixels or (224 if name in ("resnet152", "vgg19") else 256)
    outputs = NETWORKS[name](graph, thin, pixels)
    if name.startswith("bert"):
        taken = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "time"])
    else:
        taken = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, pixels, pixels])
    graph.save(path, [taken], outputs)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", maxsplit=1)[0],
        epilog="example: python make_networks.py unet --pixels 128 --out unet.onnx",
    )
    option = parser.add_argument
    option("network", choices=list(NETWORKS))
    option("--pixels", type=int, help="a side of images, a multiple of 32 (default: 224, or 256 for masks)")
    option("--thin", type=int, default=1, help="what widths are divided by (default: 1)")
    option("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    option("--out", required=True, metavar="FILE.onnx", help="the file to write")
    args = parser.parse_args()
    try:
        write(args.network, args.out, args.thin, args.pixels, args.seed)
    except (OSError, ValueError) as error:
        sys.exit(f"make_networks: {error}")


if __name__ == "__main__":
    main()
