"""Exports random recurrent models from PyTorch, with both of its ONNX exporters.

    python tests/python/generated/make_models.py --count 220 --seed 1 --output generated

Writes NNNN.onnx, and beside it NNNN.json: what the model is, how it was exported, its inputs, and the
sizes at which both PyTorch and ONNX Runtime run it. Models that no exporter option could save go to
failed.jsonl. A model is a function of the seed and its number alone. Needs torch, onnx, onnxscript and
onnxruntime.
"""

import argparse
import collections
import contextlib
import copy
import json
import logging
import os
import pathlib
import signal
import sys
import time
import warnings

import numpy as np
import onnx
import onnxruntime
import torch

from draw_models import draw_model
from parts import Recurrent
from request_arrays import draw_arrays, seed_of

BATCHES, TIMES, MORE_TIMES = [1, 2, 5], [1, 2, 7, 23], [12, 8, 16, 31, 5]
STEPS = {"steps": "time", "steps_b": "time_b"}  # the axes of outputs whose length an input's gives
TRACED_OPSETS = {
    9: 0.5, 10: 0.5, 11: 2, 12: 1, 13: 2, 14: 2, 15: 1, 16: 1, 17: 4, 18: 0.7, 20: 0.7,
}
DYNAMO_OPSETS = {18: 6, 19: 1, 20: 2, 21: 1, 22: 1, 23: 1}
EXPORT_SECONDS_MAX = 300


def draw_options(draw, model):
    """How to export a model."""
    rnns = [part for part in model.modules() if isinstance(part, Recurrent)]
    plain = any(part.kind in ("tanh", "relu") for part in rnns)
    packed = any(part.packed for part in rnns)
    exporter = "dynamo" if draw.chance(0.05 if packed else 0.15 if plain else 0.52) else "torchscript"
    dynamic = draw.pick({("batch", "time"): 6, ("time",): 2, ("batch",): 1, (): 1})
    if model.has_loop:
        dynamic = tuple(symbol for symbol in dynamic if symbol != "time")
    size = {"batch": 3 if "batch" in dynamic else draw.choice([1, 1, 1, 2])}
    if "time" in dynamic:
        size.update(time=12, time_b=10)
    else:
        size.update(time=draw.choice([1, 4, 8, 12, 20] if not model.has_loop else [3, 5]))
        size.update(time_b=size["time"])
    options = {"exporter": exporter, "dynamic": list(dynamic), "traced": size}
    if exporter == "dynamo":
        options["opset"] = draw.pick(DYNAMO_OPSETS)
        options["external_data"] = draw.chance(0.15)
        options["optimize"] = draw.chance(0.9)
        options["dims"] = draw.choice(["named", "named", "hinted"])
    else:
        options["opset"] = draw.pick(TRACED_OPSETS)
        options["do_constant_folding"] = draw.chance(0.85)
        options["output_axes"] = draw.chance(0.85)
    return options


def dynamic_of(shape, dynamic):
    """{axis: symbol} of the axes of a shape that shall be dynamic."""
    found = {}
    for axis, symbol in enumerate(shape):
        if isinstance(symbol, str):
            source = STEPS.get(symbol, symbol).removesuffix("_b")
            if source in dynamic:
                found[axis] = symbol
    return found


def export(model, arrays, path, options):
    """Writes the ONNX file."""
    tensors = tuple(torch.from_numpy(array) for array in arrays.values())
    common = dict(
        input_names=[spec["name"] for spec in model.inputs], output_names=list(model.outputs),
        opset_version=options["opset"],
    )
    axes = {spec["name"]: dynamic_of(spec["shape"], options["dynamic"]) for spec in model.inputs}
    if options["exporter"] == "dynamo":
        torch._dynamo.reset()
        hint = torch.export.Dim.DYNAMIC
        shapes = tuple(
            {axis: name if options["dims"] == "named" else hint for axis, name in axes[n].items()}
            for n in common["input_names"]
        )
        torch.onnx.export(
            model, tensors, path, dynamo=True, dynamic_shapes=(shapes,) if options["dynamic"] else None,
            external_data=options["external_data"], optimize=options["optimize"], verbose=False, **common
        )
        forget_origins(path)
        return
    if options["output_axes"]:
        axes.update({n: dynamic_of(shape, options["dynamic"]) for n, shape in model.outputs.items()})
    torch.onnx.export(
        model, tensors, path, dynamo=False, do_constant_folding=options["do_constant_folding"],
        dynamic_axes={name: found for name, found in axes.items() if found}, **common
    )


