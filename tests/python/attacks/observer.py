"""A process that asks for health and sends ordinary requests, and measures the replies."""

import asyncio
import dataclasses
import time

import numpy as np

from attacks import http1, ordinary

PAUSE, INTERVAL, HEALTH_PAUSE, CLIENTS = 0.02, 0.025, 0.05, 4


@dataclasses.dataclass
class Seen:
    """What was seen in one phase; times in seconds."""

    live: list = dataclasses.field(default_factory=list)
    metrics: list = dataclasses.field(default_factory=list)
    times: list = dataclasses.field(default_factory=list)
    right: int = 0
    refused: int = 0
    wrong: int = 0
    hung: int = 0
    lag: float = 0.0
    examples: list = dataclasses.field(default_factory=list)

    def remember(self, what):
        if len(self.examples) < 5:
            self.examples.append(what[:300])

    def p99(self):
        """The 99th percentile, with the requests that a client would have sent while it waited."""
        times = [time - late for time in self.times for late in np.arange(0.0, time, INTERVAL)]
        return float(np.percentile(times, 99)) if times else 0.0


class Kept:
    """A connection that is opened when a request needs it."""

    def __init__(self, address):
        self.address, self.reader, self.writer = address, None, None

    async def ask(self, request):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(*self.address)
        status, headers, body = await http1.exchange(self.reader, self.writer, request)
        if headers.get("connection") == "close":
            self.close()
        return status, body

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.writer = None


class Observer:
    """Clients that run all the time; they record while `seen` is there."""

    def __init__(self, host, port, metrics_port):
        self.address, self.metrics_address = (host, port), (host, metrics_port)
        self.seen = None
        self.on = asyncio.Event()
        self.busy = {}
        self.expected = {}

    async def timed(self, kind, work):
        """Runs `work` and returns its result and its time, under the name of what is under way."""
        while (seen := self.seen) is None:
            await self.on.wait()
        began, key = time.monotonic(), object()
        self.busy[key] = (kind, began, seen)
        try:
            return await work, time.monotonic() - began, seen
        finally:
            del self.busy[key]

    async def fresh(self, address, request):
        client = Kept(address)
        try:
            return await client.ask(request)
        finally:
            client.close()

    async def health(self, kept):
        """Asks for health on a connection that is kept, or on a new one each time."""
        client, request = Kept(self.address), http1.get("/v2/health/live")
        while True:
            await self.on.wait()
            began = time.monotonic()
            try:
                work = client.ask(request) if kept else self.fresh(self.address, request)
                (status, _), spent, seen = await self.timed("live", work)
                if status != 200:
                    seen.wrong += 1
                    seen.remember(f"live answered {status}")
                seen.live.append(spent)
            except (OSError, EOFError) as error:
                if self.seen is not None:
                    self.seen.wrong += 1
                    self.seen.remember(f"live ({'kept' if kept else 'fresh'}): {error!r}")
                client.close()
            await asyncio.sleep(max(0.0, began + HEALTH_PAUSE - time.monotonic()))

    async def metrics(self):
        while True:
            await self.on.wait()
            try:
                work = self.fresh(self.metrics_address, http1.get("/metrics"))
                (status, _), spent, seen = await self.timed("metrics", work)
                seen.metrics.append(spent if status == 200 else float("inf"))
            except (OSError, EOFError) as error:
                if self.seen is not None:
                    self.seen.wrong += 1
                    self.seen.remember(f"metrics: {error!r}")
            await asyncio.sleep(0.5)

    async def lag(self):
        """How late this process itself is, which is no fault of the server's."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            if self.seen is not None:
                self.seen.lag = max(self.seen.lag, time.monotonic() - began - 0.005)

    async def ordinary(self, index):
        pairs, turn, client = ordinary.requests(), index, Kept(self.address)
        while True:
            await self.on.wait()
            request, answer = pairs[turn % len(pairs)]
            turn += 1
            try:
                (status, body), spent, seen = await self.timed("ordinary", client.ask(request))
                seen.times.append(spent)
                if status == 503:
                    seen.refused += 1
                    seen.remember(f"503: {body[:200]!r}")
                elif status == 200 and answer in body and body == self.expected.setdefault(request, body):
                    seen.right += 1
                else:
                    seen.wrong += 1
                    seen.remember(f"{status}: {body[:200]!r}")
            except (OSError, EOFError) as error:
                if self.seen is not None:
                    self.seen.wrong += 1
                    self.seen.remember(f"ordinary: {error!r}")
                client.close()
            await asyncio.sleep(PAUSE)

    async def serve(self, pipe):
        loop = asyncio.get_running_loop()
        tasks = [self.health(True), self.health(False), self.metrics(), self.lag()]
        tasks = [asyncio.create_task(task) for task in tasks]
        tasks += [asyncio.create_task(self.ordinary(index)) for index in range(CLIENTS)]
        pipe.send("ready")
        while (command := await loop.run_in_executor(None, pipe.recv)) is not None:
            if command == "begin":
                self.seen = Seen()
                self.on.set()
            else:
                pipe.send(await self.end(patience=command))
        for task in tasks:
            task.cancel()

    async def end(self, patience):
        """Waits for what is under way, counts what does not come, and returns what was seen."""
        seen, deadline = self.seen, time.monotonic() + patience
        self.on.clear()
        while self.busy and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for kind, began, _ in self.busy.values():
            spent = time.monotonic() - began
            {"live": seen.live, "metrics": seen.metrics, "ordinary": seen.times}[kind].append(spent)
            seen.hung += 1
            seen.remember(f"{kind}: no reply for {spent:.1f} s")
        self.seen = None
        return seen


def main(host, port, metrics_port, pipe):
    async def run():
        await Observer(host, port, metrics_port).serve(pipe)

    try:
        asyncio.run(run())
    except (EOFError, KeyboardInterrupt):
        pass
