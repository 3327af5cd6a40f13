"""Writes an LSTM encoder and decoder with random weights as a model directory.

The server serves the directory as it stands; the padded peer reads its weights from it. The decoder
is fed the arg-max of its own scores over the vocabulary (BatchMaker, EuroSys 2018, sections 7.1
and 7.4).
"""

import argparse
import os
import sys

import numpy as np
from onnx import TensorProto

from make_lstm import positive
from make_tree_lstm import Graph, info

START, STOP = 1, 2

MODEL_TOML = f"""\
[[cell]]
name = "encoder"
graph = "encoder.onnx"
[[cell]]
name = "decoder"
graph = "decoder.onnx"

[unfold]
kind = "encoder_decoder"
[unfold.encoder]
cell = "encoder"
sequence = ["source"]
state = {{ h = "h_out", c = "c_out" }}
[unfold.decoder]
cell = "decoder"
feed = {{ token = "token_out" }}
start = {{ token = {START} }}
stop = {{ output = "token_out", value = {STOP} }}
state = {{ h = "h_out", c = "c_out" }}
init = {{ h = "encoder.h_out", c = "encoder.c_out" }}
max_steps = {{ per_input = 2.0, plus = 50 }}
[unfold.outputs]
token = {{ from = "decoder.token_out", every_step = true }}
"""


def weights(hidden, input_size, vocabulary, seed):
    """Draws all weights: for both cells `table` [vocabulary, input], `w` [1, 4 * hidden, input],
    `r` [1, 4 * hidden, hidden], `b` [1, 8 * hidden] in ONNX's order of gates; of the decoder also
    `head` [hidden, vocabulary] and `bias` [vocabulary].
    """
    random = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(hidden)
    uniform = lambda scale, *shape: random.uniform(-scale, scale, shape).astype(np.float32)

    def lstm():
        return {
            "table": uniform(1.0, vocabulary, input_size),
            "w": uniform(1.0 / np.sqrt(input_size), 1, 4 * hidden, input_size),
            "r": uniform(scale, 1, 4 * hidden, hidden),
            "b": uniform(scale, 1, 8 * hidden),
        }

    head = {"head": uniform(scale, hidden, vocabulary), "bias": uniform(scale, vocabulary)}
    return {"encoder": lstm(), "decoder": lstm() | head}


def write_cell(path, token, drawn, hidden):
    """One step: `token` [batch], `h`, `c` [batch, hidden] to `h_out`, `c_out`, and `token_out`."""
    graph = Graph()
    constants = {name: graph.constant(name, values) for name, values in drawn.items()}
    step = graph.constant("step", np.array([0]))
    graph.add("Gather", [constants["table"], token], "embedded")
    for name in ("embedded", "h", "c"):
        graph.add("Unsqueeze", [name, step], f"{name}_1")
    inputs = ["embedded_1", constants["w"], constants["r"], constants["b"], "", "h_1", "c_1"]
    graph.add("LSTM", inputs, ["", "h_2", "c_2"], hidden_size=hidden)
    for name in ("h", "c"):
        graph.add("Squeeze", [f"{name}_2", step], f"{name}_out")
    outputs = [info("h_out", hidden), info("c_out", hidden)]
    if "head" in drawn:
        graph.add("MatMul", ["h_out", constants["head"]], "product")
        graph.add("Add", ["product", constants["bias"]], "scores")
        graph.add("ArgMax", ["scores"], "token_out", axis=1, keepdims=0)
        outputs.append(info("token_out", of=TensorProto.INT64))
    of_token = info(token, of=TensorProto.INT64)
    graph.save(path, [of_token, info("h", hidden), info("c", hidden)], outputs)


def write(folder, hidden, input_size, vocabulary, seed):
    """Writes the directory; returns the weights (see `weights`)."""
    drawn = weights(hidden, input_size, vocabulary, seed)
    os.makedirs(folder, exist_ok=True)
    write_cell(os.path.join(folder, "encoder.onnx"), "source", drawn["encoder"], hidden)
    write_cell(os.path.join(folder, "decoder.onnx"), "token", drawn["decoder"], hidden)
    with open(os.path.join(folder, "model.toml"), "w", encoding="utf-8") as file:
        file.write(MODEL_TOML)
    return drawn


def main():
    parser = argparse.ArgumentParser(
        description="Write an LSTM encoder and decoder with seeded random weights.",
        epilog="example: python make_encoder_decoder.py --hidden 1024 --out target/peers/pairs-1024",
    )
    option = parser.add_argument
    option("--hidden", type=positive, required=True, help="width of h and c")
    option("--input", type=positive, help="width of an embedding (default: --hidden)")
    option("--vocabulary", type=positive, default=30000, help="words (default: 30000)")
    option("--seed", type=int, default=1, help="seed of the weights (default: 1)")
    option("--out", required=True, metavar="FOLDER", help="the directory to write")
    args = parser.parse_args()
    try:
        write(args.out, args.hidden, args.input or args.hidden, args.vocabulary, args.seed)
    except (OSError, ValueError) as error:
        sys.exit(f"make_encoder_decoder: {error}")


if __name__ == "__main__":
    main()