def forget_origins(path):
    """Removes what the exporter tells of the Python code that a file comes from."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    for part in [model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output,
                 *graph.initializer]:
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.save(model, path)


def next_options(options):
    """What to try after `options` failed: a newer opset, then the other exporter, then less that is
    dynamic; None at the end."""
    if options["exporter"] == "torchscript" and options["opset"] < 17:
        return {**options, "opset": 17}
    if options["exporter"] == "torchscript":
        fixed = dict(exporter="dynamo", opset=18, external_data=False, optimize=True, dims="named")
        return {"dynamic": options["dynamic"], "traced": options["traced"], **fixed}
    less = [symbol for symbol in options["dynamic"] if symbol != "time"]
    if less == options["dynamic"]:
        less = []
    if less == options["dynamic"]:
        return None
    traced = dict(options["traced"])
    if "time" not in less:
        traced.update(time=8, time_b=8)
    if "batch" not in less:
        traced.update(batch=1)
    return {**options, "dynamic": less, "traced": traced}


@contextlib.contextmanager
def quiet(seconds):
    """No output of the exporters, and an exception after `seconds`."""

    def stop(*_):
        raise TimeoutError(f"the export took more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    kept = [os.dup(1), os.dup(2)]
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)  # the exporters' C++ parts print too
    os.dup2(sink, 2)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, copy in zip([1, 2], kept):
            os.dup2(copy, number)
            os.close(copy)
        os.close(sink)


def operators_of(model):
    """{operator: count}, subgraphs and functions included."""
    counts = collections.Counter()

    def count(nodes):
        for node in nodes:
            counts[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] += 1
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs]:
                    count(graph.node)

    count(model.graph.node)
    for function in model.functions:
        count(function.node)
    return dict(sorted(counts.items()))


def sizes_to_try(options):
    """Sizes by batch and time; further ones for models that need long sequences."""
    traced = options["traced"]
    batches = BATCHES if "batch" in options["dynamic"] else [traced["batch"]]
    times, more = (TIMES, MORE_TIMES) if "time" in options["dynamic"] else ([traced["time"]], [])
    others = [times[(k + 2) % len(times)] for k in range(len(times))]
    first = [
        {"batch": b, "time": t, "time_b": o} for t, o in zip(times, others) for b in batches
    ]
    return first, [{"batch": b, "time": t, "time_b": t} for t in more for b in batches]


def in_float64(model, arrays):
    """The outputs in float64, as arrays."""
    tensors = [torch.from_numpy(a.astype(np.float64) if a.dtype == np.float32 else a) for a in arrays.values()]
    torch.set_default_dtype(torch.float64)
    try:
        return [tensor.numpy() for tensor in copy.deepcopy(model).double()(*tensors)]
    finally:
        torch.set_default_dtype(torch.float32)


def gap_of(a, b):
    return float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b))))


def try_sizes(model, path, options, seed, number, notes):
    """(the sizes that PyTorch and ONNX Runtime both run, the inputs that the file has, the worst
    difference of ONNX Runtime from float64); notes where PyTorch gives something else."""
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = 1
    session_options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, session_options)
    needed = {spec.name for spec in session.get_inputs()}
    used = {axis for spec in model.inputs for axis in spec["shape"] if isinstance(axis, str)}
    kept, gaps = [], [0.0]

    def attempt(size):
        shown = {symbol: n for symbol, n in size.items() if symbol in used}
        if shown in kept:
            return
        arrays = draw_arrays(model.inputs, shown, seed_of(seed, number, shown, 0))
        try:
            expected = model(*(torch.from_numpy(array) for array in arrays.values()))
        except (RuntimeError, ValueError):
            return
        if any(tensor.numel() == 0 for tensor in expected):
            return
        try:
            found = session.run(None, {name: arrays[name] for name in needed})
        except Exception as error:
            notes.append(f"ONNX Runtime fails at {shown}: {str(error)[:200]}")
            return
        exact = in_float64(model, arrays)
        for name, a, b, c in zip(model.outputs, found, expected, exact):
            b = b.numpy()
            if a.shape != b.shape:
                notes.append(f"`{name}` at {shown}: shape {a.shape}, of PyTorch {b.shape}")
            elif a.dtype.kind == "f":
                if not gap_of(a, b) <= 1e-4:
                    notes.append(f"`{name}` at {shown}: differs from PyTorch by {gap_of(a, b):.1e}")
                else:
                    gaps.append(gap_of(a, c))
        kept.append(shown)

    first, more = sizes_to_try(options)
    for size in first:
        attempt(size)
    for size in more:
        if len({size["time"] for size in kept if "time" in size}) >= 3:
            break
        attempt(size)
    return kept, needed, max(gaps)


def make(seed, number, folder):
    """Makes one model. Returns its description, or what failed."""
    draw, model = draw_model(f"{seed}-{number}")
    options = draw_options(draw, model)
    name, notes = f"{number:04}", []
    path = folder / f"{name}.onnx"
    description = {"seed": seed, "number": number, "model": type(model).__name__, "parts": model.text}
    while options:
        try:
            try:
                arrays = draw_arrays(model.inputs, options["traced"], [1])
                model(*(torch.from_numpy(array) for array in arrays.values()))
            except (RuntimeError, ValueError):  # too short, or odd
                options["traced"].update(time=20, time_b=20)
                arrays = draw_arrays(model.inputs, options["traced"], [1])
            with torch.no_grad(), quiet(EXPORT_SECONDS_MAX):
                export(model, arrays, str(path), options)
            loaded = onnx.load(path)
            sizes, needed, gap = try_sizes(model, str(path), options, seed, number, notes)
            if not sizes:
                raise RuntimeError("ONNX Runtime runs it at no size")
        except Exception as error:
            words = [line for line in str(error).splitlines() if line.strip()]
            told = [line for line in words if line.lstrip().startswith(("<class", "- Received"))] or words
            what = f"{options['exporter']} {options['opset']}, dynamic {options['dynamic']}"
            notes.append(f"{what}: {type(error).__name__}: {' '.join(told[:2])[:400]}")
            for made in folder.glob(f"{name}.onnx*"):
                made.unlink()
            options = next_options(options)
            continue
        description.update(
            options, notes=notes, inputs=[spec for spec in model.inputs if spec["name"] in needed],
            unused=[spec["name"] for spec in model.inputs if spec["name"] not in needed],
            outputs=[{"name": name, "shape": shape} for name, shape in model.outputs.items()],
            sizes=sizes, float64_gap=gap, operators=operators_of(loaded),
            bytes=path.stat().st_size, versions={"torch": torch.__version__, "onnx": onnx.__version__},
        )
        (folder / f"{name}.json").write_text(json.dumps(description, indent=1) + "\n")
        return description
    return {**description, "notes": notes, "operators": None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=220, help="files to make")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--only", type=int, help="make the model of this number alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # the older exporter cannot write it
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    args.output.mkdir(parents=True, exist_ok=True)
    made, number, start = 0, args.only or 0, time.monotonic()
    operators, failures = collections.Counter(), []
    while made < (args.count if args.only is None else 1) and number < 2 * args.count + (args.only or 0):
        description = make(args.seed, number, args.output)
        how = "failed"
        if description["operators"]:
            made += 1
            operators.update(description["operators"].keys())
            how = f"{description['exporter']} {description['opset']} {description['dynamic']}"
        else:
            failures.append(description)
        parts, notes = "; ".join(description["parts"]), description["notes"]
        told = f" ({len(notes)} notes: {notes[0][:100]})" if notes else ""
        print(f"{number:04} {time.monotonic() - start:.0f} s, {how}: {parts[:100]}{told}", file=sys.stderr)
        number += 1
    (args.output / "failed.jsonl").write_text("".join(json.dumps(f) + "\n" for f in failures))
    print(f"{made} files, {len(failures)} models failed; operators and files with them:", file=sys.stderr)
    for operator, count in operators.most_common():
        print(f"{count:5} {operator}", file=sys.stderr)


if __name__ == "__main__":
    main()
