"""Writes one forward LSTM with random weights as an ONNX file.

The server serves the file as it stands; the peers read their weights from it.
"""

import argparse
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def build(hidden, input_size, seed):
    """Returns an ONNX model of one LSTM in float32.

    Input: `x` [time, batch, input]. Output: `h_n` [1, batch, hidden], the last hidden state.
    Weights, uniform in (-1/sqrt(hidden), 1/sqrt(hidden)), gates in the order i, o, f, c:
    `w` [1, 4*hidden, input], `r` [1, 4*hidden, hidden], `b` [1, 8*hidden].
    """
    random = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(hidden)

    def constant(name, *shape):
        values = random.uniform(-scale, scale, shape).astype(np.float32)
        return numpy_helper.from_array(values, name)

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "h_n"], "lstm", hidden_size=hidden)],
        "lstm",
        [info("x", "time", "batch", input_size)],
        [info("h_n", 1, "batch", hidden)],
        [
            constant("w", 1, 4 * hidden, input_size),
            constant("r", 1, 4 * hidden, hidden),
            constant("b", 1, 8 * hidden),
        ],
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
        description="Write one forward LSTM with seeded random weights as an ONNX file.",
        epilog="example: python make_lstm.py --hidden 256 --seed 1 --out lstm256.onnx",
    )
    parser.add_argument("--hidden", type=positive, required=True, help="width of the hidden state")
    parser.add_argument("--input", type=positive, help="width of an input row (default: --hidden)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    parser.add_argument("--out", required=True, metavar="FILE.onnx", help="the file to write")
    args = parser.parse_args()
    try:
        onnx.save(build(args.hidden, args.input or args.hidden, args.seed), args.out)
    except (OSError, ValueError) as error:
        sys.exit(f"make_lstm: {error}")


if __name__ == "__main__":
    main()
