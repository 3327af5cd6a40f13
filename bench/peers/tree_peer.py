"""Runs one configuration of a tree peer and prints one JSON object.

Trees that wait form a batch, up to a limit, whenever a worker is idle; the batch's graphs are merged
and end together (BatchMaker, EuroSys 2018, section 7.5).
"""

import argparse
import bisect
import gc
import json
import multiprocessing
import sys
import time

import numpy as np

import tree_executors
from batcher import wait_until
from peer import MIDDLE, SUSTAINED_SHARE, UsageError, positive, seconds, summary
from tree_executors import EXECUTORS

CHECK_TREES = 64
CHECK_TOLERANCE = 1e-5
# An open loop that still has trees waiting so long after the last arrival is given up.
DRAIN_LIMIT_S = 60.0

EXAMPLE = """\
example:
  python make_tree_lstm.py --hidden 1024 --out tree-1024
  batchmaker bench tree-1024 --workload file:train.txt --saturate --write-trace trees.jsonl
  python tree_peer.py --model tree-1024 --executor dynet --trace trees.jsonl --saturate --seconds 20
"""


def arguments():
    parser = argparse.ArgumentParser(
        description=(
            "Serve a trace of trees by merging the graphs of closed batches, with DyNet or PyTorch.\n"
            "The last line of stdout is one JSON object."
        ),
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--model", required=True, metavar="FOLDER", help="made by make_tree_lstm.py")
    option("--executor", required=True, choices=sorted(EXECUTORS), help="what runs a batch")
    option("--trace", required=True, metavar="FILE", help="trees, as `batchmaker bench` writes them")
    option("--saturate", action="store_true", help="ignore at_s: trees are always waiting")
    option("--seconds", type=seconds, help="with --saturate, end after so long")
    option("--max-batch-size", type=positive, default=64, help="trees in a batch (default: 64)")
    option("--threads", type=positive, default=1, help="threads of an executor (default: 1)")
    option("--workers", type=positive, default=1, help="executors side by side (default: 1)")
    option(
        "--warmup", type=seconds, default=2.0, metavar="SECONDS",
        help="batches before the clock starts (default: 2)",
    )
    option(
        "--check", action="store_true",
        help=f"compare the first {CHECK_TREES} roots with a recursion in float64, and end",
    )
    return parser.parse_args()


def read_trace(path, vocabulary, saturate):
    """Returns (trees, arrivals [trees] in seconds or None where `saturate`). Equal trees are one."""
    trees, arrivals, known = [], [], {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                entry = json.loads(line)
                if "children" not in entry:
                    raise UsageError(f"{path}:{number}: no tree")
                words, children = entry["words"], entry["children"]
                key = json.dumps([words, children, entry["leaves"]])
                if key not in known:
                    # A tree without words is given some.
                    words = words or range(entry["leaves"])
                    words = np.array([word % vocabulary for word in words], np.int64)
                    known[key] = tree_executors.Tree(words, children)
                trees.append(known[key])
                if not saturate:
                    arrivals.append(float(entry["at_s"]))
    except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"cannot read {path}: {error!r}") from None
    if not trees:
        raise UsageError(f"{path}: no trees")
    return trees, None if saturate else arrivals


def serve(args, weights, trees, arrivals, shared):
    """One worker: takes batches until none is left. Puts (members, started, finished) lists."""
    executor = EXECUTORS[args.executor](weights, args.threads)
    clock = time.perf_counter
    random = np.random.default_rng(1)
    end = clock() + args.warmup
    first = True
    while first or clock() < end:
        sample = random.integers(0, len(trees), args.max_batch_size)
        executor.run([trees[tree] for tree in sample])
        first = False
    shared["ready"].wait()
    if shared["zero"].value == 0.0:
        with shared["lock"]:
            if shared["zero"].value == 0.0:
                shared["zero"].value = clock() + 0.05
    zero = shared["zero"].value
    wait_until(zero)
    gc.collect()
    gc.disable()
    cpu, batches, gave_up = time.process_time(), [], False
    while True:
        now = clock() - zero
        if arrivals is None and args.seconds is not None and now > args.seconds:
            break
        if arrivals is not None and now > arrivals[-1] + DRAIN_LIMIT_S:
            gave_up = True
            break
        with shared["lock"]:
            begin = shared["next"].value
            if arrivals is None:
                end_ = begin + args.max_batch_size
            else:
                arrived = bisect.bisect_right(arrivals, now, begin)
                end_ = min(begin + args.max_batch_size, arrived)
                if begin == len(trees):
                    break
            shared["next"].value = end_
        if begin == end_:
            wait_until(zero + arrivals[begin])
            continue
        members = [tree % len(trees) for tree in range(begin, end_)]
        started = clock() - zero
        executor.run([trees[tree] for tree in members])
        batches.append((begin, end_, started, clock() - zero))
    shared["results"].put((batches, time.process_time() - cpu, gave_up))


def run(args, weights, trees, arrivals):
    """Runs all workers; returns their results."""
    context = multiprocessing.get_context("spawn")
    shared = {
        "lock": context.Lock(),
        "next": context.Value("l", 0, lock=False),
        "zero": context.Value("d", 0.0, lock=False),
        "ready": context.Barrier(args.workers),
        "results": context.Queue(),
    }
    processes = [
        context.Process(target=serve, args=(args, weights, trees, arrivals, shared), daemon=True)
        for _ in range(args.workers)
    ]
    for process in processes:
        process.start()
    results = []
    while len(results) < len(processes):
        try:
            results.append(shared["results"].get(timeout=1.0))
        except Exception:
            if any(process.exitcode not in (None, 0) for process in processes):
                sys.exit("tree_peer: a worker died")
    for process in processes:
        process.join()
    return results


def report(args, trees, arrivals, results):
    """The JSON object; the fields are those of `peer.py`. Steps are nodes."""
    batches = sorted(batch for of_worker, _, _ in results for batch in of_worker)
    members = np.concatenate([np.arange(begin, end) for begin, end, _, _ in batches])
    spread = lambda column: np.concatenate(
        [np.full(batch[1] - batch[0], batch[column]) for batch in batches]
    )
    started, finished = spread(2), spread(3)
    nodes = np.array([trees[member % len(trees)].nodes for member in members])
    wall = finished.max()
    if arrivals is None:
        # What is always there arrives when its batch begins.
        arrived, (low, high) = started, (share * wall for share in MIDDLE)
        counted, rate = (finished > low) & (finished <= high), None
        span = high - low
    else:
        arrived = np.array(arrivals)[members]
        counted, span = np.ones(len(members), bool), wall - arrivals[0]
        rate = (len(arrivals) - 1) / arrivals[-1]
    throughput = float(counted.sum() / span)
    gave_up = any(result[2] for result in results)
    busy = sum(batch[3] - batch[2] for batch in batches) / (wall * args.workers)
    return {
        "policy": f"{args.executor}/{args.max_batch_size}",
        "workers": args.workers,
        "threads": args.threads,
        "executor": args.executor,
        "max_batch_size": args.max_batch_size,
        "rate_rps": rate,
        "requests": len(members),
        "errors": 0,
        "throughput_rps": throughput,
        "steps_per_s": float(nodes[counted].sum() / span),
        "latency_ms": summary(finished - arrived),
        "queue_ms": summary(started - arrived),
        "compute_ms": summary(finished - started),
        "batch_mean": len(members) / len(batches),
        "busy": float(busy),
        "cpu_s": sum(result[1] for result in results),
        "sustained": not gave_up and (rate is None or throughput >= SUSTAINED_SHARE * rate),
    }


def check(args, weights, trees):
    """Compares roots with `tree_executors.reference`; returns the worst difference."""
    executor = EXECUTORS[args.executor](weights, args.threads)
    trees = trees[:CHECK_TREES]
    worst = 0.0
    for tree, h in zip(trees, executor.run(trees)):
        expected = tree_executors.reference(weights, tree)
        difference = np.abs(h - expected) / np.maximum(1.0, np.abs(expected))
        worst = max(worst, float(difference.max()))
    return worst


def main():
    args = arguments()
    try:
        weights = tree_executors.load(args.model)
        trees, arrivals = read_trace(args.trace, len(weights.embedding), args.saturate or args.check)
        if args.check:
            worst = check(args, weights, trees)
            if not worst <= CHECK_TOLERANCE:
                sys.exit(f"tree_peer: check failed: {worst:.1e}")
            print(json.dumps({"check": "passed", "worst_difference": worst}))
            return
        print(json.dumps(report(args, trees, arrivals, run(args, weights, trees, arrivals))))
    except (UsageError, OSError, ValueError, KeyError) as error:
        sys.exit(f"tree_peer: {error}")
    except ImportError as error:
        sys.exit(f"tree_peer: {error}; install requirements.txt")
    except KeyboardInterrupt:
        sys.exit("tree_peer: interrupted")


if __name__ == "__main__":
    main()
