"""Generated models through `batchmaker run`, compared with ONNX Runtime on the whole tensors.

    python tests/python/generated/check_models.py generated --json report.json

Every file is sent one request of each of its sizes, and each row of small batches as a request of its
own. A file is

    ok        every reply has ONNX Runtime's shapes, types and values, |a - b| <= tolerance * max(1, max|b|)
              (integers equal), and a request sent alone gets the same bits as among the others
    refused   not served, for reasons that were told
    wrong     served, and a reply is something else
    failed    served, and a request got an error, or the process crashed or took too long

The exit status is 1 if any file is wrong or failed. Needs onnx and onnxruntime.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

from request_arrays import draw_arrays, seed_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = pathlib.Path(os.environ.get("BATCHMAKER", ROOT / "target/release/batchmaker"))
DATATYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}
CLASSES = ["ok", "refused", "wrong", "failed"]
TIE = 1e-5          # the best scores of an arg-max are further apart in all requests
SENT_ALONE = 4      # requests a file that are also sent alone
SECONDS_MAX = 60    # for a run of the binary
NUMBERS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


class Oracle:
    """A file in ONNX Runtime, which also gives away the scores of every ArgMax."""

    def __init__(self, path):
        model = onnx.load(path)
        self.outputs = [output.name for output in model.graph.output]
        self.arg_maxes = []
        known = set(self.outputs)
        for node in model.graph.node:
            if node.op_type == "ArgMax":
                axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
                self.arg_maxes.append((node.input[0], axis))
                if node.input[0] not in known:
                    model.graph.output.append(onnx.ValueInfoProto(name=node.input[0]))
                    known.add(node.input[0])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def run(self, arrays):
        """{output: array}, and whether an ArgMax was close."""
        names = [output.name for output in self.session.get_outputs()]
        found = dict(zip(names, self.session.run(None, arrays)))
        close = False
        for scores, axis in self.arg_maxes:
            ordered = np.sort(found[scores], axis=axis)
            if ordered.shape[axis] > 1:
                first, second = ordered.take(-1, axis), ordered.take(-2, axis)
                close |= bool(np.any(first - second <= TIE))
        return {name: found[name] for name in self.outputs}, close


def body_of(arrays):
    """A request as the HTTP form has it."""
    return {
        "inputs": [
            {
                "name": name, "datatype": DATATYPES[str(array.dtype)], "shape": list(array.shape),
                "data": array.reshape(-1).tolist(),
            }
            for name, array in arrays.items()
        ]
    }


def row_of(arrays, inputs, row):
    """One sequence of a batch, as a batch of one."""
    one = {}
    for spec in inputs:
        axis = spec["shape"].index("batch")
        one[spec["name"]] = arrays[spec["name"]].take([row], axis)
    return one


def draw_requests(description, oracle):
    """Requests as dictionaries: `arrays`, `expected`, `of` (the request and row that it repeats)."""
    inputs, requests = description["inputs"], []
    apart = "batch" in description["dynamic"] and all(
        "batch" in spec["shape"] and spec["kind"] != "lengths" for spec in inputs
    )
    for size in description["sizes"]:
        for attempt in range(20):
            seed = seed_of(description["seed"], description["number"], size, attempt)
            arrays = draw_arrays(inputs, size, seed)
            expected, close = oracle.run(arrays)
            if not close:
                break
        else:
            continue
        requests.append({"size": size, "arrays": arrays, "expected": expected, "of": None})
        if apart and size.get("batch") == 2:
            whole = len(requests) - 1
            for row in range(2):
                one = row_of(arrays, inputs, row)
                expected, _ = oracle.run(one)
                shown = {**size, "batch": f"row {row} of 2"}
                requests.append({"size": shown, "arrays": one, "expected": expected, "of": (whole, row)})
    return requests


class Binary:
    """`batchmaker` on one file."""

    def __init__(self, path, arguments):
        self.path, self.arguments = path, arguments

    def call(self, *arguments):
        """(exit status or None after too long, standard output, standard error)"""
        try:
            done = subprocess.run(
                [self.path, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS_MAX
            )
            return done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            return None, "", f"no end after {SECONDS_MAX} s"

    def refusals(self, model):
        """(reasons, what went wrong); both empty for a file that is served."""
        status, _, errors = self.call("inspect", model)
        if status == 0:
            return [], ""
        if status != 1 or "panicked" in errors:
            return [], f"inspect ends with status {status}: {errors[-500:]}"
        lines = errors.strip().splitlines()
        reasons = [line.strip() for line in lines if line.startswith("  ")]
        return reasons or [lines[-1].replace(str(model), "FILE") if lines else "no reason told"], ""

    def replies(self, model, requests):
        """(replies, what went wrong)"""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for request in requests:
                file.write(json.dumps(body_of(request["arrays"])) + "\n")
            file.flush()
            status, output, errors = self.call("run", model, "--input", file.name, *self.arguments)
        lines = output.splitlines()
        if status not in (0, 1) or "panicked" in errors or len(lines) != len(requests):
            return [], f"status {status}, {len(lines)} of {len(requests)} replies: {errors[-500:]}"
        return [json.loads(line) for line in lines], ""


def array_of(output):
    kind = {name: dtype for dtype, name in DATATYPES.items()}.get(output["datatype"])
    values = [NUMBERS[v] if isinstance(v, str) else v for v in output["data"]]
    return np.array(values, kind).reshape(output["shape"])


def difference(found, expected):
    """|a - b| over max(1, max|b|); infinite where shapes, types, integers, or NaNs are not the same."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return np.inf
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else np.inf
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if same.all():
        return 0.0
    if not (np.isfinite(found[~same]).all() and np.isfinite(expected[~same]).all()):
        return np.inf
    largest = np.max(np.abs(expected[np.isfinite(expected)]))
    return float(np.max(np.abs(found[~same] - expected[~same])) / max(1.0, largest))


