"""Writes small models of every kind that is served, with seeded random weights, into one folder: what
`cargo xtask against bits BASE` compares replies of.

A model's name begins with its group, up to the first `-`. Most are those of the tests in tests/python.
"""

import argparse
import pathlib
import sys

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "bench" / "peers")]

import cell_files  # noqa: E402  (found by the line above, as all that follow)
import make_encoder_decoder  # noqa: E402
import make_lstm  # noqa: E402
import make_tree_lstm  # noqa: E402
import recurrent_files  # noqa: E402
import test_loops  # noqa: E402
import test_recurrent_operators  # noqa: E402
import test_whole_files  # noqa: E402
from make_feedforward import cnn, transformer  # noqa: E402

SEED = 20270

# Single layers and stacks of forward operators, with a head where it says so: arguments of
# `recurrent_files.write`.
STACKS = {
    "lstm": dict(input_size=24, hidden_size=64, layers=1),
    "lstm_odd": dict(input_size=13, hidden_size=37, layers=1),
    "lstm_256": dict(input_size=96, hidden_size=256, layers=1, initial_states=True),
    "lstm_two": dict(input_size=20, hidden_size=48, layers=2, initial_states=True),
    "lstm_head": dict(input_size=20, hidden_size=64, layers=2, head=11),
    "lstm_peepholes": dict(input_size=20, hidden_size=40, layers=2, peepholes=True, initial_states=True),
    "gru_before": dict(operator="GRU", input_size=24, hidden_size=64, layers=2),
    "gru_after": dict(operator="GRU", input_size=24, hidden_size=64, layers=2, linear_before_reset=1),
    "gru_before_256": dict(operator="GRU", input_size=64, hidden_size=256, layers=1, initial_states=True),
    "gru_after_256": dict(
        operator="GRU", input_size=64, hidden_size=256, layers=1, initial_states=True,
        linear_before_reset=1,
    ),
    "gru_head": dict(operator="GRU", input_size=17, hidden_size=33, layers=1, head=6),
    "rnn": dict(operator="RNN", input_size=24, hidden_size=64, layers=2, initial_states=True),
    "rnn_relu": dict(operator="RNN", input_size=24, hidden_size=50, layers=1, activations=["Relu"]),
}

# Operators of every attribute, drawn at random.
OPERATORS = 40

# Layers that read both ways, and stacks, as PyTorch exports them: hidden, input, layers, both ways.
LAYERS = {
    "two": (64, 32, 2, False), "three": (40, 24, 3, False),
    "both_ways": (48, 24, 1, True), "both_ways_two": (64, 32, 2, True),
}

SEQUENCES_OF_IDS = 211


def stacks(folder):
    for name, sizes in STACKS.items():
        recurrent_files.write(folder / f"recurrent-{name}.onnx", seed=SEED, **sizes)
    for name, (hidden, width, layers, both) in LAYERS.items():
        onnx.save(make_lstm.build(hidden, width, SEED, layers, both), folder / f"stacks-{name}.onnx")


def operators(folder):
    random = np.random.default_rng(SEED)
    for index in range(OPERATORS):
        operator = test_recurrent_operators.Operator(random)
        path = folder / f"operators-{index:02}.onnx"
        path.write_bytes(operator.model(operator.layout).SerializeToString())


def trees(folder):
    for name, hidden, width, apart in [
        ("lstm", 64, 48, False), ("lstm_apart", 33, 20, True), ("lstm_150", 150, 150, False),
    ]:
        make_tree_lstm.write(
            str(folder / f"trees-{name}"), hidden, width, SEQUENCES_OF_IDS, SEED, apart=apart,
            all_nodes=True,
        )
    cell_files.ternary_tree(folder / "trees-ternary", 6, SEED)


def cells(folder):
    for direction in ("forward", "reverse"):
        cell_files.chain(folder / f"chains-{direction}", direction, SEED)
    for name, operator, attributes in [
        ("lstm", "LSTM", {}), ("gru_before", "GRU", {}),
        ("gru_after", "GRU", {"linear_before_reset": 1}), ("rnn", "RNN", {}),
    ]:
        cell_files.recurrent_chain(folder / f"chains-{name}", 31, 20, SEED, operator, **attributes)
    cell_files.stacked_state(folder / "chains-stacked_state", 24, SEED)
    cell_files.greedy_chain(folder / "chains-greedy", 7, 7, SEED)
    cell_files.translator(folder / "decoders-scored", 60, 24, SEED + 1)
    cell_files.translator(folder / "decoders-arg_max", 60, 24, SEED + 1, scored=False)
    make_encoder_decoder.write(str(folder / "decoders-pairs"), 64, 48, SEQUENCES_OF_IDS, SEED)


def loops(folder):
    for name, case in test_loops.CASES.items():
        onnx.save(test_loops.parse(*case), folder / f"loops-{name}.onnx")


def wholes(folder):
    for case in test_whole_files.CASES:
        graph = test_whole_files.Graph(SEED)
        case(graph)
        opset = 23 if case is test_whole_files.composed else 17
        graph.save(folder / f"wholes-{case.__name__}.onnx", opset=opset)


def feedforward(folder):
    transformer(folder / "feedforward-transformer.onnx", layers=2, width=32, heads=4, seed=SEED)
    cnn(folder / "feedforward-cnn.onnx", width=8, pixels=40, classes=10, seed=SEED)


def main():
    parser = argparse.ArgumentParser(
        description="Write small models of every kind, with seeded random weights.",
        epilog="example: python make_models.py --out target/against/models",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="an empty folder, or a new one")
    args = parser.parse_args()
    folder = pathlib.Path(args.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for write in (stacks, operators, trees, cells, loops, wholes, feedforward):
            write(folder)
    except (OSError, ValueError) as error:
        sys.exit(f"make_models: {error}")


if __name__ == "__main__":
    main()
