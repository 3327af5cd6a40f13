"""Damages of the form of protobuf messages."""

import contextlib

import onnx

from .case import NUMBERS, WAYS, Unfit, draw, onnx_file, way


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def read_varint(data, at):
    number, shift = 0, 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] <= 0x7F:
            return number, at


def parse(data, descriptor):
    """A message as a list of fields [number, wire type, value]; messages inside are lists too."""
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = read_varint(data, at)
        else:
            length = {1: 8, 5: 4}.get(wire)
            if length is None:
                length, at = read_varint(data, at)
            value, at = bytes(data[at : at + length]), at + length
        inner = descriptor.fields_by_number.get(number) if wire == 2 else None
        if inner is not None and inner.message_type is not None:
            value = parse(value, inner.message_type)
        fields.append([number, wire, value])
    return fields


def write(fields):
    """The bytes of what `parse` gave. A fourth item of a field is a length that is not true."""
    out = bytearray()
    for number, wire, value, *length in fields:
        out += varint(number << 3 | wire)
        if isinstance(value, int):
            out += varint(value)
            continue
        data = write(value) if isinstance(value, list) else value
        if wire == 2:
            out += varint(*length) if length else varint(len(data))
        out += data
    return bytes(out)


@contextlib.contextmanager
def messages(path):
    """All messages of a file, to be changed."""
    top = parse(path.read_bytes(), onnx.ModelProto.DESCRIPTOR)
    all_, open_ = [], [top]
    while open_:
        fields = open_.pop()
        all_.append(fields)
        open_ += [value for _, _, value in fields if isinstance(value, list)]
    yield all_
    path.write_bytes(write(top))


def field_way(name, change):
    """Adds a way that changes a field of a message."""

    def apply(random, case):
        path = onnx_file(random, case)
        with messages(path) as all_:
            fields = draw(random, [fields for fields in all_ if fields])
            at = random.randrange(len(fields))
            number, wire, _ = fields[at]
            change(random, fields, at)
        return f"{path.name}: field {number} of wire type {wire}, {at} of {len(fields)}"

    WAYS[name] = apply


def insert(fields, at, field):
    fields.insert(at, field)


def another_value(random, fields, at):
    number, wire, value = fields[at]
    if isinstance(value, int):
        value = random.choice(NUMBERS) % 2**64
    elif isinstance(value, list) or wire == 2:
        noise = random.choice([b"", b"\xff\xfe\x80", b"\0" * 9, random.randbytes(30)])
        value = random.choice([noise, noise, [[1, 2, noise]], [[1, 0, 2**63]]])
    else:
        value = random.randbytes(len(value))
    fields[at] = [number, wire, value]


def another_length(random, fields, at):
    number, wire, value = fields[at]
    if wire != 2:
        raise Unfit
    length = len(write(value)) if isinstance(value, list) else len(value)
    lengths = [0, length + 1, max(length - 1, 0), 2**20, 2**31, 2**40, 2**62, 2**63, 2**64 - 1]
    fields[at] = [number, wire, value, random.choice(lengths)]


def another_wire_type(random, fields, at):
    number, wire, value = fields[at]
    data = value if isinstance(value, bytes) else varint(value) if isinstance(value, int) else b"1"
    fields[at] = [number, random.choice([w for w in range(8) if w != wire]), data]


field_way("a field without", lambda random, fields, at: fields.pop(at))
field_way("a field twice", lambda random, fields, at: insert(fields, at, fields[at]))
field_way("a field many times", lambda random, fields, at: fields.extend([fields[at]] * 3000))
field_way("fields in another order", lambda random, fields, at: random.shuffle(fields))
field_way("another value of a field", another_value)
field_way("another length of a field", another_length)
field_way("another wire type of a field", another_wire_type)
field_way(
    "another number of a field",
    lambda random, fields, at: fields[at].__setitem__(
        0, random.choice([0, *range(1, 26), 2**29 - 1])
    ),
)


def nested(count, outer, inner):
    """A message in a message in a message, `count` deep: `outer` are the field numbers that lead
    from one level to the next, `inner` is the bytes of the innermost."""
    heads, length = [], len(inner)
    for _ in range(count):
        for number in reversed(outer):
            heads.append(varint(number << 3 | 2) + varint(length))
            length += len(heads[-1])
    return b"".join(reversed(heads)) + inner


@way
def varints_without_an_end(random, case):
    path = onnx_file(random, case)
    data = random.choice([b"\xff", b"\x80", b"\x3a\xff", b"\x08\xff"]) * random.choice([9, 10, 11, 1000])
    with open(path, "ab") as file:
        file.write(data)
    return f"{len(data)} bytes at the end of {path.name}"


@way
def lengths_that_are_not_true(random, case):
    """At the end of a file: of a field that is read, of one that is skipped, or of messages around."""
    path = onnx_file(random, case)
    fields = random.choice([[2], [7], [99], [7, 2], [7, 5, 9], [7, 1, 5, 5, 9], [7, 99]])
    length = random.choice([2**20, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
    around = random.choice([length, 2**62, 2**40])
    with open(path, "ab") as file:
        for field in fields[:-1]:
            file.write(varint(field << 3 | 2) + varint(around))
        file.write(varint(fields[-1] << 3 | 2) + varint(length))
    return f"field {fields} of {length} bytes in {path.name}"


@way
def lengths_that_lead_back(random, case):
    """A length that is negative to who takes it as signed: skipped, the field is read again."""
    path = onnx_file(random, case)
    head = varint(random.choice([99, 21, 2]) << 3 | 2)
    back = random.choice([len(head) + 10, 1, path.stat().st_size])
    with open(path, "ab") as file:
        file.write(head + varint(2**64 - back))
    return f"by {back} in {path.name}"


@way
def messages_nested_deeply(random, case):
    path = onnx_file(random, case)
    count = random.choice([50, 1000, 10_000, 100_000])
    data, what = random.choice(
        [
            # Nodes with a graph as an attribute: ModelProto.graph, then node, attribute, g.
            (nested(1, [7], nested(count, [1, 5, 6], b"")), "graphs"),
            # A value's type: graph.input.type, then sequence_type.elem_type.
            (nested(1, [7, 11, 2], nested(count, [4, 1], b"")), "types"),
            # Groups, which nothing ends.
            (varint(99 << 3 | 3) * count, "groups"),
        ]
    )
    with open(path, "ab") as file:
        file.write(data)
    return f"{count} {what} at the end"
