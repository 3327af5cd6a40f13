"""Damages of tensors whose data are in a file of their own."""

import contextlib
import os
import struct

from onnx import TensorProto

from .case import WAYS, Unfit, edited, onnx_file, way
from .grafts import Graft
from .places import PLACES


def to_external(random, case):
    """Moves a tensor into a file of its own; the ONNX file, the tensor's name, and that file."""
    path = onnx_file(random, case)
    with edited(path) as model:
        tensors = [tensor for tensor in model.graph.initializer if tensor.raw_data]
        if not tensors:
            raise Unfit
        tensor = max(tensors, key=lambda tensor: len(tensor.raw_data))
        if random.random() < 0.3:
            tensor = random.choice(tensors)
        weights_ = path.parent / "tensor.bin"
        weights_.write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=weights_.name)
        return path, tensor.name, weights_


@contextlib.contextmanager
def external_entries(path, name):
    """The entries of a tensor's external data, as a list of pairs to change."""
    with edited(path) as model:
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
        entries = [(entry.key, entry.value) for entry in tensor.external_data]
        yield entries
        del tensor.external_data[:]
        for key, value in entries:
            tensor.external_data.add(key=key, value=value)


def external_way(where, make):
    """Adds a way: a tensor's external data are at a place."""

    def apply(random, case):
        path, name, weights_ = to_external(random, case)
        length = weights_.stat().st_size
        found = make(case, weights_)
        with external_entries(path, name) as entries:
            entries[:] = [("location", found.name)]
            if random.random() < 0.5:
                entries += [("offset", "0"), ("length", f"{length}")]
        case.must_refuse = found.is_outside
        return f"{name} of {path.name}"

    WAYS[f"external data: {where}"] = apply


for where, make in PLACES.items():
    external_way(where, make)


@way
def external_offsets_and_lengths(random, case):
    path, name, weights_ = to_external(random, case)
    numbers = ["-1", f"{2**40}", f"{2**62}", f"{2**63}", f"{2**64 - 1}", f"{2**64}", "1e3", "0x10",
               " 0", "+1", "", "é", "0" * 10**5, "1", "4"]
    chosen = [(key, random.choice(numbers)) for key in ("offset", "length")]
    overflow = [("offset", "8"), ("length", f"{2**64 - 8}")]
    chosen = random.choice([chosen, chosen[:1], chosen[1:], overflow])
    with external_entries(path, name) as entries:
        entries += chosen
    return f"{chosen}"[:80]


@way
def external_entries_changed(random, case):
    path, name, weights_ = to_external(random, case)
    change = random.choice(["none", "no location", "twice", "unknown", "checksum", "many", "itself"])
    with external_entries(path, name) as entries:
        if change in ("none", "no location"):
            entries[:] = [] if change == "none" else [("offset", "0")]
        elif change == "twice":
            entries.append(("location", "../outside/other.bin"))
        elif change == "unknown":
            entries += [("basepath", "../outside"), ("", ""), ("prefix", "/")]
        elif change == "checksum":
            entries.append(("checksum", "0" * 40))
        elif change == "many":
            entries += [("offset", "0")] * 10_000
        else:
            entries[:] = [("location", path.name)]
    return change


@way
def external_data_of_an_attribute(random, case):
    path = onnx_file(random, case)
    (case.outside / "values.bin").write_bytes(struct.pack("<4f", 1, 2, 3, 4))
    with edited(path) as model:
        graft = Graft(random, model.graph)
        tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[4])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../outside/values.bin")
        graft.put(graft.add("Constant", value=tensor), "Add")
    case.must_refuse = True
    return path.name


@way
def one_file_for_very_many_tensors(random, case):
    """External data of 64 MiB, of which 3000 tensors have a part each."""
    path = onnx_file(random, case)
    (path.parent / "tensors.bin").touch()
    os.truncate(path.parent / "tensors.bin", 64 << 20)
    with edited(path) as model:
        for number in range(3000):
            tensor = model.graph.initializer.add(
                name=f"part_{number}", data_type=TensorProto.FLOAT, dims=[4]
            )
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="tensors.bin")
            tensor.external_data.add(key="offset", value=f"{16 * number}")
            tensor.external_data.add(key="length", value="16")
    return path.name