def bits(reply):
    return {output["name"]: output for output in reply["outputs"]}


def check(model, description, binary, tolerance):
    """The file's class, and what is to be said of it."""
    result = {"file": model.name, "exporter": description["exporter"], "opset": description["opset"]}
    result["float64_gap"] = description["float64_gap"]
    reasons, crash = binary.refusals(model)
    if crash:
        return {**result, "class": "failed", "errors": [crash]}
    if reasons:
        return {**result, "class": "refused", "reasons": reasons}
    oracle = Oracle(model)
    requests = draw_requests(description, oracle)
    replies, crash = binary.replies(model, requests)
    if crash:
        return {**result, "class": "failed", "errors": [crash]}
    errors, wrong, worst, rows_differ = [], [], 0.0, 0
    axes = {output["name"]: output["shape"] for output in description["outputs"]}
    for number, (request, reply) in enumerate(zip(requests, replies)):
        size = request["size"]
        if "error" in reply:
            errors.append(f"{size}: {reply['error']}")
            continue
        found = bits(reply)
        if list(found) != oracle.outputs:
            wrong.append(f"{size}: outputs {list(found)}, expected {oracle.outputs}")
            continue
        for name, expected in request["expected"].items():
            array = array_of(found[name])
            gap = difference(array, expected)
            worst = max(worst, gap)
            if gap > tolerance:
                told = f"{gap:.2e}"
                if array.shape != expected.shape or array.dtype != expected.dtype:
                    told = f"{array.dtype}{list(array.shape)}, expected {expected.dtype}{list(expected.shape)}"
                wrong.append(f"{size}, `{name}`: {told}")
            if request["of"] and "error" not in replies[request["of"][0]]:
                whole, row = request["of"]
                outer = array_of(bits(replies[whole])[name])
                axis = axes[name].index("batch")
                if outer.ndim == array.ndim and outer.shape[axis] > row:
                    rows_differ += outer.take([row], axis).tobytes() != array.tobytes()
    count = min(SENT_ALONE, len(requests))
    for number in sorted({int(k) for k in np.linspace(0, len(requests) - 1, count)}):
        alone, crash = binary.replies(model, [requests[number]])
        size = requests[number]["size"]
        if crash:
            errors.append(f"{size}, alone: {crash}")
        elif ("error" in alone[0]) != ("error" in replies[number]):
            errors.append(f"{size}: an error either alone or among others: {alone[0].get('error')}")
        elif "error" not in alone[0] and bits(alone[0]) != bits(replies[number]):
            wrong.append(f"{size}: other bits alone than among others")
    kind = "failed" if errors else "wrong" if wrong else "ok"
    return {
        **result, "class": kind, "requests": len(requests), "worst": worst, "errors": errors,
        "wrong": wrong, "rows_differ": rows_differ,
    }


def group_of(reason):
    """A reason without names, and without numbers but 0, 1 and 2."""
    return re.sub(r"\b([3-9]|\d\d+)\b", "N", re.sub(r"`[^`]*`", "`…`", reason))


def print_table(results):
    exporters = sorted({result["exporter"] for result in results})
    print(f"\n{'':12}{'all':>12}" + "".join(f"{exporter:>12}" for exporter in exporters))
    for kind in [*CLASSES, "all"]:
        chosen = [r for r in results if kind in (r["class"], "all")]
        counts = [len(chosen)] + [sum(r["exporter"] == e for r in chosen) for e in exporters]
        print(f"{kind:12}" + "".join(f"{count:12}" for count in counts))
    served = [result for result in results if "worst" in result]
    if served:
        right = [result["worst"] for result in served if result["class"] == "ok"]
        differ = sum(result["rows_differ"] > 0 for result in served)
        print(f"\nworst difference of files that are ok: {max(right, default=0.0):.1e}")
        print(f"files in which a row's bits in a batch of two are not those of the row by itself: {differ}")
    files, only, example = collections.Counter(), collections.Counter(), {}
    for result in results:
        groups = {group_of(reason) for reason in result.get("reasons", [])}
        files.update(groups)
        if len(groups) == 1:
            only.update(groups)
        for group in groups:
            example.setdefault(group, result["file"])
    if files:
        print("\nreasons to refuse: files with it, files with no other, the first file")
    for group, count in files.most_common():
        print(f"{count:5}{only[group]:5}  {example[group]}  {group}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="what make_models.py wrote")
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--json", type=pathlib.Path, help="write every file's result here")
    parser.add_argument("--only", help="files whose names begin with this")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads-per-worker", type=int, default=1)
    args = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    binary = Binary(
        args.binary.resolve(),
        ["--workers", args.workers, "--threads-per-worker", args.threads_per_worker],
    )
    results = []
    for path in sorted(args.folder.glob(f"{args.only or ''}*.json")):
        model = path.with_suffix(".onnx")
        if not model.exists():
            continue
        result = check(model, json.loads(path.read_text()), binary, args.tolerance)
        results.append(result)
        told = [*result.get("errors", []), *result.get("wrong", [])]
        first = f": {len(told)}, {told[0][:300]}" if told else ""
        if result["class"] == "wrong":
            first += f" (ONNX Runtime itself is {result['float64_gap']:.1e} from float64)"
        print(f"{model.name} {result['class']}{first}", file=sys.stderr)
    print_table(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    if not results:
        sys.exit(f"check_models: no models in '{args.folder}'")
    sys.exit(any(result["class"] in ("wrong", "failed") for result in results))


if __name__ == "__main__":
    main()
