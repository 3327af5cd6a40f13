"""Exports the architectures of this folder, with random weights, by both of PyTorch's ONNX exporters.

    python tests/python/architectures/make.py OUT [--only NAME]

Writes NAME-torchscript.onnx and NAME-dynamo.onnx, as the exporters' defaults give them, with open axes.
NAME-….json beside it says which inputs, outputs and sizes the file has, and how far ONNX Runtime is from
float64. exports.json tells what each exporter said of each architecture. Needs what
`../generated/requirements.txt` lists.
"""

import argparse
import copy
import json
import logging
import pathlib
import sys
import warnings
import zlib

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime import quantization

from architecture import draw_request  # first: it makes the generated models' modules importable
import speech
import text
import vision
from make_models import operators_of, quiet
from parts import shaken

ARCHITECTURES = [*speech.ARCHITECTURES, *text.ARCHITECTURES, *vision.ARCHITECTURES]
EXPORT_SECONDS_MAX = 300
INT8_TOLERANCE = 2e-2


def tensors_of(arrays):
    return tuple(torch.from_numpy(array) for array in arrays.values())


def open_axes(shape):
    return {axis: symbol for axis, symbol in enumerate(shape) if isinstance(symbol, str)}


def export(architecture, model, arrays, path, exporter):
    """Writes the file; returns what had to be done otherwise than at first."""
    names = [spec["name"] for spec in architecture.inputs]
    common = dict(input_names=names, output_names=list(architecture.outputs))
    axes = {spec["name"]: open_axes(spec["shape"]) for spec in architecture.inputs}
    if exporter == "torchscript":
        every = {**axes, **{name: open_axes(shape) for name, shape in architecture.outputs.items()}}
        if architecture.scripted:
            model = torch.jit.script(model)
        torch.onnx.export(model, tensors_of(arrays), path, dynamo=False, dynamic_axes=every, **common)
        return []
    notes = []
    for how in ["named", "AUTO"]:
        torch._dynamo.reset()
        kinds = tuple(
            {axis: name if how == "named" else torch.export.Dim.AUTO for axis, name in axes[of].items()}
            for of in names
        )
        try:
            torch.onnx.export(
                model, tensors_of(arrays), path, dynamo=True, dynamic_shapes=kinds, verbose=False, **common
            )
            return notes
        except Exception as error:
            notes.append(f"with named axes: {told(error)}")
            if how == "AUTO":
                raise


def told(error):
    """The lines that say what was wrong, from what an exporter raises."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:400]}"


class Calibration(quantization.CalibrationDataReader):
    def __init__(self, description):
        requests = (draw_request(description, size, 100 + k) for k in range(4) for size in description["sizes"])
        self.requests = iter(requests)

    def get_next(self):
        return next(self.requests, None)


def quantise(path, description, kind):
    whole = onnx.load(path)
    del whole.graph.value_info[:]  # of the newer exporter's, the quantiser takes some for shapes of its own
    if kind == "dynamic":
        quantization.quantize_dynamic(whole, path, weight_type=quantization.QuantType.QInt8)
    else:
        quantization.quantize_static(whole, path, Calibration(description))
    pathlib.Path(f"{path}.data").unlink(missing_ok=True)


def outputs_of(model, arrays):
    found = model(*tensors_of(arrays))
    return [tensor.numpy() for tensor in (found if isinstance(found, tuple) else (found,))]


def exact(model, arrays):
    """The outputs in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        wide = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in arrays.items()}
        return outputs_of(copy.deepcopy(model).double(), wide)
    finally:
        torch.set_default_dtype(torch.float32)


