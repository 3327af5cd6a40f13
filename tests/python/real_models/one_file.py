"""One ONNX file through a server, beside ONNX Runtime: values, bits, batches, sessions, times."""

import statistics
import subprocess
import time

import numpy as np
import onnx
from client import PATIENCE_S, Connection, at_once, body, outputs
from comparing import Runtime, gap, moved, moved_constants, same_bits, stacked
from drawing import REQUESTS, batch_axes, draw, inputs_of
from exact import Exact

import conftest
from sessions import Refused, cuts, joined

TOLERANCE, TOLERANCE_INT8 = 1e-5, 2e-2
INT8 = {"DynamicQuantizeLinear", "DynamicQuantizeLSTM", "QuantizeLinear", "DequantizeLinear"}
AT_ONCE, IN_FLIGHT, BATCH = 24, 8, 3
MOVES = 3           # times that the constants of a file are moved, where to move its inputs would not show what it amplifies
TIMED_S = 2.0
SLOW_S = 0.25       # a request; then only as many are sent as are in flight


def check(entry, path, seed, executor=None, threads=None):
    """What is to be told of a file: a dictionary for JSON. Its `failures` are lines. The server runs programs by
    `executor`; bits are compared where that is its own. With `threads` it has one worker of as many."""
    model = onnx.load(path)
    operators = count_operators(model.graph)
    result = {"package": entry.package, "version": entry.version, "path": entry.path, "does": entry.does}
    result |= {"operators": operators, "tolerance": TOLERANCE_INT8 if operators.keys() & INT8 else TOLERANCE}
    result["failures"] = failures = []
    served = path if not entry.row else with_row(path, entry.row)
    result["row"] = bool(entry.row)
    reasons, failure = refusal(served)
    if failure or reasons:
        failures += [failure] if failure else []
        return result | {"served": False, "reason": (reasons or [""])[0], "reasons": len(reasons)}
    result["served"] = True
    options = ["--executor", executor] if executor else []
    options += ["--workers", "1", "--threads-per-worker", str(threads)] if threads else []
    try:
        server = conftest.Server(served, *options)
    except RuntimeError as error:
        failures.append(str(error))
        return result
    try:
        oracle = runtime = Runtime(path)
        moved_oracles = [runtime]
        moved_models = (moved_constants(model, seed + move) for move in range(MOVES))
        if result["tolerance"] == TOLERANCE_INT8:
            oracle = Exact(model)
            moved_oracles = list(map(Exact, moved_models))
        elif not any(array.dtype.kind == "f" for array in draw(entry, inputs_of(model), seed, 0).values()):
            moved_oracles = [Runtime(of.SerializeToString()) for of in moved_models]
        result["compares_bits"] = not executor
        talk(entry, inputs_of(model), server, (oracle, moved_oracles, runtime), seed, result)
        # By itself: the second thread spins while it has nothing to do.
        arrays = [draw(entry, inputs_of(model), seed, number) for number in range(REQUESTS)]
        result["ms_onnx_runtime_2"] = statistics.median(timed(Runtime(path, threads=2).run, arrays))
    except Exception as error:  # noqa: BLE001  (told as a failure; the server is stopped)
        failures.append(f"{type(error).__name__}: {error}")
    try:
        if status := server.stop():
            failures.append(f"the server ended with status {status}: {''.join(server.errors)[-300:]}")
    except subprocess.TimeoutExpired:
        failures.append("the server does not stop")
    return result


def with_row(path, row):
    """A folder beside the file that serves it with fixed lengths."""
    folder = path.parent / f"{path.stem}.fixed"
    folder.mkdir(exist_ok=True)
    (folder / path.name).write_bytes(path.read_bytes())
    lengths = ", ".join(f'"{name}" = {of}' for name, of in row.items())
    lines = ["[unfold]", 'kind = "onnx"', f'graph = "{path.name}"', f"row = {{ {lengths} }}"]
    (folder / "model.toml").write_text("\n".join(lines) + "\n")
    return folder


def refusal(path):
    """(reasons, what went wrong); both empty for a file that is served. `run` refuses what `serve` does."""
    try:
        done = subprocess.run(
            [conftest.BINARY, "run", path], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )
    except subprocess.TimeoutExpired:
        return [], f"not loaded within {PATIENCE_S:.0f} s"
    if done.returncode == 0:
        return [], ""
    if done.returncode != 1 or "panicked" in done.stderr:
        return [], f"ends with status {done.returncode} when it is loaded: {done.stderr[-300:]}"
    lines = done.stderr.replace(str(path), "FILE").strip().splitlines()
    reasons = [line.strip() for line in lines if line.startswith("  ")]
    return [of for of in reasons if not of.startswith("with fixed lengths")] or lines[-1:] or ["no reason told"], ""


def count_operators(graph):
    """{operator: nodes}, those of branches and bodies too."""
    counts = {}
    for node in graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                for name, count in count_operators(attribute.g).items():
                    counts[name] = counts.get(name, 0) + count
    return counts


