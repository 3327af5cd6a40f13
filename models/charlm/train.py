"""Trains `charlm`, a character-level language model of technical English, and exports it to ONNX.

The training text is the project's own prose at one commit: the paragraphs of its Markdown files and
of the doc comments of its crates, without code, tables and headings. A tenth of the paragraphs,
chosen by a hash, is held out of training and of the vocabulary; it serves for the final figure only.

The network reads a character and gives the logits of the next one. A session begins with a state of
zeros wherever its prompt begins in a sentence, so every training window begins with zeros, at a
random place of the text.

Everything runs on one CPU core; one seed gives one model on one machine and torch version.

Needs: python >= 3.9, numpy, torch, onnx, onnxruntime, and the git repository.
Writes: model.onnx, vocab.txt.
"""

import argparse
import collections
import hashlib
import io
import math
import pathlib
import random
import re
import subprocess
import tarfile
import time

import numpy as np
import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent

COMMIT = "e63de52003a1fa9091929fd0ee8e7e74727337d7"  # whose text the committed model has learnt
SOURCES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "crates", "docs"]

PARAGRAPH_CHARS_MIN = 20
HELD_OUT_ONE_IN = 10
UNKNOWN_CHAR = "\ufffd"  # id 0: stands for every character that is not in the vocabulary
RARE_COUNT = 20  # characters that the training text holds less often are unknown


# ---------------------------------------------------------------------------------------------
# The text
# ---------------------------------------------------------------------------------------------


def read_sources(commit):
    """The text of the Markdown files and of the blocks of doc comments of a commit, in order."""
    archive = subprocess.run(
        ["git", "archive", commit, *SOURCES], cwd=HERE.parents[1], check=True, capture_output=True
    ).stdout
    texts = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            if not member.name.endswith((".md", ".rs")):
                continue
            text = files.extractfile(member).read().decode()
            texts += [text] if member.name.endswith(".md") else doc_comments(text)
    return texts


def doc_comments(source):
    """The blocks of consecutive `//!` or `///` lines of a Rust file, without these marks."""
    blocks = re.findall(r"(?:^[ \t]*//[/!](?!/).*\n)+", source, re.M)
    return [re.sub(r"^[ \t]*//[/!] ?", "", block, flags=re.M) for block in blocks]


def paragraphs_of(text):
    """The paragraphs and list items of Markdown, one line each; no code, table or heading."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    text = re.sub(r"^ *[|#].*$", "", text, flags=re.M)
    text = re.sub(r"\n *(?:[-*]|\d+\.) +", "\n\n", "\n" + text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text)  # links become their text,
    text = re.sub(r"\[(`[^`\]]*`)\]", r"\1", text)  # links to items of the code too
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    return [p for p in paragraphs if len(p) >= PARAGRAPH_CHARS_MIN]


def is_held_out(paragraph):
    digest = hashlib.sha256(paragraph.encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def build_vocabulary(paragraphs):
    """The frequent characters of the training text and the line break; entry 0 is the unknown."""
    counts = collections.Counter(char for paragraph in paragraphs for char in paragraph)
    known = {char for char, count in counts.items() if count >= RARE_COUNT}
    return [UNKNOWN_CHAR] + sorted(known | {"\n"})


def encode(vocabulary, text):
    """The ids of a text's characters, `[chars]`."""
    ids = {char: id for id, char in enumerate(vocabulary)}
    return torch.tensor([ids.get(char, 0) for char in text])


# ---------------------------------------------------------------------------------------------
# The network
# ---------------------------------------------------------------------------------------------


class LanguageModel(nn.Module):
    """token [batch, time] -> logits of the next character [batch, time, vocabulary]."""

    def __init__(self, vocabulary_size, embedding_size, hidden_size):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, embedding_size)
        self.lstm = nn.LSTM(embedding_size, hidden_size, batch_first=True)
        self.linear = nn.Linear(hidden_size, vocabulary_size)

    def forward(self, token):
        states, _ = self.lstm(self.embedding(token))
        return self.linear(states)


