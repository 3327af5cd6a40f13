"""Measures how models and requests share a server: who waits for whom, and for how long.

python tests/python/attacks/sharing.py --server BINARY [--seconds 5] [-- extra serve flags]

Two LSTMs of 256 and of 512 units. One is saturated and the other at a quarter of its peak; then both are
saturated, with equal and with unequal shares, as different models and as one under two names. Last,
requests of up to 65,536 sequences, and a small request beside them. Exits with 1 if a bound is broken.

Each load comes from a process of its own, so that no client waits for another.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import functools
import multiprocessing
import pathlib
import re
import shutil
import sys
import tempfile
import time
import urllib.request

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from attacks import http1, models, work  # noqa: E402  (found by the line above)
from attacks.server import Server  # noqa: E402

STEPS, IN_FLIGHT, TURNS = 60, 256, 3
SEQUENCES = (8_192, 16_384, 32_768, 65_536)


def request(model):
    return work.floats(model, STEPS, 1, models.FEATURES)


class Client:
    """Requests to one server, as coroutines of one process."""

    def __init__(self, address):
        self.address = address

    async def saturate(self, message, seconds, count):
        """`count` requests in flight at all times; returns the replies a second, but for the first half
        second."""
        end, done = time.monotonic() + seconds, []

        async def one():
            reader, writer = await asyncio.open_connection(*self.address)
            while time.monotonic() < end:
                status, _, _ = await http1.exchange(reader, writer, message)
                assert status == 200, status
                done.append(time.monotonic())
            writer.close()

        begun = time.monotonic() + 0.5
        await asyncio.gather(*(one() for _ in range(count)))
        return sum(begun < at < end for at in done) / (end - begun)

    async def once(self, message):
        """The time of one request."""
        began = time.monotonic()
        reader, writer = await asyncio.open_connection(*self.address)
        status, _, _ = await http1.exchange(reader, writer, message)
        assert status == 200, status
        writer.close()
        return time.monotonic() - began

    async def arrive(self, message, rate, seconds, seed=1):
        """Requests that arrive as a Poisson process; returns their times from when they should have
        been sent."""
        free, times, tasks = [], [], []

        async def one(due):
            reader, writer = free.pop() if free else await asyncio.open_connection(*self.address)
            status, _, _ = await http1.exchange(reader, writer, message)
            assert status == 200, status
            times.append(time.monotonic() - due)
            free.append((reader, writer))

        gaps, due = np.random.default_rng(seed), time.monotonic()
        end = due + seconds
        while (due := due + gaps.exponential(1 / rate)) < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(asyncio.create_task(one(due)))
        await asyncio.gather(*tasks)
        for _, writer in free:
            writer.close()
        return np.percentile(times, 99), len(times)


def call(address, name, *arguments):
    """What the coroutine of that name of a client returns; runs in a process of its own."""
    return asyncio.run(getattr(Client(address), name)(*arguments))


@contextlib.contextmanager
def serving(binary, arguments):
    """Starts a server; yields a function that calls coroutines of clients in other processes, and it."""
    server = Server(binary, arguments)
    spawn = multiprocessing.get_context("spawn")
    try:
        with concurrent.futures.ProcessPoolExecutor(2, spawn) as pool:
            list(pool.map(time.sleep, [0.5, 0.5]))
            yield functools.partial(pool.submit, call, (server.host, server.port)), server
    finally:
        status = server.stop(30)
        assert status == 0, status


def neighbours(client, seconds):
    """The peak of each model alone, and the p99 of the smaller one beside the other, in turns with that
    alone; what is broken in the median turn."""
    saturate = lambda model: client("saturate", request(model), seconds, IN_FLIGHT)
    peaks = {model: saturate(model).result() for model in ("small", "large")}
    rate = peaks["small"] / 4
    small = lambda: client("arrive", request("small"), rate, seconds)
    longest = max(client("once", request("large")).result() for _ in range(5))
    print(
        f"peaks: small {peaks['small']:.0f}/s, large {peaks['large']:.0f}/s; a request of the large one "
        f"alone takes {1e3 * longest:.1f} ms"
    )
    turns = []
    for _ in range(TURNS):
        alone, _ = small().result()
        load = client("saturate", request("large"), seconds + 1.0, IN_FLIGHT)
        time.sleep(0.5)
        beside, count = small().result()
        load.result()
        turns.append((beside - 3 * alone - longest, alone, beside))
        print(
            f"small at {rate:.0f}/s: p99 {1e3 * alone:.1f} ms alone, {1e3 * beside:.1f} ms beside the "
            f"saturated large one, {count} requests"
        )
    beyond, _, beside = sorted(turns)[TURNS // 2]
    return [f"p99 of {1e3 * beside:.1f} ms beside the large one"] if beyond > 0 else []


def worker_us(server):
    """The time of workers on the tasks of each model since the start, in microseconds."""
    with urllib.request.urlopen(server.metrics_url, timeout=30) as response:
        text = response.read().decode()
    found = re.findall(r'batchmaker_worker_microseconds_total{model="(\w+)"} (\d+)', text)
    return {model: int(us) for model, us in found}


def both(client, server, names, weights, seconds):
    """The part of the workers' time that the first of two saturated models has."""
    loads = [client("saturate", request(name), seconds + 2.0, IN_FLIGHT) for name in names]
    time.sleep(1.5)
    before = worker_us(server)
    time.sleep(seconds - 0.5)
    after = worker_us(server)
    rates = [load.result() for load in loads]
    took = [after[name] - before[name] for name in names]
    share, wanted = took[0] / sum(took), weights[0] / sum(weights)
    print(
        f"{' and '.join(names)} with shares {weights}: {rates[0]:.0f}/s and {rates[1]:.0f}/s, "
        f"{share:.3f} of the workers' time for the first, {wanted:.3f} wanted"
    )
    least = min(wanted, 1 - wanted)
    return [f"a share of {share:.3f}"] if abs(share - wanted) > 0.1 * least else []


