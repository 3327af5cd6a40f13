"""Inputs of requests, drawn from what an ONNX file declares and what the catalogue says of it."""

import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "generated"))

from request_arrays import TYPES, draw_arrays  # noqa: E402

REQUESTS = 6
DATATYPES = {
    TensorProto.FLOAT: "FP32", TensorProto.INT64: "INT64", TensorProto.INT32: "INT32", TensorProto.BOOL: "BOOL",
}


class Input(NamedTuple):
    """What a file declares; an axis is its length, or its name where it is open."""

    name: str
    datatype: str
    shape: list


def inputs_of(model):
    """The inputs that are no initializers."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [
        Input(info.name, DATATYPES[info.type.tensor_type.elem_type], [
            axis.dim_value if axis.dim_value > 0
            else axis.dim_param if axis.dim_param not in ("", "?") else f"{info.name}[{number}]"
            for number, axis in enumerate(info.type.tensor_type.shape.dim)
        ])
        for info in model.graph.input if info.name not in constants
    ]


def batch_axes(entry, inputs):
    """{input: axis of the batch} where every input with axes has just one; otherwise none."""
    axes = {
        of.name: [n for n, axis in enumerate(of.shape) if isinstance(axis, str) and axis not in entry.lengths]
        for of in inputs if of.shape
    }
    return {name: of[0] for name, of in axes.items()} if all(len(of) == 1 for of in axes.values()) else {}


def draw(entry, inputs, seed, number, **fixed):
    """{name: array} of a request; `fixed` may give `lengths` and `batch` of its own."""
    lengths = {axis: values[number % len(values)] for axis, values in entry.lengths.items()}
    lengths |= fixed.get("lengths", {})
    batch = fixed.get("batch", entry.batch[number % len(entry.batch)])
    arrays = {}
    for name, datatype, declared in inputs:
        shape = [axis if isinstance(axis, int) else lengths.get(axis, batch) for axis in declared]
        kind, *options = entry.inputs.get(name, "mask" if datatype == "BOOL" else "normal").split()
        numbers = [int(option) for option in options]
        if kind in ("normal", "state", "ids"):
            high = (numbers or [0])[0]
            spec = {"name": name, "shape": shape, "datatype": datatype, "kind": kind, "high": high}
            arrays |= draw_arrays([spec], {}, [seed, number])
        else:
            random = np.random.default_rng([seed, number, zlib.crc32(name.encode())])
            array = KINDS[kind](random, shape, number, numbers)
            arrays[name] = np.array(np.broadcast_to(array, shape), TYPES[datatype], order="C")
    return arrays


def image(random, shape, number, numbers):
    """0 to 1 (or another greatest value): a slope of light and noise on it."""
    light = np.linspace(0.2, 0.8, shape[-1])
    return np.clip(light + random.normal(0, 0.2, shape), 0, 1) * (numbers or [1])[0]


def sound(random, shape, number, numbers):
    """-1 to 1 (or another greatest value): a tone and noise."""
    longest = max(shape)
    wave = 0.4 * np.sin(np.arange(longest) * random.uniform(0.05, 0.5)) + random.normal(0, 0.1, longest)
    wave = wave.reshape([longest if axis == longest else 1 for axis in shape])
    return np.clip(wave + random.normal(0, 0.05, shape), -1, 1) * (numbers or [1])[0]


def inside(random, shape):
    """Which places of a padded sequence are no padding: the first ones, at least half of them."""
    return np.arange(shape[-1]) < random.integers((shape[-1] + 1) // 2, shape[-1] + 1)


KINDS = {
    "image": image,
    "sound": sound,
    "mask": lambda random, shape, number, numbers: inside(random, shape),
    "padding": lambda random, shape, number, numbers: ~inside(random, shape),
    "values": lambda random, shape, number, numbers: numbers[number % len(numbers)],
}
