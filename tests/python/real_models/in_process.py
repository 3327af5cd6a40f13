"""Times of real ONNX files in the engine's process, without HTTP, beside ONNX Runtime in its own: in turns.

Each file's six requests are replayed by `batchmaker bench --replay`, one at a time and 8 in flight, by the default
number of workers and threads or by one thread. Values and bits are compared by check.py, over HTTP.

examples:
  python in_process.py --json times.json
  python in_process.py --threads 1 --only MiniLM --only resnet50
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "generated")]

import conftest  # noqa: E402
from catalogue import FILES  # noqa: E402
from comparing import Runtime  # noqa: E402
from drawing import REQUESTS, draw, inputs_of  # noqa: E402
from one_file import IN_FLIGHT, mean_ms, timed, with_row  # noqa: E402
from packages import extract  # noqa: E402
from ratios import ratios  # noqa: E402

DATATYPES = {
    "float32": "FP32", "float64": "FP64", "float16": "FP16", "int64": "INT64", "int32": "INT32", "int8": "INT8",
    "uint8": "UINT8", "bool": "BOOL",
}

FEW = 25 * IN_FLIGHT


def line(arrays):
    """A request as `batchmaker run` takes it."""
    inputs = [
        {"name": name, "shape": list(of.shape), "datatype": DATATYPES[of.dtype.name], "data": of.ravel().tolist()}
        for name, of in arrays.items()
    ]
    return json.dumps({"inputs": inputs})


def replay(served, requests, count, in_flight, args):
    """The report of a run of `count` requests."""
    command = [conftest.BINARY, "bench", served, "--replay", requests, "--saturate", "--in-flight", str(in_flight)]
    command += ["--requests", str(count), "--json", *args.options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


def per_request(report, count):
    """Milliseconds a request of a run of `count`, `IN_FLIGHT` at a time."""
    if count < FEW:
        # The time until the last batches, which are smaller, have ended would count for much.
        return report["latency_ms"]["mean"] / IN_FLIGHT
    return 1e3 / report["throughput_rps"]


def times(entry, path, args):
    """Milliseconds a request, as check.py names them."""
    model = onnx.load(path)
    served = with_row(path, entry.row) if entry.row else path
    arrays = [draw(entry, inputs_of(model), args.seed, number) for number in range(REQUESTS)]
    runtime, turns = Runtime(path), []
    mean_ms(runtime.run, arrays)
    count = int(np.clip(1e3 * args.seconds / mean_ms(runtime.run, arrays), 8 * IN_FLIGHT, 4000))
    with tempfile.TemporaryDirectory() as folder:
        requests = pathlib.Path(folder) / "requests.jsonl"
        requests.write_text("\n".join(map(line, arrays)))
        for _ in range(args.turns):
            alone, at_once = (replay(served, requests, count, of, args) for of in (1, IN_FLIGHT))
            theirs = statistics.mean(timed(runtime.run, arrays))
            # Loaded in each turn, and let go of: its second thread spins while it has nothing to do.
            on_two = Runtime(path, threads=2)
            mean_ms(on_two.run, arrays)
            theirs_on_2 = statistics.mean(timed(on_two.run, arrays))
            del on_two
            turns.append([alone["latency_ms"]["mean"], per_request(at_once, count), theirs, theirs_on_2])
    names = ("ms_alone", "ms_at_once", "ms_onnx_runtime", "ms_onnx_runtime_2")
    return dict(zip(names, np.median(turns, axis=0).tolist()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--server", type=pathlib.Path, default=conftest.BINARY, help="the binary (default: %(default)s)")
    option("--cache", type=pathlib.Path, default=conftest.ROOT / "target/real-models", help="the folder of archives")
    option("--only", action="append", metavar="SUBSTRING", help="only files whose path contains this; repeatable")
    option("--threads", type=int, help="run one worker with this number of threads (default: the engine chooses)")
    option("--executor", help="what runs programs, as the server's option")
    option("--seconds", type=float, default=1.0, help="of each run, about: the first tenths are slower (default: %(default)s)")
    option("--turns", type=int, default=3, help="(default: %(default)s)")
    option("--seed", type=int, default=1, help="of the inputs (default: 1)")
    option("--json", type=pathlib.Path, help="write all results to this file")
    args = parser.parse_args()
    conftest.BINARY = args.server.resolve()
    args.options = ["--workers", "1", "--threads-per-worker", str(args.threads)] if args.threads else []
    args.options += ["--executor", args.executor] if args.executor else []
    results = []
    for entry in FILES:
        name = f"{entry.package}/{entry.path}"
        if args.only and not any(text in name for text in args.only):
            continue
        result = {"package": entry.package, "path": entry.path, "served": True}
        try:
            result |= times(entry, extract(args.cache.resolve(), entry), args)
            told = ", ".join(f"{of[3:]} {ms:.3f}" for of, ms in result.items() if of.startswith("ms_"))
        except (RuntimeError, KeyError) as error:
            told = f"not timed: {error}"
        results.append(result)
        print(f"{name}: {told}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    for of in ratios(results):
        print(of)


if __name__ == "__main__":
    main()
