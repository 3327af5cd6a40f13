"""Serves the files that make.py wrote and compares the replies with ONNX Runtime.

    python tests/python/architectures/check.py FOLDER --server BINARY [--only NAME] [--markdown FILE]

Every file is sent 16 requests at once, then each alone, which must give the same bits. A file is

    served    every output is within 1e-5 of ONNX Runtime's, as a part of the largest magnitude of that
              output over all requests; within twice ONNX Runtime's own distance from float64 where that
              is more, 1e-4 at most; integers are equal. Where the file is quantised, every output is within
              2e-2 of ONNX's reference implementation, which is given one sequence at a time
    part      so, but requests of some sizes are refused
    refused   not served, for reasons that were told
    WRONG     a reply is something else, or has other bits alone
    CRASH     an end of the process, an error of the server's own, or no reply in a minute

The exit status is 1 if any file is WRONG or CRASH. Needs onnx, onnxruntime and tritonclient.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import re
import sys

import numpy as np
import onnx
import onnxruntime
import tritonclient.http as triton

from architecture import draw_request  # first: it makes the modules of the folders around importable
import conftest
from check_models import TIE, Binary, Oracle, group_of
from exact import Exact
from sessions import in_threads
from test_against_onnx_runtime import arrays_of

AT_ONCE = 16
TOLERANCE, TOLERANCE_MAX = 1e-5, 1e-4
SECONDS_MAX = 60


def ask(server, model, inputs, arrays):
    """(the arrays of the reply, or None; the status and the error)"""
    tensors = []
    for spec in inputs:
        tensors.append(triton.InferInput(spec["name"], arrays[spec["name"]].shape, spec["datatype"]))
        tensors[-1].set_data_from_numpy(arrays[spec["name"]])
    body, head = triton.InferenceServerClient.generate_request_body(tensors)
    connection = http.client.HTTPConnection(server.http, timeout=SECONDS_MAX)
    try:
        path = f"/v2/models/{model}/infer"
        connection.request("POST", path, body, {"Inference-Header-Content-Length": str(head)})
        response = connection.getresponse()
        reply = response.read()
    finally:
        connection.close()
    if response.status == 200:
        return arrays_of((reply, int(response.getheader("Inference-Header-Content-Length")))), 200, ""
    return None, response.status, json.loads(reply)["error"]


def is_tied(arrays):
    """Whether scores that descend, as a TopK gives them, are so close that their order may be another."""
    steps = [np.diff(a) for a in arrays if a.dtype.kind == "f" and a.ndim == 2 and a.shape[1] > 1]
    return any((step <= 0).all() and (step >= -TIE).any() for step in steps)


class SequenceBySequence:
    """What a quantised file says: each sequence has dynamic scales of its own, and no sum of products saturates."""

    def __init__(self, path, description):
        self._exact = Exact(onnx.load(path))
        self._inputs = {spec["name"]: spec["shape"].index("batch") for spec in description["inputs"]}
        self._outputs = {name: shape.index("batch") for name, shape in description["outputs"].items()}

    def run(self, arrays):
        """As `Oracle.run`; it tells of no ties."""
        count = {arrays[name].shape[axis] for name, axis in self._inputs.items()}.pop()
        replies = []
        for k in range(count):
            replies.append(self._exact.run({
                name: np.take(arrays[name], [k], axis) for name, axis in self._inputs.items()
            }))
        return {
            name: np.concatenate([reply[name] for reply in replies], axis) for name, axis in self._outputs.items()
        }, False


def draw_requests(description, oracle):
    """[(size, arrays, what the oracle gives)], without ties of an ArgMax or a TopK."""
    requests, kinds = [], description["sizes"]
    for number in range(AT_ONCE):
        size = kinds[number % len(kinds)]
        for attempt in range(number, 20 * AT_ONCE, AT_ONCE):
            arrays = draw_request(description, size, attempt)
            expected, close = oracle.run(arrays)
            if not close and not ("TopK" in description["operators"] and is_tied(expected.values())):
                break
        requests.append((size, arrays, expected))
    return requests


def compare(description, requests, replies):
    """(the worst difference as a part of its output's magnitude, what is wrong)"""
    worst, wrong = 0.0, []
    for name in description["outputs"]:
        largest = max(float(np.abs(expected[name]).max()) for _, _, expected in requests) or 1.0
        own = min(TOLERANCE_MAX, max(TOLERANCE, 2 * description["float64_gaps"][name]))
        tolerance = description.get("tolerance", own)
        for (size, _, expected), reply in zip(requests, replies):
            if reply is None:
                continue
            a, b = reply.get(name), expected[name]
            if a is None or a.shape != b.shape or a.dtype != b.dtype:
                found = None if a is None else (a.dtype.name, a.shape)
                wrong.append(f"{size}, `{name}`: {found}, expected {(b.dtype.name, b.shape)}")
                continue
            same = np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
            gap = 0.0 if same else float(np.abs(a - b).max() / largest) if a.dtype.kind == "f" else np.inf
            worst = max(worst, gap)
            if not gap <= tolerance:
                wrong.append(f"{size}, `{name}`: {gap:.1e} of {largest:.1e}, allowed {tolerance:.1e}")
    return worst, wrong


def check(path, description, binary):
    """(class, what is told of it: reasons, or what is wrong; the worst difference)"""
    reasons, crash = binary.refusals(path)
    if crash:
        return "CRASH", [crash], None
    if reasons:
        return "refused", reasons, None
    status, _, errors = binary.call("run", path, "--input", os.devnull)
    if status != 0:
        last = errors.strip().splitlines()[-1:] or ["no reason told"]
        return "refused" if status == 1 and "panicked" not in errors else "CRASH", last, None
    is_quantised = "tolerance" in description
    oracle = SequenceBySequence(path, description) if is_quantised else Oracle(path)
    requests = draw_requests(description, oracle)
    together, alone = [[None] * AT_ONCE for _ in range(2)]
    try:
        server = conftest.Server(path)
    except RuntimeError as error:
        return "CRASH", [str(error)], None
    try:
        for answers, several in [(together, True), (alone, False)]:
            def one(k):
                answers[k] = ask(server, path.stem, description["inputs"], requests[k][1])
            if several:
                in_threads(AT_ONCE, one)
            else:
                for k in range(AT_ONCE):
                    one(k)
        server.wait_until_unused()
        ended = server.stop()
    except (OSError, http.client.HTTPException, AssertionError) as error:
        server.process.kill()
        return "CRASH", [f"{type(error).__name__}: {error}; {''.join(server.errors)[-600:]}"], None
    bad = [f"{size}: {s} {told}" for (size, _, _), (_, s, told) in zip(requests, together + alone) if s >= 500]
    if bad or ended != 0:
        return "CRASH", bad or [f"the server's exit status is {ended}: {''.join(server.errors)[-600:]}"], None
    worst, wrong = compare(description, requests, [reply for reply, _, _ in together])
    for (size, _, _), (a, s, _), (b, t, _) in zip(requests, together, alone):
        if s != t or a and any(a[name].tobytes() != b[name].tobytes() for name in a):
            wrong.append(f"{size}: other bits or another status alone ({s}, {t})")
    if wrong:
        return "WRONG", wrong, worst
    refused = [f"{size}: {told}" for (size, _, _), (_, s, told) in zip(requests, together) if s != 200]
    return "part" if refused else "served", list(dict.fromkeys(refused)), worst


def short(reason):
    """A refusal without names of nodes and most numbers."""
    text = re.sub(r" \(FLOAT, INT64.*", "", reason.replace("on whole sequences: ", "whole: "))
    return re.sub(r" ?`…`", "", group_of(re.sub(r"\[[^]]*\]", "[…]", text)))


def tables(results):
    """Markdown: reasons to refuse by the files that they block, then every file."""
    files, only = collections.defaultdict(list), collections.Counter()
    for name, (kind, told, _) in results.items():
        groups = {short(reason) for reason in told} if kind == "refused" else set()
        for group in groups:
            files[group].append(name)
            only[group] += len(groups) == 1
    lines = ["| reason | files | alone | which |", "|---|---|---|---|"]
    for group, names in sorted(files.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {group.replace('|', ' ')} | {len(names)} | {only[group]} | {', '.join(names)} |")
    rank = lambda item: (["CRASH", "WRONG", "part", "refused", "served", "no file"].index(item[1][0]), item[0])
    lines += ["", "| file | | worst | |", "|---|---|---|---|"]
    for name, (kind, told, worst) in sorted(results.items(), key=rank):
        shown = told if kind != "refused" else dict.fromkeys(map(short, told))
        text = "; ".join(shown).replace("|", " ").replace("\n", " ")[:400]
        lines.append(f"| {name} | {kind} | {'' if worst is None else f'{worst:.0e}'} | {text} |")
    kinds = collections.Counter(kind for kind, _, _ in results.values())
    return "\n".join([*lines, "", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="what make.py wrote")
    parser.add_argument("--server", type=pathlib.Path, default=conftest.BINARY, metavar="BINARY")
    parser.add_argument("--only", help="files whose names begin with this")
    parser.add_argument("--markdown", type=pathlib.Path, help="also write the tables to this file")
    args = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    conftest.BINARY = args.server.resolve()
    binary, results = Binary(conftest.BINARY, []), {}
    for export in json.loads((args.folder / "exports.json").read_text()):
        name = export["file"]
        if not name.startswith(args.only or ""):
            continue
        path = args.folder / f"{name}.onnx"
        if export["error"]:
            results[name] = "no file", [export["error"]], None
        else:
            results[name] = check(path, json.loads(path.with_suffix(".json").read_text()), binary)
        kind, told, worst = results[name]
        print(name, kind, worst or "", "; ".join(told)[:1500], file=sys.stderr, flush=True)
    if not results:
        sys.exit(f"check.py: no files in '{args.folder}'")
    print(tables(results))
    if args.markdown:
        args.markdown.write_text(tables(results))
    sys.exit(any(kind in ("WRONG", "CRASH") for kind, _, _ in results.values()))


if __name__ == "__main__":
    main()