def large_requests(client):
    """The time of requests of many sequences, and the p99 of a small one beside the largest."""
    took = []
    for sequences in SEQUENCES:
        message = work.tokens(sequences, 1)
        took.append(min(client("once", message).result() for _ in range(3)))
    print("sequences of one step: " + ", ".join(
        f"{sequences} in {1e3 * time:.0f} ms" for sequences, time in zip(SEQUENCES, took, strict=True)
    ))
    load = client("saturate", work.tokens(SEQUENCES[-1], 1), 9.0, 1)
    beside, count = client("arrive", work.tokens(1, 20), 50, 8).result()
    load.result()
    print(f"one of 20 steps beside the largest: p99 {1e3 * beside:.1f} ms of {count} requests")
    broken = [] if took[-1] < 1.5 * took[0] * SEQUENCES[-1] / SEQUENCES[0] else [f"times {took}"]
    return broken + ([f"p99 of {1e3 * beside:.1f} ms beside large requests"] if beside > 0.05 else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="the binary")
    parser.add_argument("--seconds", type=float, default=5.0, help="the time of each measurement")
    parser.add_argument("flags", nargs="*", help="flags of the server, after --")
    asked = parser.parse_args()
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        small, large, twin = (folder / f"{name}.onnx" for name in ("small", "large", "twin"))
        models.recurrent(small, hidden=256)
        models.recurrent(large)
        shutil.copy(small, twin)
        tokens = folder / "tokens.onnx"
        shutil.copy(models.ROOT / "models/langid/model.onnx", tokens)
        with serving(asked.server, [small, large, *asked.flags]) as (client, server):
            broken += neighbours(client, asked.seconds)
            broken += both(client, server, ("small", "large"), (1, 1), asked.seconds)
        with serving(asked.server, [small, large, "--share", "small=3", *asked.flags]) as (client, server):
            broken += both(client, server, ("small", "large"), (3, 1), asked.seconds)
        with serving(asked.server, [small, twin, "--share", "small=2", *asked.flags]) as (client, server):
            broken += both(client, server, ("small", "twin"), (2, 1), asked.seconds)
        with serving(asked.server, [tokens, *asked.flags]) as (client, _):
            broken += large_requests(client)
    for line in broken:
        print(f"broken: {line}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
