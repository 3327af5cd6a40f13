"""Damages of the bytes of files, whatever they mean."""

import onnx

from .case import draw, files, onnx_file, way


def weights(path):
    """The ranges of a file's bytes that are weights."""
    data = path.read_bytes()
    if path.suffix == ".bin":
        return [(0, len(data))]
    ranges = []
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        start = data.find(tensor.raw_data) if len(tensor.raw_data) > 32 else -1
        if start >= 0:
            ranges.append((start, start + len(tensor.raw_data)))
    return ranges


def flip(random, path, positions):
    """Flips a bit of each of up to 64 bytes."""
    data = bytearray(path.read_bytes())
    count = min(random.choice([1, 1, 1, 2, 4, 16, 64]), len(positions))
    for position in random.sample(positions, count):
        data[position] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return f"{count} bits flipped in {path.name}"


@way
def bits_flipped(random, case):
    path = draw(random, files(case))
    return flip(random, path, range(path.stat().st_size))


@way
def bits_of_the_structure_flipped(random, case):
    path = onnx_file(random, case)
    inside = set()
    for start, end in weights(path):
        inside.update(range(start, end))
    return flip(random, path, [at for at in range(path.stat().st_size) if at not in inside])


@way
def bits_of_the_weights_flipped(random, case):
    path = draw(random, files(case, (".onnx", ".bin")))
    start, end = draw(random, weights(path))
    return flip(random, path, range(start, end))


@way
def bytes_overwritten(random, case):
    path = onnx_file(random, case)
    data = bytearray(path.read_bytes())
    for _ in range(random.choice([1, 2, 8])):
        # The first bytes hold more of the structure than those of the weights.
        data[int(len(data) * random.random() ** 3)] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
    path.write_bytes(data)
    return path.name


@way
def truncated(random, case):
    path = draw(random, files(case))
    data = path.read_bytes()
    length = random.choice([0, 1, len(data) - 1, random.randrange(len(data))])
    path.write_bytes(data[:length])
    return f"{path.name} to {length} of {len(data)} bytes"


@way
def extended(random, case):
    path = draw(random, files(case))
    count = random.choice([1, 16, 4096])
    with open(path, "ab") as file:
        file.write(random.choice([random.randbytes(count), bytes(count), b"\xff" * count]))
    return f"{path.name} by {count} bytes"


def a_slice(random, data):
    start = random.randrange(len(data))
    return start, random.randrange(start, min(len(data), start + 4096)) + 1


@way
def a_slice_zeroed(random, case):
    path = draw(random, files(case))
    data = bytearray(path.read_bytes())
    start, end = a_slice(random, data)
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return f"{path.name}, {start}..{end}"


@way
def a_slice_removed(random, case):
    path = draw(random, files(case))
    data = bytearray(path.read_bytes())
    start, end = a_slice(random, data)
    del data[start:end]
    path.write_bytes(data)
    return f"{path.name}, {start}..{end}"


@way
def a_slice_repeated(random, case):
    path = draw(random, files(case))
    data = path.read_bytes()
    start, end = a_slice(random, data)
    path.write_bytes(data[:end] + data[start:])
    return f"{path.name}, {start}..{end}"


@way
def slices_swapped(random, case):
    path = draw(random, files(case))
    data = path.read_bytes()
    a, b, c, d = sorted(random.randrange(len(data) + 1) for _ in range(4))
    path.write_bytes(data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:])
    return f"{path.name}, {a}..{b} and {c}..{d}"


@way
def something_else(random, case):
    path = onnx_file(random, case)
    other = random.choice(["noise", "zeros", "text", "toml", "nothing"])
    data = {
        "noise": random.randbytes(1000), "zeros": bytes(1000), "text": b"PK\x03\x04 no ONNX file\n",
        "toml": b"[unfold]\nkind = 'onnx'\n", "nothing": b"",
    }
    path.write_bytes(data[other])
    return other
