"""Damages of model.toml and of the files that it names."""

import re

from .case import NUMBERS, WAYS, Unfit, draw, files, way
from .places import PLACES


def toml_of(case):
    path = case.folder / "model.toml"
    if not path.exists():
        raise Unfit
    return path


def toml_way(function):
    """Adds a way that changes the text of model.toml."""

    def apply(random, case):
        path = toml_of(case)
        text, description = function(random, path.read_text())
        path.write_text(text)
        return description

    WAYS[f"model.toml: {function.__name__.replace('_', ' ').strip()}"] = apply
    return function


PAIR = re.compile(r'([A-Za-z_]\w*) = ("[^"]*"|[-+\w.]+)')


def strange_values(random):
    return random.choice([
        *map(str, NUMBERS), f"{2**64}", "4294967295", "4294967296", "1e300", "-1e300", "1e-300", "nan",
        "inf", "-inf", "0.5", "true", '""', '"x"', "[]", "{}", "[[]]", '[1, "a"]', "1979-05-27",
        '"\\u0000"', '"é\\n"', '"' + "a" * 10**5 + '"', "[" * 1000 + "]" * 1000, "{ a = 1 }",
        '["x", "x"]', '"0"', '"-1"',
    ])


def changed(text, match, value):
    start, end = match.span(2)
    return text[:start] + value + text[end:]


@toml_way
def another_value_(random, text):
    match = draw(random, PAIR.finditer(text))
    value = strange_values(random)
    return changed(text, match, value), f"{match.group(1)} = {value[:40]}"


@toml_way
def another_value_of_the_file(random, text):
    """A value where another of the file's should be."""
    pairs = list(PAIR.finditer(text))
    match, other = random.choice(pairs), random.choice(pairs)
    return changed(text, match, other.group(2)), f"{match.group(1)} = {other.group(2)}"


@toml_way
def another_key(random, text):
    pairs = list(PAIR.finditer(text))
    match, key = random.choice(pairs), random.choice([
        random.choice(pairs).group(1), "unknown", '""', "a.b", '"\\u0000"', "graph", "kind"
    ])
    start, end = match.span(1)
    return text[:start] + key + text[end:], f"{match.group(1)} as {key}"


