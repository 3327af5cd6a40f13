"""What an architecture is: how its module is made, its inputs, outputs and the sizes of its requests."""

import dataclasses
import pathlib
import re
import sys
import typing
import zlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / folder) for folder in ("generated", "real_models", ".")]

from request_arrays import draw_arrays, seed_of  # noqa: E402

KINDS = {  # of inputs: kind as in `generated/draw_models.py`, datatype, and what is done to the array
    "floats": ("normal", "FP32", ""), "states": ("state", "FP32", ""), "ids": ("ids", "INT64", ""),
    "sorted_lengths": ("lengths", "INT64", ""), "lengths": ("lengths", "INT64", "shuffled"),
    "mask": ("mask", "INT64", "shuffled"), "padding": ("mask", "BOOL", "inverted"),
}


def sizes(**lengths):
    """Batches of 1, 2, 1, 3, and the lengths of each other axis."""
    return [dict(zip(["batch", *lengths], row)) for row in zip([1, 2, 1, 3], *lengths.values())]


def shape_of(words):
    return [int(word) if word.isdigit() else word for word in words]


@dataclasses.dataclass
class Architecture:
    """`inputs` are "name kind shape, ...", the kind one of `KINDS`, of `ids` with a bound (ids<40), of
    `lengths` and `mask`, which are along "time", perhaps with the shortest length (mask>=100); `outputs`
    are "name shape, ..."."""

    name: str
    make: typing.Callable  # the module, with random weights
    inputs: str
    outputs: str
    sizes: list  # {symbol: number} each; the second is traced
    scripted: bool = False  # torch.jit.script, for the older exporter
    make_dynamo: typing.Callable = None  # the same written for torch.export
    quantise: str = ""  # "dynamic" or "static", after the export

    def __post_init__(self):
        self.inputs = [self._input(*text.split()) for text in self.inputs.split(", ")]
        self.outputs = {name: shape_of(shape) for name, *shape in map(str.split, self.outputs.split(", "))}

    def _input(self, name, kind, *shape):
        kind, _, bound = re.fullmatch(r"(\w+)(<|>=)?(\d*)", kind).groups()
        kind, datatype, change = KINDS[kind]
        bound = int(bound or 0)
        spec = {"name": name, "datatype": datatype, "shape": shape_of(shape), "kind": kind, "change": change}
        return {**spec, "high": bound, "least": 0 if kind == "ids" else bound}


def draw_request(description, size, attempt):
    """{name: array}; a function of the architecture's name, the size and the attempt."""
    number = zlib.crc32(description["architecture"].encode())
    seed = seed_of(1, number, size, attempt)
    arrays = draw_arrays(description["inputs"], size, seed)
    for spec in description["inputs"]:
        array = arrays[spec["name"]]
        if spec["kind"] == "lengths":
            array = np.maximum(array, spec["least"])
        if spec["kind"] == "mask":
            array[:, : spec["least"]] = 1
        if spec["change"] == "shuffled":
            array = np.random.default_rng(seed).permutation(array)
        arrays[spec["name"]] = ~array if spec["change"] == "inverted" else array
    return arrays