def talk(entry, inputs, server, runtimes, seed, result):
    """All that is asked of a server; adds to the result. The runtimes are: what is compared with, the same of the file
    moved as little as rounding would, and ONNX Runtime."""
    oracle, moved_oracles, runtime = runtimes
    failures, name = result["failures"], server.ready.rsplit("models: ", 1)[1].split(",")[0]
    arrays = [draw(entry, inputs, seed, number) for number in range(REQUESTS)]
    requests = [body(of) for of in arrays]
    expected = [oracle.run(of) for of in arrays]
    scales = {
        of: max([np.abs(reply[of][np.isfinite(reply[of])]).max(initial=0) for reply in expected])
        for of in expected[0]
    }

    # A network that amplifies moves by itself: nothing tells its reply better than that.
    moves = [[one.run(moved(of, seed + n)) for of in arrays] for n, one in enumerate(moved_oracles)]
    result["moves"] = max(
        gap(move[of], reply[of], scales[of])
        for each in moves for move, reply in zip(each, expected) for of in reply if reply[of].dtype.kind == "f"
    ) if any(array.dtype.kind == "f" for array in expected[0].values()) else 0.0
    connection = Connection(server, name)
    start = time.monotonic()
    alone = [outputs(connection.send(request)) for request in requests]
    slow = time.monotonic() - start > SLOW_S * REQUESTS
    allowed = max(result["tolerance"], 4 * result["moves"])

    def alike(found, wanted):
        if result["compares_bits"]:
            return same_bits(found, wanted)
        return all(gap(found[of], wanted[of], scales[of]) <= allowed for of in wanted)

    def compare(found, wanted, what):
        worst = max([0.0, *(gap(found[of], wanted[of], scales[of]) for of in wanted if of in found)])
        result["error"] = max(result.get("error", 0.0), worst)
        if found.keys() != wanted.keys() or worst > allowed:
            told = {of: f"{gap(found[of], wanted[of], scales[of]):.1e}" for of in wanted if of in found}
            failures.append(f"{what}: differences {told}")

    for number, (found, wanted) in enumerate(zip(alone, expected)):
        compare(found, wanted, f"request {number}")
    if runtime is not oracle:
        theirs = [runtime.run(of) for of in arrays]
        result["from_runtime"], result["runtime_error"] = (
            max(gap(one[of], two[of], scales[of]) for one, two in zip(ones, twos) for of in two)
            for ones, twos in ((alone, theirs), (theirs, expected))
        )

    def at_once_ms(total, count):
        """Sends the requests again and again, `total` in all and `count` in flight; ms a request."""
        numbers = [number % REQUESTS for number in range(total)]
        replies, seconds = at_once(server, name, [requests[of] for of in numbers], count)
        other = sum(not alike(outputs(reply), alone[of]) for reply, of in zip(replies, numbers))
        if other:
            failures.append(f"{other} of {total} replies have other bits with {count} in flight")
        return 1e3 * seconds / total

    at_once_ms(AT_ONCE, AT_ONCE)
    result["batch"] = ask_batch(entry, inputs, connection, oracle, seed, compare)
    result["sessions"] = ask_session(entry, inputs, connection, seed, failures, alike)
    times, end = [], time.monotonic() + TIMED_S
    while not times or (time.monotonic() < end and len(times) < 50):
        times.append([
            mean_ms(connection.send, requests),
            at_once_ms(IN_FLIGHT if slow else AT_ONCE, IN_FLIGHT),
            mean_ms(runtime.run, arrays),
        ])
    figures = [statistics.median(column) for column in zip(*times)]
    result |= dict(zip(("ms_alone", "ms_at_once", "ms_onnx_runtime"), figures))
    connection.close()


def timed(call, items):
    """Means over the items, again and again for a while, in ms."""
    times, end = [], time.monotonic() + TIMED_S / 2
    while not times or (time.monotonic() < end and len(times) < 50):
        times.append(mean_ms(call, items))
    return times


def mean_ms(call, items):
    start = time.perf_counter()
    for item in items:
        call(item)
    return 1e3 * (time.perf_counter() - start) / len(items)


def ask_batch(entry, inputs, connection, oracle, seed, compare):
    """Sends sequences of one length in one request: "yes", the error, or "" where the file takes no batch."""
    axes = batch_axes(entry, inputs)
    if not axes:
        return ""
    rows = [draw(entry, inputs, seed + 1 + row, 0, batch=1) for row in range(BATCH)]
    batch = rows[0] | {of: np.concatenate([row[of] for row in rows], axis) for of, axis in axes.items()}
    try:
        found = outputs(connection.send(body(batch)))
    except Refused as refused:
        if refused.status != 400:
            raise
        return refused.error
    each = [oracle.run(row) for row in rows]
    compare(found, {of: stacked([row[of] for row in each], array) for of, array in found.items()}, "a batch")
    return "yes"


def ask_session(entry, inputs, connection, seed, failures, alike):
    """Sends a long sequence in chunks: "yes", or the error that the first chunk gets."""
    axis = next(iter(entry.lengths), None)
    steps = {of.name: of.shape.index(axis) for of in inputs if axis in of.shape}
    length = 2 * max(entry.lengths[axis]) if steps else 1
    whole = draw(entry, inputs, seed, 0, lengths={axis: length}, batch=1)
    ends = cuts(np.random.default_rng(seed), length) if steps else [0, 1]
    replies = []
    for first, end in zip(ends, ends[1:]):
        chunk = {of: whole[of].take(range(first, end), at) for of, at in steps.items()}
        if first == 0:
            chunk = {of: array for of, array in whole.items() if of not in steps} | chunk
        flags = {"sequence_id": 1, "sequence_start": first == 0, "sequence_end": end == length}
        try:
            replies.append(outputs(connection.send(body(chunk, **flags))))
        except Refused as refused:
            if first == 0 and refused.status == 400:
                return refused.error
            raise
    alone, found = outputs(connection.send(body(whole))), {}
    for of, array in alone.items():
        longer = [n for n, (one, all_) in enumerate(zip(replies[0][of].shape, array.shape)) if one != all_]
        found |= joined([{of: reply[of]} for reply in replies], longer[0] if longer else 0, [of] if longer else [])
    if not alike(found, alone):
        failures.append(f"a session's bits are not those of the whole sequence of {length} steps")
    return "yes"