@toml_way
def a_line(random, text):
    lines = text.splitlines(keepends=True)
    at, change = random.randrange(len(lines)), random.choice(["missing", "twice", "moved", "cut"])
    line = lines[at]
    if change == "missing":
        del lines[at]
    elif change == "twice":
        lines.insert(at, line)
    elif change == "moved":
        lines.insert(random.randrange(len(lines)), lines.pop(at))
    else:
        lines[at] = line[: len(line) // 2]
    return "".join(lines), f"{change}: {line.strip()}"


@toml_way
def bytes_(random, text):
    change = random.choice(["BOM", "CRLF", "NUL", "empty", "comment", "deep", "dots", "long", "tables"])
    text = {
        "BOM": "\ufeff" + text, "CRLF": text.replace("\n", "\r\n"), "NUL": text + "\0", "empty": "",
        "comment": text + "#" * 10**6, "deep": "x = " + "[" * 10**5 + "\n" + text,
        "dots": ".".join("a" * 10**5) + " = 1\n" + text, "long": "x" * 10**6 + " = 1\n" + text,
        "tables": text + "[[cell]]\nname = 'x'\ngraph = 'x.onnx'\n" * 1000,
    }[change]
    return text, change


def number_way(key, where, values):
    """Adds a way: `key` with a number that it may not have, after the line `where` or on top."""

    def change(random, text):
        value = random.choice(values)
        text = re.sub(rf"(?m)^{key} = .*\n", "", text)
        if where is None:
            return f"{key} = {value}\n{text}", f"{value}"
        if where not in text:
            raise Unfit
        places = list(re.finditer(re.escape(where) + "\n", text))
        at = random.choice(places).end()
        return f"{text[:at]}{key} = {value}\n{text[at:]}", f"{value}"

    change.__name__ = key
    toml_way(change)


SIZES = [0, -1, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, "1e9", "nan", "'8'", "[]"]
number_way("max_length", None, SIZES)
number_way("max_batch_size", "[[cell]]", SIZES)
number_way("priority", "[[cell]]", [*SIZES, -(2**31), -(2**31) - 1])
number_way(
    "batch_axis", "[[cell]]",
    [f"{{ {name} = {axis} }}" for name in ("x", "h", "h_out", "token", "nowhere")
     for axis in (0, 1, 2, -1, 2**62, 2**63 - 1)],
)
number_way(
    "fixed", None,
    [f"{{ {name} = {value} }}" for name in ("x", "h", "token", "speaker", "nowhere")
     for value in ("1", "0.5", "[1.0, 2.0]", "[]", "[[]]", "[[1], [1, 2]]", "[1, 'a']", "nan", "'a'",
                   2**62, "[" * 60 + "1" + "]" * 60, str([0.5] * 10**5))],
)
number_way(
    "max_steps", "[unfold.decoder]",
    [f"{{ per_input = {per_input}, plus = {plus} }}"
     for per_input in ("nan", "inf", "-inf", "-1.0", "1e300", "0.0", "1e9")
     for plus in (0, 1, 2**32 - 1, 2**32, -1)],
)
number_way(
    "start", "[unfold.decoder]",
    [f"{{ {name} = {value} }}" for name in ("token", "h", "nowhere")
     for value in (0, -1, 12, 2**31, 2**62, -(2**63), 1.5)],
)
number_way(
    "stop", "[unfold.decoder]",
    [f'{{ output = "{name}", value = {value} }}' for name in ("token_out", "h_out", "scores", "no")
     for value in (0, -1, 12, 2**31, 2**62, -(2**63))],
)
number_way(
    "init", "[unfold.decoder]",
    ["{}", '{ h = "encoder.c_out", c = "encoder.c_out" }', '{ h = "encoder.nowhere" }',
     '{ h = "decoder.h_out" }', '{ token = "encoder.h_out" }', '{ h = "" }', '{ nowhere = "." }'],
)
number_way(
    "children", "[unfold.internal]",
    ["[]", "[{}]", "[{}, {}]", '[ { h_l = "h" } ]', '[ { h_l = "h", c_l = "c" } ]',
     '[ { h_l = "c", c_l = "h" }, { h_r = "h", c_r = "c" } ]',
     '[ { h_l = "h", c_l = "c" }, { h_l = "h", c_l = "c" } ]', '[ { nowhere = "h" } ]',
     str([{}] * 10**4).replace("'", '"')],
)


def graph_place_way(where, make):
    """Adds a way: a file that model.toml names is at a place."""

    def apply(random, case):
        path = toml_of(case)
        text = path.read_text()
        match = draw(random, [
            match for match in PAIR.finditer(text) if match.group(1) in ("graph", "vocabulary")
        ])
        found = make(case, case.folder / match.group(2)[1:-1])
        name = found.name.replace("\0", "\\u0000")
        path.write_text(changed(text, match, f'"{name}"'))
        case.must_refuse = found.is_outside
        return match.group(0)

    WAYS[f"a file of model.toml: {where}"] = apply


for where, make in PLACES.items():
    graph_place_way(where, make)


def model_place_way(where):
    """Adds a way: the model's own file is something else."""

    def apply(random, case):
        path = toml_of(case) if case.base == "langid" or random.random() < 0.5 else case.model
        if not path.is_file():
            raise Unfit
        found = PLACES[where](case, path)
        # A link that the user names is the user's own; a folder without a model.toml may hold models.
        case.must_refuse = found.is_outside and path == case.model and "link out" not in where
        return path.name

    WAYS[f"the model itself: {where}"] = apply


for where in (
    "a relative link out of the folder", "a link to /dev/zero", "a link to itself", "a folder",
    "a fifo", "a socket", "a file without an end", "a file of 3 GiB",
):
    model_place_way(where)


@way
def a_file_of_text(random, case):
    """A vocabulary or labels."""
    path = draw(random, files(case, (".txt",)))
    lines = path.read_text().splitlines(keepends=True)
    change = random.choice(["empty", "latin-1", "escape", "twice", "long", "short", "many", "CRLF", "BOM"])
    text = "".join(lines)
    text = {
        "empty": "", "latin-1": "é\n", "escape": text + "\\x\n", "twice": text + text,
        "long": text + "x" * 10**7 + "\n", "short": "".join(lines[:2]), "many": text + "\n" * 10**6,
        "CRLF": text.replace("\n", "\r\n"), "BOM": "\ufeff" + text,
    }[change]
    path.write_bytes(text.encode("latin-1" if change == "latin-1" else "utf-8"))
    return f"{path.name}: {change}"


@way
def text_tables(random, case):
    path = toml_of(case)
    text = path.read_text()
    if "[inputs.text]" not in text:
        raise Unfit
    old, new = random.choice([
        ("unknown = 0", "unknown = 4294967295"), ("unknown = 0", "unknown = 9223372036854775807"),
        ("unknown = 0", "unknown = -1"), ("top = 3", "top = 0"), ("top = 3", "top = 9223372036854775807"),
        ("top = 3", "top = -1"), ("top = 3", 'join = ""'), ("top = 3", 'join = "-"\ntop = 2'),
        ('unit = "char"', 'unit = "word"'), ('unit = "char"', 'unit = "byte"'),
        ('tensor = "token"', 'tensor = "nowhere"'), ('tensor = "language_id"', 'tensor = "token"'),
        ('tensor = "language_id"', 'tensor = "probabilities"'),
        ("[outputs.language]", "[outputs.language_id]"), ("[outputs.language]", '[outputs.""]'),
        ('name = "langid"', 'name = ""'), ('name = "langid"', 'name = "../x"'),
        ('name = "langid"', 'name = "a/b\\u0000"'), ('version = "1"', 'version = ""'),
        ("labels.txt", "vocab.txt"), ("vocab.txt", "labels.txt"), ("vocab.txt", "model.onnx"),
    ])
    path.write_text(text.replace(old, new))
    return f"{old} to {new}"
