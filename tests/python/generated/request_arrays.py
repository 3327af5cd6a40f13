"""Arrays for the inputs of a generated model, drawn from a seed."""

import zlib

import numpy as np

TYPES = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32, "BOOL": np.bool_}


def seed_of(seed, number, size, attempt):
    """What `draw_arrays` is given for the model of this seed and number."""
    return [seed, number, *size.values(), attempt]


def draw_arrays(inputs, size, seed):
    """{name: array} for the `inputs` of a description; `size` is {symbol: number}, `seed` a list.

    An input's array does not depend on which others there are.
    """
    arrays = {}
    for spec in inputs:
        random = np.random.default_rng([*seed, zlib.crc32(spec["name"].encode())])
        shape = [size[axis] if isinstance(axis, str) else axis for axis in spec["shape"]]
        kind, high = spec["kind"], spec["high"]
        if kind == "normal":
            array = random.standard_normal(shape)
        elif kind == "state":
            array = random.uniform(-1, 1, shape)
        elif kind == "ids":
            array = random.integers(0, high, shape)
        else:
            lengths = np.sort(random.integers(1, size["time"] + 1, size["batch"]))[::-1]
            lengths[0] = size["time"]
            inside = np.arange(size["time"]) < lengths[:, None]
            if kind == "padded":
                inside = inside if spec["shape"][0] == "batch" else inside.T
                array = np.where(inside, random.integers(1, high, shape), 0)
            else:
                array = lengths if kind == "lengths" else inside
        arrays[spec["name"]] = np.array(array, TYPES[spec["datatype"]], order="C")
    return arrays