def try_sizes(model, path, description, sizes, notes):
    """Keeps the sizes at which ONNX Runtime gives PyTorch's shapes; notes the others and large differences.
    Returns whether all are kept."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(path, options)
    needed = {spec.name for spec in session.get_inputs()}
    outputs, kept = list(description["outputs"]), []
    largest, gaps, apart = ({name: 0.0 for name in outputs} for _ in range(3))
    for size in sizes:
        arrays = draw_request(description, size, 0)
        expected, wide = outputs_of(model, arrays), exact(model, arrays)
        try:
            found = session.run(None, {name: arrays[name] for name in needed})
        except Exception as error:
            notes.append(f"ONNX Runtime fails at {size}: {str(error)[:200]}")
            continue
        if [a.shape for a in found] != [b.shape for b in expected]:
            notes.append(f"ONNX Runtime gives other shapes at {size}: {[a.shape for a in found]}")
            continue
        kept.append(size)
        for name, a, b, c in zip(outputs, found, expected, wide):
            if a.dtype.kind == "f":
                largest[name] = max(largest[name], float(np.abs(c).max()))
                gaps[name] = max(gaps[name], np.abs(a - c).max())
                apart[name] = max(apart[name], np.abs(a - b).max())
    relative = {name: float(gap / (largest[name] or 1.0)) for name, gap in gaps.items()}
    for name, gap in apart.items():
        if gap > 1e-4 * (largest[name] or 1.0) and "tolerance" not in description:
            notes.append(f"`{name}` of ONNX Runtime differs from PyTorch by {gap:.1e} of {largest[name]:.1e}")
    description.update(sizes=kept, float64_gaps=relative)
    description["inputs"] = [spec for spec in description["inputs"] if spec["name"] in needed]
    if not kept:
        raise RuntimeError(f"ONNX Runtime runs it at no size: {notes[-1]}")
    return len(kept) == len(sizes)


def make(architecture, exporter, folder):
    """Makes one file; returns what is to be told of it."""
    name = f"{architecture.name}-{exporter}"
    path = folder / f"{name}.onnx"
    description = {"architecture": architecture.name, "exporter": exporter}
    description.update(outputs=architecture.outputs, sizes=architecture.sizes)
    torch.manual_seed(zlib.crc32(architecture.name.encode()))
    build = architecture.make_dynamo if exporter == "dynamo" and architecture.make_dynamo else architecture.make
    model = shaken(build()).eval()
    notes = []
    try:
        with torch.no_grad():
            for size in architecture.sizes[1::-1]:  # of several sequences; of one if that froze the batch
                description["inputs"] = architecture.inputs
                with quiet(EXPORT_SECONDS_MAX):
                    arrays = draw_request(description, size, 0)
                    notes += export(architecture, model, arrays, str(path), exporter)
                if architecture.quantise:
                    description["tolerance"] = INT8_TOLERANCE
                    quantise(str(path), description, architecture.quantise)
                if try_sizes(model, str(path), description, architecture.sizes, notes):
                    break
    except Exception as error:
        for made in folder.glob(f"{name}.*"):
            made.unlink()
        return {"file": name, "error": told(error), "notes": notes}
    whole = onnx.load(path, load_external_data=False)
    description.update(
        notes=notes, opset=whole.opset_import[0].version, operators=operators_of(whole),
        bytes=sum(made.stat().st_size for made in folder.glob(f"{name}.*")),
    )
    (folder / f"{name}.json").write_text(json.dumps(description, indent=1) + "\n")
    return {"file": name, "error": "", "notes": notes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", help="the architecture of this name")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # the older exporter cannot write it
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    args.out.mkdir(parents=True, exist_ok=True)
    told_of = args.out / "exports.json"
    results = {r["file"]: r for r in json.loads(told_of.read_text())} if told_of.exists() else {}
    for architecture in ARCHITECTURES:
        for exporter in ["torchscript", "dynamo"] if args.only in (None, architecture.name) else []:
            result = make(architecture, exporter, args.out)
            results[result["file"]] = result
            print(result["file"], result["error"] or "ok", *result["notes"], sep="; ", file=sys.stderr, flush=True)
            told_of.write_text(json.dumps(list(results.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
