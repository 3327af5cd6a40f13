"""Graph batching with buckets (BatchMaker, EuroSys 2018, section 7.1).

Requests wait in buckets of similar length. Whenever an executor is idle, the next bucket in
round robin that holds a request gives a batch, which runs padded to its own longest member and
ends as a whole. No request joins or leaves it on the way.
"""

import gc
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

POOL_ROWS = 8192
# An open loop that still has requests waiting so long after the last arrival is given up.
DRAIN_LIMIT_S = 60.0
# The end of a wait is spun, since a sleeping thread wakes up late.
SPIN_S = 0.0002


class Buckets:
    """The waiting requests. Bucket i holds the lengths i*width + 1 ..= (i + 1)*width."""

    def __init__(self, width, longest):
        self._width = width
        self._queues = [deque() for _ in range((longest - 1) // width + 1)]
        self._next = 0
        self.waiting = 0

    def add(self, request, length):
        self._queues[(length - 1) // self._width].append(request)
        self.waiting += 1

    def take(self, limit):
        """Up to `limit` requests, in order of arrival, of the bucket whose turn it is.

        The search starts after the bucket served last; empty buckets lose their turn. Returns an
        empty list where nothing waits.
        """
        if not self.waiting:
            return []
        count = len(self._queues)
        for i in range(self._next, self._next + count):
            queue = self._queues[i % count]
            if queue:
                self._next = (i + 1) % count
                members = [queue.popleft() for _ in range(min(limit, len(queue)))]
                self.waiting -= len(members)
                return members


class Service:
    """Gathers the inputs of a batch, runs it, and hands out the replies.

    Request k has the rows pool[start[k] : start[k] + lengths[k]]. All are drawn up front.
    """

    def __init__(self, executor, lengths, input_size, max_batch_size, seed):
        random = np.random.default_rng(seed)
        longest = int(lengths.max())
        rows = max(POOL_ROWS, 2 * longest)
        self._executor = executor
        self._lengths = lengths  # [requests] int32
        self._starts = random.integers(0, rows - lengths + 1)  # [requests] int64
        # The row behind the pool is zero; it is what padding reads.
        self._pool = random.standard_normal((rows + 1, input_size), dtype=np.float32)
        self._pool[rows] = 0.0
        self._zero_row = rows
        self._steps = np.arange(longest)[:, None]
        self._buffer = np.zeros(longest * max_batch_size * input_size, np.float32)

    def rows(self, request):
        """The input [length, input] of one request."""
        start = self._starts[request]
        return self._pool[start : start + self._lengths[request]]

    def run(self, members):
        """Runs one batch of requests. Returns (replies, time): each reply its own array."""
        lengths = self._lengths[members]
        time_ = int(lengths.max())
        shape = (time_, len(members), self._pool.shape[1])
        x = self._buffer[: shape[0] * shape[1] * shape[2]].reshape(shape)
        steps = self._steps[:time_]
        row = np.where(steps < lengths, self._starts[members] + steps, self._zero_row)
        # One call copies the rows of all members and the padding; "clip" writes in place.
        np.take(self._pool, row, axis=0, out=x, mode="clip")
        h = self._executor.run(x, lengths)
        return [reply.copy() for reply in h], time_

    def warm_up(self, seconds, width, max_batch_size, seed):
        """Runs batches of assorted sizes and buckets, beginning with the largest of all."""
        random = np.random.default_rng(seed)
        order = np.argsort(self._lengths, kind="stable")
        end = time.perf_counter() + seconds
        members = order[-max_batch_size:]
        bucket = (self._lengths[order] - 1) // width
        while time.perf_counter() < end:
            self.run(members)
            of = random.choice(bucket)
            low, high = np.searchsorted(bucket, [of, of + 1])
            size = random.integers(1, max_batch_size + 1)
            members = order[random.integers(low, high, size)]


@dataclass
class Run:
    """What happened. Times are in seconds since the start of the run."""

    arrived: np.ndarray  # [requests]; the intended arrival, or the entry where saturated
    started: np.ndarray  # [requests]; the batch's start, NaN where it never ran
    finished: np.ndarray  # [requests]; its replies exist, NaN where it never ran
    batches: list = field(default_factory=list)  # (members, time, seconds) of each batch
    cpu_s: float = 0.0
    entered_s: float = 0.0  # the last request was in a bucket
    gave_up: bool = False


def run(
    services, lengths, arrivals, *, width, max_batch_size, in_flight=None, saturated_s=None,
    keep=None,
):
    """Serves every request once, on as many threads as there are services. Returns a `Run`.

    With `arrivals` [requests], ascending seconds: open loop; the clock of a request starts at its
    intended arrival, however late it is noticed. With None: saturated; `in_flight` requests wait or
    run at any time until none is left, or for `saturated_s`. `keep` is a list that receives
    (request, reply).
    """
    count = len(lengths)
    saturated = arrivals is None
    result = Run(
        arrived=np.zeros(count) if saturated else arrivals,
        started=np.full(count, np.nan),
        finished=np.full(count, np.nan),
    )
    buckets = Buckets(width, int(lengths.max()))
    length_of = lengths.tolist()
    arrival_of = None if saturated else arrivals.tolist()
    entered = completed = 0
    progress = Progress(count)
    lock = threading.Lock()
    clock = time.perf_counter
    zero = clock()

    def admit(now):
        """Moves what has arrived by `now` into its bucket."""
        nonlocal entered
        while entered < count and (
            entered - completed < in_flight if saturated else arrival_of[entered] <= now
        ):
            if saturated:
                result.arrived[entered] = now
            buckets.add(entered, length_of[entered])
            entered += 1
            result.entered_s = now

    def is_over(now):
        if saturated_s is not None and now > saturated_s:
            return True
        if not saturated and buckets.waiting and now > arrival_of[-1] + DRAIN_LIMIT_S:
            result.gave_up = True
        return result.gave_up or (entered == count and not buckets.waiting)

    def loop(service):
        nonlocal completed
        while True:
            with lock:
                now = clock() - zero
                admit(now)
                if is_over(now):
                    return
                members = buckets.take(max_batch_size)
                coming = arrival_of[entered] if not members and not saturated else now
            if not members:
                # Saturated, others run all that is in flight.
                wait_until(zero + coming) if coming > now else time.sleep(SPIN_S)
                continue
            start = clock() - zero
            replies, time_ = service.run(members)
            end = clock() - zero
            with lock:
                result.started[members] = start
                result.finished[members] = end
                result.batches.append((members, time_, end - start))
                completed += len(members)
                if keep is not None:
                    keep.extend(zip(members, replies))
                progress.show(completed, end)

    gc.collect()
    gc.disable()
    cpu = time.process_time()
    try:
        others = [threading.Thread(target=loop, args=[service]) for service in services[1:]]
        for other in others:
            other.start()
        loop(services[0])
        for other in others:
            other.join()
    finally:
        gc.enable()
        progress.end()
    result.cpu_s = time.process_time() - cpu
    return result


def wait_until(instant):
    """Returns at `instant` of `time.perf_counter`, or at once where it has passed."""
    rest = instant - time.perf_counter()
    if rest > SPIN_S:
        time.sleep(rest - SPIN_S)
    while time.perf_counter() < instant:
        pass


class Progress:
    """One line on stderr, renewed every second, where that is a terminal."""

    def __init__(self, count):
        self._count = count
        self._next_s = 1.0 if sys.stderr.isatty() else float("inf")
        self._shown = False

    def show(self, completed, now_s):
        if now_s >= self._next_s:
            print(f"\r{completed}/{self._count} requests, {now_s:.0f} s", end="", file=sys.stderr)
            self._next_s, self._shown = now_s + 1.0, True

    def end(self):
        if self._shown:
            print(file=sys.stderr)
