"""Runs one configuration of the graph-batching peer and prints one JSON object."""

import argparse
import json
import os
import sys

import numpy as np

import batcher
import model
import pairs
from executors import EXECUTORS

CHECK_REQUESTS = 40
CHECK_TOLERANCE = 1e-5
# Tokens that are ahead of the second best by less may be another's in float32.
CHECK_MARGIN = 1e-4
# The saturated throughput is counted between these shares of the run's wall time.
MIDDLE = (0.1, 0.9)
# An open loop is sustained where it completes at least this share of the offered rate.
SUSTAINED_SHARE = 0.95

EXAMPLE = """\
example:
  python make_lstm.py --hidden 256 --out lstm256.onnx
  python peer.py --model lstm256.onnx --executor onnxruntime --check
  python peer.py --model lstm256.onnx --executor onnxruntime --trace trace.jsonl
"""


class UsageError(Exception):
    """The arguments or the trace cannot be used."""


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def seconds(text):
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds, 0 or more")
    return value


def arguments():
    parser = argparse.ArgumentParser(
        description=(
            "Serve a trace of requests by graph batching with buckets, over ONNX Runtime's or\n"
            "PyTorch's LSTM, or an encoder-decoder in ONNX Runtime.\n"
            "The last line of stdout is one JSON object."
        ),
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option(
        "--model", required=True, metavar="PATH",
        help="a file made by make_lstm.py or a folder made by make_encoder_decoder.py",
    )
    option("--executor", required=True, choices=sorted(EXECUTORS), help="what runs a batch")
    option(
        "--trace", metavar="FILE",
        help='JSON lines {"at_s": seconds or null, "length": steps}, ascending in at_s; for an '
        'encoder-decoder also "target": steps',
    )
    option(
        "--saturate", action="store_true",
        help="ignore at_s and keep so many requests waiting or running as --in-flight says",
    )
    option(
        "--seconds", type=seconds,
        help="with --saturate, end after so long (default: at the end of the trace)",
    )
    option(
        "--in-flight", type=positive,
        help="with --saturate, requests waiting or running (default: 4 * max-batch-size)",
    )
    option("--max-batch-size", type=positive, default=64, help="requests in a batch (default: 64)")
    option("--width", type=positive, default=10, help="lengths in a bucket (default: 10)")
    option("--threads", type=positive, default=2, help="threads of an executor (default: 2)")
    option("--workers", type=positive, default=1, help="executors side by side (default: 1)")
    option(
        "--warmup", type=seconds, default=2.0, metavar="SECONDS",
        help="batches of assorted shapes before the clock starts (default: 2)",
    )
    option("--seed", type=int, default=1, help="seed of the input values (default: 1)")
    option(
        "--check", action="store_true",
        help=f"compare {CHECK_REQUESTS} replies with a float64 LSTM in numpy; needs no trace",
    )
    return parser.parse_args()


def read_trace(path, saturate):
    """Returns (lengths [requests] int32, targets the same, 0 where there is none, arrivals
    [requests] float64 or None where `saturate`)."""
    lengths, targets, arrivals = [], [], []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                where = f"{path}:{number}"
                try:
                    entry = json.loads(line)
                    at_s, length = entry["at_s"], entry["length"]
                except (ValueError, KeyError, TypeError):
                    raise UsageError(f'{where}: expected {{"at_s": ..., "length": ...}}') from None
                if type(length) is not int or length < 1:
                    raise UsageError(f"{where}: length must be an integer of at least 1")
                lengths.append(length)
                targets.append(entry.get("target", 0))
                if saturate:
                    continue
                if type(at_s) not in (int, float):
                    raise UsageError(f"{where}: at_s must be a number without --saturate")
                if not (arrivals[-1] if arrivals else 0.0) <= at_s < float("inf"):
                    raise UsageError(f"{where}: at_s must be 0 or more, and ascend")
                arrivals.append(float(at_s))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if not lengths:
        raise UsageError(f"{path}: no requests")
    arrivals = None if saturate else np.array(arrivals)
    return np.array(lengths, np.int32), np.array(targets, np.int32), arrivals


def summary(seconds_):
    """Mean, percentiles (linear) and maximum in milliseconds of durations [requests]."""
    ms = 1e3 * seconds_
    p50, p90, p99 = np.percentile(ms, [50, 90, 99])
    values = {"mean": ms.mean(), "p50": p50, "p90": p90, "p99": p99, "max": ms.max()}
    return {name: round(float(value), 4) for name, value in values.items()}


def report(args, steps, arrivals, run):
    """The JSON object of a `batcher.Run` of requests of so many steps.

    `queue_ms` ends where the batch starts, and `compute_ms` covers the rest: gathering, the
    executor, copying out the replies. `busy` is the share of the wall time so spent.
    """
    done = ~np.isnan(run.finished)
    arrived, started, finished = run.arrived[done], run.started[done], run.finished[done]
    first = 0.0 if args.saturate else arrivals[0]
    wall = finished.max() - first
    rate = None
    if args.saturate:
        low, high = (share * wall for share in MIDDLE)
        counted = done & (run.finished > low) & (run.finished <= high)
        span = high - low
        if len(steps) == done.sum() and run.entered_s < high:
            print(
                "peer: the trace is short: its last request entered before the end of the middle"
                " 80 % of the run, which was thus not saturated throughout",
                file=sys.stderr,
            )
    else:
        counted, span = done, wall
        if arrivals[-1] > 0:
            rate = (len(arrivals) - 1) / float(arrivals[-1])
    throughput = float(counted.sum() / span)
    members = sum(len(of) for of, _, _ in run.batches)
    all_steps = sum(len(of) * time for of, time, _ in run.batches)
    real_steps = int(steps[done].sum())
    return {
        "policy": f"{args.executor}/{args.max_batch_size}/w{args.width}",
        "workers": args.workers,
        "executor": args.executor,
        "max_batch_size": args.max_batch_size,
        "width": args.width,
        "rate_rps": rate,
        "requests": int(done.sum()),
        "errors": 0,
        "throughput_rps": throughput,
        "steps_per_s": float(steps[counted].sum() / span),
        "latency_ms": summary(finished - arrived),
        "queue_ms": summary(started - arrived),
        "compute_ms": summary(finished - started),
        "batch_mean": members / len(run.batches),
        "padding_share": (all_steps - real_steps) / all_steps,
        "busy": float(sum(time_s for _, _, time_s in run.batches) / (wall * args.workers)),
        "cpu_s": run.cpu_s,
        "sustained": not run.gave_up and (rate is None or throughput >= SUSTAINED_SHARE * rate),
    }


def start(args, weights, lengths, limit):
    """The services of all workers, each with an executor of its own. All draw the same inputs."""
    executors = (EXECUTORS[args.executor](weights, args.threads) for _ in range(args.workers))
    return [
        batcher.Service(executor, lengths, weights.input_size, limit, args.seed)
        for executor in executors
    ]


def start_pairs(args, weights, lengths, targets):
    """The same of encoder-decoders."""
    executors = (pairs.OnnxRuntime(weights, args.threads) for _ in range(args.workers))
    return [
        pairs.Service(executor, lengths, targets, weights.vocabulary, args.seed)
        for executor in executors
    ]


def check_pairs(args, weights):
    """Serves assorted pairs and compares their tokens with `pairs.reference`. Returns as `check`."""
    random = np.random.default_rng(args.seed)
    lengths, targets = random.integers(1, 3 * args.width, (2, CHECK_REQUESTS)).astype(np.int32)
    services, replies = start_pairs(args, weights, lengths, targets), []
    batcher.run(
        services, lengths, np.zeros(CHECK_REQUESTS), width=args.width,
        max_batch_size=min(args.max_batch_size, 8), keep=replies,
    )
    if sorted(request for request, _ in replies) != list(range(CHECK_REQUESTS)):
        return False, "not every request was answered once"
    for request, reply in replies:
        words = services[0].words(request)
        tokens, margins = pairs.reference(weights, words, targets[request])
        if len(reply) != len(tokens):
            return False, f"request {request} has {len(reply)} words of {len(tokens)}"
        wrong = np.flatnonzero(tokens != reply)
        if len(wrong) and margins[wrong[0]] > CHECK_MARGIN:
            return False, f"request {request} has another word at {wrong[0]}"
    return True, json.dumps({"check": "passed", "requests": len(replies)})


def check(args, weights):
    """Serves assorted lengths and compares each reply with `model.reference`.

    Returns (passed, line). All requests wait at the start and a batch holds at most 8 of them, so
    that full and partial batches with padding occur, however fast the executor is.
    """
    random = np.random.default_rng(args.seed)
    limit = min(args.max_batch_size, 8)
    edges = [1, args.width, args.width + 1, 5 * args.width]
    others = random.integers(1, 5 * args.width + 1, CHECK_REQUESTS - len(edges))
    lengths = random.permutation([*edges, *others]).astype(np.int32)
    arrivals = np.zeros(CHECK_REQUESTS)
    services = start(args, weights, lengths, limit)
    service = services[0]
    replies = []
    run = batcher.run(
        services, lengths, arrivals, width=args.width, max_batch_size=limit, keep=replies
    )
    if sorted(request for request, _ in replies) != list(range(CHECK_REQUESTS)):
        return False, "not every request was answered once"
    worst = 0.0
    for request, reply in replies:
        expected = model.reference(weights, service.rows(request))
        error = np.abs(reply - expected) / np.maximum(1.0, np.abs(expected))
        worst = max(worst, error.max())
        if not np.all(error <= CHECK_TOLERANCE):
            length = lengths[request]
            return False, f"request {request} of length {length} differs by {error.max():.1e}"
    return True, json.dumps(
        {
            "check": "passed", "executor": args.executor, "requests": len(replies),
            "batches": len(run.batches), "worst_difference": float(worst),
        }
    )


def main():
    args = arguments()
    try:
        if not args.check and args.trace is None:
            raise UsageError("--trace or --check is needed; see --help")
        of_pairs = os.path.isdir(args.model)
        if of_pairs and args.executor != "onnxruntime":
            raise UsageError("an encoder-decoder is run by onnxruntime only")
        weights = pairs.Weights(args.model) if of_pairs else model.load(args.model)
        if args.check:
            passed, line = (check_pairs if of_pairs else check)(args, weights)
            if not passed:
                sys.exit(f"peer: check failed: {line}")
            print(line)
            return
        lengths, targets, arrivals = read_trace(args.trace, args.saturate)
        if of_pairs:
            if not targets.min() > 0:
                raise UsageError(f"{args.trace}: every request of an encoder-decoder has a target")
            services = start_pairs(args, weights, lengths, targets)
        else:
            services = start(args, weights, lengths, args.max_batch_size)
        for service in services:
            service.warm_up(args.warmup, args.width, args.max_batch_size, args.seed)
        run = batcher.run(
            services, lengths, arrivals, width=args.width, max_batch_size=args.max_batch_size,
            in_flight=args.in_flight or 4 * args.max_batch_size, saturated_s=args.seconds,
        )
        print(json.dumps(report(args, lengths + targets, arrivals, run)))
    except (UsageError, model.ModelError) as error:
        sys.exit(f"peer: {error}")
    except ImportError as error:
        sys.exit(f"peer: {error}; install requirements.txt")
    except KeyboardInterrupt:
        sys.exit("peer: interrupted")


if __name__ == "__main__":
    main()
