"""The ONNX project's own tests of operators (its backend's node tests), one process of `batchmaker run` a file.

Such a test is a file of one operator, the tensors it is given, and the tensors it returns. All that
the operator takes is an input of the file, weights too; `with_constants` binds some of them.
"""

import json
import pathlib
import subprocess
import tempfile
import warnings
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
from conftest import BINARY
from onnx import TensorProto, numpy_helper

DATATYPES = {
    np.dtype(numpy): name
    for numpy, name in [
        (np.bool_, "BOOL"), (np.uint8, "UINT8"), (np.uint16, "UINT16"), (np.uint32, "UINT32"),
        (np.uint64, "UINT64"), (np.int8, "INT8"), (np.int16, "INT16"), (np.int32, "INT32"),
        (np.int64, "INT64"), (np.float16, "FP16"), (np.float32, "FP32"), (np.float64, "FP64"),
        (ml_dtypes.bfloat16, "BF16"), (np.object_, "BYTES"),
    ]
}
SERVED = {
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.BOOL,
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8,
    TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
}
TIMEOUT_S = 60


@dataclass
class Outcome:
    """What became of a test: `kind` is one of KINDS, `reason` says more, on one line."""

    kind: str
    reason: str = ""


KINDS = {
    "passes": "as the test expects, within its tolerances",
    "refused": "not loaded, with reasons",
    "type not served": "not loaded, and it has tensors of types that are not served",
    "request refused": "loaded, but its request is answered with an error",
    "wrong": "answered otherwise than the test expects",
    "crashed": "a panic, a signal, or no end",
}


def cases():
    """All node tests of the installed `onnx`."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def with_constants(case, names):
    """The case's file with these inputs made initializers, and the tensors that are left."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = max(model.ir_version, 4)
    graph, given = model.graph, dict(zip([i.name for i in case.model.graph.input], case.data_sets[0][0]))
    for name in names:
        graph.initializer.append(numpy_helper.from_array(array_of(given.pop(name)), name))
    left = [info for info in graph.input if info.name not in names]
    del graph.input[:]
    graph.input.extend(left)
    return model, given


def run(case, constants=()):
    """Runs a case, some of its inputs made constants; its outcome."""
    try:
        model, given = with_constants(case, constants)
    except TypeError as error:
        return Outcome("type not served", f"as a constant: {error}")
    try:
        request = json.dumps({"inputs": [tensor(name, value) for name, value in given.items()]})
    except TypeError as error:
        request, unwritable = "", str(error)
    with tempfile.TemporaryDirectory() as folder:
        name = f"{case.name}.onnx"
        onnx.save(model, pathlib.Path(folder) / name)
        command = [BINARY.resolve(), "run", name, "--workers", "1", "--threads-per-worker", "1"]
        try:
            done = subprocess.run(
                command, input=f"{request}\n" if request else "", capture_output=True, text=True,
                timeout=TIMEOUT_S, cwd=folder,
            )
        except subprocess.TimeoutExpired:
            return Outcome("crashed", f"no end within {TIMEOUT_S} s")
    if done.returncode not in (0, 1) or "panicked" in done.stderr:
        return Outcome("crashed", f"status {done.returncode}: {done.stderr.strip()[-300:]}")
    if done.returncode == 1 and not done.stdout:
        reasons = [line.strip() for line in done.stderr.strip().splitlines()[1:]]
        reason = "; ".join(reasons) or done.stderr.strip()
        return Outcome("refused" if all_served(case.model) else "type not served", reason)
    if not request:
        return Outcome("type not served", unwritable)
    reply = json.loads(done.stdout)
    if "error" in reply:
        return Outcome("request refused", reply["error"])
    names = [output.name for output in case.model.graph.output]
    difference = compare(reply["outputs"], names, case.data_sets[0][1], case.rtol, case.atol)
    return Outcome("wrong", difference) if difference else Outcome("passes")


def all_served(model):
    """Whether all inputs and outputs are plain tensors of the types that are served."""
    types = [info.type for info in [*model.graph.input, *model.graph.output]]
    return all(of.HasField("tensor_type") and of.tensor_type.elem_type in SERVED for of in types)


def tensor(name, value):
    """A tensor as JSON; TypeError where it cannot be written so."""
    array = array_of(value)
    if array.dtype not in DATATYPES:
        raise TypeError(f"input {name}: {array.dtype}")
    data = array.ravel().tolist()
    if array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16:
        data = [number if np.isfinite(number) else SPELLED[str(number)] for number in data]
    return {"name": name, "datatype": DATATYPES[array.dtype], "shape": array.shape, "data": data}


def array_of(value):
    """What a case gives as an input; TypeError where that is a sequence or an optional value."""
    if value is None or isinstance(value, (list, dict)):
        raise TypeError("no tensor")
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    return array.astype(np.object_) if array.dtype.kind == "U" else array


SPELLED = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def compare(outputs, names, expected, rtol, atol):
    """What differs, on one line; "" where nothing does."""
    found = {output["name"]: output for output in outputs}
    if found.keys() != set(names):
        return f"outputs {sorted(found)}, expected {sorted(names)}"
    for name, wanted in zip(names, expected):
        try:
            wanted, output = array_of(wanted), found[name]
        except TypeError:
            return f"{name} is {found[name]['datatype']}, expected a sequence or an optional value"
        if output["datatype"] != DATATYPES.get(wanted.dtype, "BYTES"):
            return f"{name} is {output['datatype']}, expected {wanted.dtype}"
        if tuple(output["shape"]) != wanted.shape:
            return f"{name} has shape {output['shape']}, expected {list(wanted.shape)}"
        if wanted.dtype.kind in "OSU":
            array = np.array(output["data"], object).reshape(wanted.shape)
            if not np.array_equal(array, wanted):
                return f"{name} is {array}, expected {wanted}"
            continue
        array = np.array(output["data"])
        # Of text, as NaN and infinities are spelled, there is no way to bfloat16 but by float32.
        array = array.astype(np.float32) if wanted.dtype == ml_dtypes.bfloat16 else array
        array = array.astype(wanted.dtype).reshape(wanted.shape)
        try:
            np.testing.assert_allclose(array, wanted, rtol, atol)
        except AssertionError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return f"{name}: " + "; ".join(lines[1:4])
    return ""