def train(network, stream, config):
    """Trains on random windows of `stream`, `[chars]`."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=0.01)
    started, losses = time.time(), []
    for step in range(config.steps):
        warm = min(1.0, (step + 1) / config.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * step / config.steps))
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * warm * (0.02 + 0.98 * cosine)
        first = torch.randint(len(stream) - config.window, (config.batch_size, 1))
        window = stream[first + torch.arange(config.window + 1)]
        logits = network(window[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item() / math.log(2))
        if (step + 1) % config.report_steps == 0:
            bits, minutes = sum(losses) / len(losses), (time.time() - started) / 60
            losses.clear()
            print(
                f"step {step + 1}/{config.steps}  {bits:.3f} bits per character  {minutes:.1f} min",
                flush=True,
            )


def bits_per_character(network, vocabulary, paragraphs):
    """The mean loss over paragraphs, each with its line break, from a line break on."""
    bits = chars = 0
    with torch.no_grad():
        for paragraph in paragraphs:
            ids = encode(vocabulary, f"\n{paragraph}\n")
            loss = nn.functional.cross_entropy(network(ids[None, :-1])[0], ids[1:], reduction="sum")
            bits, chars = bits + loss.item() / math.log(2), chars + len(ids) - 1
    return bits / chars


# ---------------------------------------------------------------------------------------------
# Export
# ---------------------------------------------------------------------------------------------


def export_onnx(network, path):
    """Writes token [batch, time] -> logits [batch, time, vocabulary].

    The ONNX LSTM orders its gates i, o, f, c; torch orders them i, f, c, o. Its optional initial
    states are left out, which means zeros.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    lstm = network.lstm

    def reorder(tensor):
        i, f, c, o = tensor.detach().numpy().reshape(4, lstm.hidden_size, -1)
        return np.concatenate([i, o, f, c])[None]

    bias = reorder(lstm.bias_ih_l0 + lstm.bias_hh_l0)[..., 0]
    constants = {
        "embedding": network.embedding.weight.detach().numpy(),
        "lstm_W": reorder(lstm.weight_ih_l0),
        "lstm_R": reorder(lstm.weight_hh_l0),
        "lstm_B": np.concatenate([bias, np.zeros_like(bias)], 1),
        "direction_axis": np.array([1], dtype=np.int64),
        "linear_weight": network.linear.weight.detach().numpy().T,
        "linear_bias": network.linear.bias.detach().numpy(),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["embedding", "token"], ["embedded"], "embed", axis=0),
        node("Transpose", ["embedded"], ["steps"], "time_major", perm=[1, 0, 2]),
        node(
            "LSTM", ["steps", "lstm_W", "lstm_R", "lstm_B"], ["directions"], "lstm",
            hidden_size=lstm.hidden_size,
        ),
        node("Squeeze", ["directions", "direction_axis"], ["states"], "drop_direction"),
        node("Transpose", ["states"], ["hidden"], "batch_major", perm=[1, 0, 2]),
        node("MatMul", ["hidden", "linear_weight"], ["scores"], "project"),
        node("Add", ["scores", "linear_bias"], ["logits"], "add_bias"),
    ]
    info = helper.make_tensor_value_info
    shape = ["batch", "time", network.linear.out_features]
    graph = helper.make_graph(
        nodes,
        "charlm",
        [info("token", TensorProto.INT64, shape[:2])],
        [info("logits", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ascontiguousarray(v), name) for name, v in constants.items()],
    )
    model = helper.make_model(
        graph, producer_name="charlm", opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))


def check_export(network, path, vocabulary, paragraphs):
    """Largest difference between the exported file's logits and the network's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    difference_max = 0.0
    for paragraph in paragraphs:
        token = encode(vocabulary, paragraph)[None].repeat(2, 1)
        with torch.no_grad():
            expected = network(token).numpy()
        [logits] = session.run(["logits"], {"token": token.numpy()})
        difference_max = max(difference_max, float(np.abs(logits - expected).max()))
    assert difference_max < 1e-3, f"the exported model differs from the network: {difference_max}"
    return difference_max


def write_entries(path, entries):
    """One entry a line; `\\n`, `\\s` (space) and `\\\\` are escapes."""
    escapes = {"\\": "\\\\", "\n": "\\n", " ": "\\s"}
    lines = [escapes.get(entry, entry) for entry in entries]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


# ---------------------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--commit", default=COMMIT, help="the commit whose text is read")
    parser.add_argument("--text", type=pathlib.Path, metavar="FILE",
                        help="read this file of paragraphs, one a line, instead of the commit's text")
    parser.add_argument("--output", type=pathlib.Path, default=HERE, help="folder to write to")
    parser.add_argument("--seed", type=int, default=1997, help="seed of the weights and the windows")
    parser.add_argument("--steps", type=int, default=3000, help="optimizer steps")
    parser.add_argument("--batch-size", type=int, default=16, help="windows in a batch")
    parser.add_argument("--window", type=int, default=128, help="characters in a window")
    parser.add_argument("--embedding-size", type=int, default=24)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=6e-3, help="peak, after the warm-up")
    parser.add_argument("--warmup-steps", type=int, default=50)
    parser.add_argument("--report-steps", type=int, default=250, help="steps between progress lines")
    parser.add_argument(
        "--held-out", type=pathlib.Path, metavar="FILE",
        help="train nothing: write the held-out paragraphs, one a line, for evaluate.py",
    )
    return parser.parse_args()


def main():
    config = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    if config.text:
        paragraphs = config.text.read_text(encoding="utf-8").splitlines()
    else:
        paragraphs = [p for text in read_sources(config.commit) for p in paragraphs_of(text)]
    paragraphs = list(dict.fromkeys(paragraphs))
    held_out = [p for p in paragraphs if is_held_out(p)]
    if config.held_out:
        config.held_out.write_text("".join(f"{p}\n" for p in held_out), encoding="utf-8")
        return

    trained = [p for p in paragraphs if not is_held_out(p)]
    random.Random(config.seed).shuffle(trained)
    vocabulary = build_vocabulary(trained)
    stream = encode(vocabulary, "\n" + "\n".join(trained) + "\n")
    network = LanguageModel(len(vocabulary), config.embedding_size, config.hidden_size)
    parameters = sum(p.numel() for p in network.parameters())
    print(
        f"{len(trained)} paragraphs of {len(stream)} characters to learn, {len(held_out)} held out; "
        f"{len(vocabulary)} vocabulary entries, {parameters} parameters"
    )
    train(network, stream, config)

    config.output.mkdir(parents=True, exist_ok=True)
    write_entries(config.output / "vocab.txt", vocabulary)
    export_onnx(network, config.output / "model.onnx")
    difference = check_export(network, config.output / "model.onnx", vocabulary, held_out[:20])
    print(f"exported; largest difference to onnxruntime {difference:.1e}")
    bits = bits_per_character(network, vocabulary, held_out)
    print(f"{len(held_out)} held-out paragraphs: {bits:.3f} bits per character")


if __name__ == "__main__":
    main()
