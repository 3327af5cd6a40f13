"""How many streams of sound silero-vad serves in real time: each stream sends a chunk every 32 ms.

So many streams are served where 99 of 100 chunks are answered within 32 ms of when they were due,
and no stream falls behind. The number is searched for: doubled while that holds, then halved into.
The systems take turns, a probe each.

  batchmaker         `batchmaker serve`, a session a stream, over HTTP
  batchmaker-bench   `batchmaker bench`: as many chunks a second in its process, no HTTP; they arrive at
                     random, and each is a request of its own, no sessions
  one                ONNX Runtime, a chunk at a time, in processes that are given them, no HTTP
  batch              ONNX Runtime, a batch of all chunks that wait, in such processes, no HTTP
  batch-http         the same behind a server that does no more than it must, over HTTP

What speaks HTTP shares the machine with its client.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import make_silero
import silero_peers
import streams
from speech import Feed

SYSTEMS = ["batchmaker", "batchmaker-bench", "one", "batch", "batch-http"]
LIMIT_MS = 1e3 * make_silero.CHUNK_S
OTHERS_CORES = 0.1  # other processes are told of that use more
SUSTAINED_SHARE = 0.98  # of the rate, for `batchmaker bench`
WARM_S = 1.0  # chunks that are due before are not counted
IDLE_S = 10.0  # others must be idle for so long, after a probe that they disturbed
PATIENCE_S = 1.0  # a chunk that is so late ends a probe
STREAMS_MAX, VOICES, VOICE_CHUNKS = 1 << 17, 32, 300

EXAMPLE = """\
example:
  pip download --no-deps silero-vad
  python silero.py silero_vad-*.whl --batchmaker ../../target/release/batchmaker
