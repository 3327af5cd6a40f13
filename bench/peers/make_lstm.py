"""Writes LSTMs with random weights as an ONNX file: one or several layers, forward or both ways.

The server serves the file as it stands; the peers read their weights from it.
"""

import argparse
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def weight_names(layers):
    """The names of each layer's weights: `w`, `r`, `b`, numbered where there are several layers."""
    suffixes = [""] if layers == 1 else [f"_{layer}" for layer in range(layers)]
    return [[f"{name}{suffix}" for name in ("w", "r", "b")] for suffix in suffixes]


def nodes(hidden, layers, bidirectional):
    """The operators, in order, as PyTorch exports them: an LSTM a layer, and between two of them
    what makes rows [time, batch, directions*hidden] of `Y` [time, directions, batch, hidden].
    """
    options = {"direction": "bidirectional"} if bidirectional else {}
    found, rows = [], "x"
    for layer, weights in enumerate(weight_names(layers)):
        last = layer == layers - 1
        name = "lstm" if layers == 1 else f"lstm_{layer}"
        y = f"y_{layer}"
        outputs = ["", "h_n"] if last else [y]
        found.append(
            helper.make_node("LSTM", [rows, *weights], outputs, name, hidden_size=hidden, **options)
        )
        if last:
            return found
        rows, shape = f"rows_{layer}", f"shape_{layer}"
        if bidirectional:
            turned = f"turned_{layer}"
            found += [
                helper.make_node("Transpose", [y], [turned], turned, perm=[0, 2, 1, 3]),
                helper.make_node("Constant", [], [shape], shape, value_ints=[0, 0, -1]),
                helper.make_node("Reshape", [turned, shape], [rows], rows),
            ]
        else:
            axes = f"axes_{layer}"
            found += [
                helper.make_node("Constant", [], [axes], axes, value_ints=[1]),
                helper.make_node("Squeeze", [y, axes], [rows], rows),
            ]


def build(hidden, input_size, seed, layers=1, bidirectional=False):
    """Returns an ONNX model of LSTMs in float32, one above the other.

    Input: `x` [time, batch, input]. Output: `h_n` [directions, batch, hidden], the last hidden
    states of the last layer. Weights of a layer, uniform in (-1/sqrt(hidden), 1/sqrt(hidden)), gates
    in the order i, o, f, c: `w` [directions, 4*hidden, width], `r` [directions, 4*hidden, hidden],
    `b` [directions, 8*hidden]; the width is that of the input, above the first layer
    directions*hidden.
    """
    random = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(hidden)
    directions = 2 if bidirectional else 1

    def constant(name, *shape):
        values = random.uniform(-scale, scale, shape).astype(np.float32)
        return numpy_helper.from_array(values, name)

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    constants, width = [], input_size
    for w, r, b in weight_names(layers):
        constants += [
            constant(w, directions, 4 * hidden, width),
            constant(r, directions, 4 * hidden, hidden),
            constant(b, directions, 8 * hidden),
        ]
        width = directions * hidden
    graph = helper.make_graph(
        nodes(hidden, layers, bidirectional),
        "lstm",
        [info("x", "time", "batch", input_size)],
        [info("h_n", directions, "batch", hidden)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def main():
    parser = argparse.ArgumentParser(
        description="Write an LSTM with seeded random weights as an ONNX file.",
        epilog="example: python make_lstm.py --hidden 256 --seed 1 --out lstm256.onnx",
    )
    option = parser.add_argument
    option("--hidden", type=positive, required=True, help="width of a hidden state")
    option("--input", type=positive, help="width of an input row (default: --hidden)")
    option("--layers", type=positive, default=1, help="LSTMs, one above the other (default: 1)")
    option("--bidirectional", action="store_true", help="every layer reads both ways")
    option("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    option("--out", required=True, metavar="FILE.onnx", help="the file to write")
    args = parser.parse_args()
    try:
        width = args.input or args.hidden
        model = build(args.hidden, width, args.seed, args.layers, args.bidirectional)
        onnx.save(model, args.out)
    except (OSError, ValueError) as error:
        sys.exit(f"make_lstm: {error}")


if __name__ == "__main__":
    main()