"""


class NotStarted(Exception):
    """The server does not serve the model at all."""


class Probes:
    """Runs probes: a system, with so many streams."""

    def __init__(self, args, folder, rate):
        self._args, self._folder, self._rate = args, folder, rate
        sizes = make_silero.chunk(rate)
        self._row = sum(sizes)
        self._feed_of = (STREAMS_MAX, VOICES, VOICE_CHUNKS, rate, sizes, args.seed)
        self._feed = Feed(*self._feed_of)

    def run(self, system, workers, threads, count):
        """{p50_ms, p90_ms, p99_ms, max_ms, behind, ...}"""
        if system == "batchmaker-bench":
            return self._bench(workers, threads, count)
        chunks = round((WARM_S + self._args.seconds) / make_silero.CHUNK_S)
        due_s = streams.schedule(count, chunks, make_silero.CHUNK_S, self._args.seed)
        file = self._folder / "vad.onnx"
        if system in ("one", "batch"):
            limit = 1 if system == "one" else count
            played = silero_peers.in_process(
                file, self._rate, self._feed_of, due_s, limit, workers, threads, PATIENCE_S
            )
        else:
            streams.allow_files(2 * count + 200)
            if system == "batchmaker":
                server = self._serve(workers, threads, count)
            else:
                server = silero_peers.over_http(file, self._rate, self._row, count, workers, threads)
            with server as addresses:
                played = streams.play(addresses, self._folder.name, self._feed, due_s, PATIENCE_S)
        found = streams.judged(due_s, played.latency_s, make_silero.CHUNK_S, WARM_S)
        client = None if played.value is None else played.cpu_s / played.seconds
        return found | {"client_cores": client}

    @contextlib.contextmanager
    def _serve(self, workers, threads, count):
        command = [
            self._args.batchmaker, "serve", self._folder, "--http", "127.0.0.1:0",
            "--metrics", "127.0.0.1:0", "--max-sessions", count, "--max-requests", 2 * count,
            *machine(workers, threads),
        ]
        server = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            ready = re.search(r"http://([^\s,]+)", server.stdout.readline())
            if not ready:
                raise NotStarted(server.stderr.read().strip())
            yield [ready.group(1)]
        finally:
            server.terminate()
            server.wait()

    def _bench(self, workers, threads, count):
        rate = count / make_silero.CHUNK_S
        command = [
            self._args.batchmaker, "bench", self._folder, "--workload", "fixed:1", "--rate", rate,
            "--seconds", self._args.seconds, "--seed", self._args.seed, "--json",
            *machine(workers, threads),
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise NotStarted(done.stderr.strip())
        found = json.loads(done.stdout)
        behind = found["errors"] > 0 or found["throughput_rps"] < SUSTAINED_SHARE * rate
        ms = {f"{key}_ms": found["latency_ms"][key] for key in ("p50", "p90", "p99", "max")}
        return ms | {"behind": int(behind), "client_cores": None}


def machine(workers, threads):
    return ["--workers", workers, "--threads-per-worker", threads]


def search(system, ways, args):
    """Yields probes (system, workers, threads, streams), is sent their results, and returns the best that
    was served. Of several ways to use the cores, one is tried only beyond the best of those before."""
    best = {"system": system, "streams": 0}
    for workers, threads in ways:
        low, high = best["streams"], None
        count = low + step(low, args.tolerance) if low else args.start
        while high is None or high - low > step(low, args.tolerance):
            found = yield system, workers, threads, count
            if is_served(found):
                low = count
                best = {"system": system, "streams": count, "workers": workers, "threads": threads}
                best |= found
            else:
                high = count
            count = 2 * low if high is None else (low + high) // 2
    return best


def is_served(found):
    return found["p99_ms"] <= LIMIT_MS and not found["behind"]


def step(count, tolerance):
    """The least difference that is looked for."""
    return max(1, round(tolerance * count))


def take_turns(searches, probes, tries, others_cores_max):
    """Runs the searches, a probe of each in turn; their results. A probe that fails while others use more
    cores is no try."""
    found, asked = [], [(search, None) for search in searches]
    while asked:
        search, answer = asked.pop(0)
        try:
            probe = search.send(answer)
        except StopIteration as end:
            found.append(end.value)
            continue
        try:
            for _ in range(tries):
                answer = attempt(probes, *probe)
                while not is_served(answer) and answer["other_cores"] > others_cores_max:
                    wait_until_idle(others_cores_max)
                    answer = attempt(probes, *probe)
                if is_served(answer):
                    break
            asked.append((search, answer))
        except NotStarted as error:
            print(f"{probe[0]}: {error}", file=sys.stderr, flush=True)
            found.append({"system": probe[0], "streams": 0})
    return found


def attempt(probes, system, workers, threads, count):
    others = OtherProcesses()
    try:
        found = probes.run(system, workers, threads, count)
        told = f"p50 {found['p50_ms']:.1f} p99 {found['p99_ms']:.1f} ms, {found['behind']} behind"
    except streams.StreamError as error:
        found, told = {"p99_ms": float("inf"), "behind": count}, str(error)
    cores = others.cores()
    if cores > OTHERS_CORES:
        told += f" (other processes used {cores:.2f} cores)"
    print(f"{system} {workers}x{threads}: {count} streams: {told}", file=sys.stderr, flush=True)
    return found | {"other_cores": cores}


class OtherProcesses:
    """How much of the machine others use, beside this process and those that it started and awaited."""

    def __init__(self):
        self._start = self._seconds()

    @staticmethod
    def _seconds():
        with open("/proc/stat") as file:
            numbers = [int(number) for number in file.readline().split()[1:9]]
        idle = numbers[3] + numbers[4]
        mine = sum(os.times()[:4])
        return (sum(numbers) - idle) / os.sysconf("SC_CLK_TCK") - mine, time.perf_counter()

    def cores(self):
        (used, then), (now_used, now) = self._start, self._seconds()
        return max(0.0, now_used - used) / (now - then)


def wait_until_idle(cores_max):
    while True:
        others = OtherProcesses()
        time.sleep(IDLE_S)
        if others.cores() <= cores_max:
            return


def show(best):
    print(
        f"{'system':18}{'workers x threads':>18}{'streams':>9}   {'p50 / p90 / p99 ms':20} "
        "cores of the client, of others"
    )
    for of in best:
        if not of["streams"]:
            print(f"{of['system']:18}{'':18}{0:9}")
            continue
        way = f"{of['workers']} x {of['threads']}"
        ms = " / ".join(f"{of[key]:.1f}" for key in ("p50_ms", "p90_ms", "p99_ms"))
        cores = "" if of["client_cores"] is None else f"{of['client_cores']:.2f}"
        others = f"{of['other_cores']:.2f}"
        print(f"{of['system']:18}{way:>18}{of['streams']:9}   {ms:20} {cores:4}  {others}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("path", metavar="WHEEL|FILE.onnx", help="silero-vad's wheel, or a file of it for 16 kHz")
    option("--model", help="which of the wheel's, as make_silero.py names them (default: the first)")
    option("--batchmaker", default="batchmaker", metavar="PROGRAM", help="(default: on the PATH)")
    option("--systems", default=",".join(SYSTEMS), help="a list (default: %(default)s)")
    option("--seconds", type=float, default=20.0, help="of a probe (default: 20)")
    option("--start", type=int, default=64, help="streams to begin with (default: 64)")
    option("--tolerance", type=float, default=0.05, help="of the number of streams (default: 0.05)")
    option("--tries", type=int, default=2, help="of a probe, before it fails (default: 2)")
    option(
        "--others", type=float, default=float("inf"), metavar="CORES",
        help="a probe that fails while other processes use more is repeated once they use less",
    )
    option("--cores", type=int, default=os.cpu_count(), help="to use (default: %(default)s)")
    option("--seed", type=int, default=1, help="of sound and times (default: 1)")
    option("--json", metavar="FILE", help="also write one object a line to this file")
    args = parser.parse_args()
    systems = args.systems.split(",")
    if unknown := set(systems) - set(SYSTEMS):
        parser.error(f"--systems: {min(unknown)} is none of {', '.join(SYSTEMS)}")
    try:
        models = make_silero.read(args.path)
        name = args.model or next(iter(models))
        if name not in models:
            parser.error(f"--model: {name} is none of {', '.join(models)}")
        ways = list(dict.fromkeys([(args.cores, 1), (1, args.cores), (1, 1)]))
        with tempfile.TemporaryDirectory() as folder:
            model, rate = models[name]
            make_silero.write(Path(folder) / name, model, rate)
            probes = Probes(args, Path(folder) / name, rate)
            searches = [search(of, ways, args) for of in systems]
            best = take_turns(searches, probes, args.tries, args.others)
    except make_silero.SileroError as error:
        sys.exit(f"silero.py: {error}")
    show(sorted(best, key=lambda of: systems.index(of["system"])))
    if args.json:
        with open(args.json, "w") as file:
            for of in best:
                file.write(json.dumps(of | {"model": name, "seed": args.seed}) + "\n")


if __name__ == "__main__":
    main()
