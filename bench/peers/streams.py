"""Plays many streams at once: each sends a chunk every so often, as one session, over HTTP.

One thread and `epoll`, so that a core sends tens of thousands of chunks a second. Every stream has
a connection of its own. A chunk is sent when it is due and the chunk before it is answered, and its
latency counts from when it was due, whatever was in the way. `epoll` sleeps a millisecond at least,
so chunks that are due within one are sent together.
"""

import gc
import json
import re
import resource
import select
import socket
import struct
import time
from dataclasses import dataclass

import numpy as np

LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
LAST_NUMBER = struct.Struct("<f")
LOOK_S = 0.2  # how often to look whether a chunk is too late


class StreamError(Exception):
    """The server did not answer as it should."""


@dataclass
class Played:
    """What happened. Chunks that were not answered have NaN."""

    due_s: np.ndarray  # [streams, chunks], since the start
    latency_s: np.ndarray  # [streams, chunks]
    value: np.ndarray  # [streams, chunks]: the number that a reply ends with
    seconds: float
    cpu_s: float


def schedule(streams, chunks, interval_s, seed):
    """When chunks are due [streams, chunks]: streams begin at random within an interval, and are
    numbered as they begin."""
    begin = np.sort(np.random.default_rng(seed).uniform(0, interval_s, streams))
    return begin[:, None] + interval_s * np.arange(chunks)


def judged(due_s, latency_s, interval_s, warm_s):
    """Latencies in milliseconds of chunks due from `warm_s` on, infinite where there is no answer; and
    how many streams have fallen behind: they are owed more than one reply at the end of the last
    interval."""
    latency_s = np.where(np.isnan(latency_s), np.inf, latency_s)
    owed = (due_s + latency_s > due_s.shape[1] * interval_s).sum(1)
    ms = 1e3 * latency_s[due_s >= warm_s]
    p50, p90, p99 = np.percentile(ms, [50, 90, 99], method="higher").tolist()
    return {
        "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "max_ms": float(ms.max()),
        "behind": int((owed > 1).sum()),
    }


class Stream:
    """One of them: its connection, how many of its chunks are due, and how many are answered."""

    def __init__(self, number, address, model, feed):
        self.number, self.due, self.answered, self.waits = number, 0, 0, False
        self._feed, self._piece = feed, b""
        size = feed.rows.shape[2]
        self._heads = [
            [head(model, 1 + number, size, is_first, is_last) for is_last in (False, True)]
            for is_first in (False, True)
        ]
        host, port = address.rsplit(":", 1)
        self.connection = socket.create_connection((host, int(port)))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, is_last):
        """Sends the chunk after those that are answered."""
        before = self._heads[self.answered == 0][is_last]
        message = before + self._feed.row(self.number, self.answered).tobytes()
        if self.connection.send(message) != len(message):
            raise StreamError("a connection does not take a whole chunk")
        self.waits = True

    def receive(self):
        """The number that the reply ends with; None while there is more to come."""
        data = self.connection.recv(65536)
        if not data:
            raise StreamError("the server closed a connection")
        data = self._piece + data
        end, length = data.find(b"\r\n\r\n"), LENGTH.search(data)
        if end < 0 or length is None or len(data) < end + 4 + int(length.group(1)):
            self._piece = data
            return None
        if not data.startswith(b"HTTP/1.1 200"):
            raise StreamError(data[:600].decode(errors="replace"))
        self._piece, self.waits = b"", False
        self.answered += 1
        return LAST_NUMBER.unpack_from(data, len(data) - 4)[0]


def head(model, name, size, is_first, is_last):
    """What comes before the samples of a chunk."""
    parameters = {"sequence_id": name, "binary_data_output": True}
    if is_first:
        parameters["sequence_start"] = True
    if is_last:
        parameters["sequence_end"] = True
    tensor = {
        "name": "input", "datatype": "FP32", "shape": [1, size],
        "parameters": {"binary_data_size": 4 * size},
    }
    body = json.dumps({"parameters": parameters, "inputs": [tensor]}).encode()
    return (
        b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
        % (model.encode(), len(body), len(body) + 4 * size) + body
    )


def play(addresses, model, feed, due_s, patience_s):
    """Plays chunks of `feed`. Stream j goes to address j modulo their count. Ends early once a chunk is
    `patience_s` late."""
    count, chunks = due_s.shape
    allow_files(count + 100)
    streams = [
        Stream(number, addresses[number % len(addresses)], model, feed) for number in range(count)
    ]
    of_file, poll = {stream.connection.fileno(): stream for stream in streams}, select.epoll()
    for file in of_file:
        poll.register(file, select.EPOLLIN)
    latency_s, value = np.full((2, count, chunks), np.nan)
    order = due_s.T.ravel().tolist()  # first chunks of all streams, then second ones
    coming, left, look_s = 0, len(order), LOOK_S
    clock = time.perf_counter
    gc.collect()
    gc.disable()
    cpu_s, start = time.process_time(), clock()
    try:
        while left:
            now = clock() - start
            while coming < len(order) and order[coming] <= now:
                stream = streams[coming % count]
                stream.due += 1
                coming += 1
                if not stream.waits:
                    stream.send(stream.answered == chunks - 1)
            if now > look_s:
                look_s = now + LOOK_S
                if any(due_s[of.number, of.answered] < now - patience_s for of in streams if of.waits):
                    break
            next_s = order[coming] if coming < len(order) else now + LOOK_S
            for file, _ in poll.poll(max(0.0, min(next_s, look_s) - now)):
                stream = of_file[file]
                number = stream.receive()
                if number is None:
                    continue
                at = stream.answered - 1
                latency_s[stream.number, at] = clock() - start - due_s[stream.number, at]
                value[stream.number, at] = number
                left -= 1
                if stream.due > stream.answered:
                    stream.send(stream.answered == chunks - 1)
        seconds, cpu_s = clock() - start, time.process_time() - cpu_s
    finally:
        gc.enable()
        poll.close()
        for stream in streams:
            stream.connection.close()
    return Played(due_s, latency_s, value, seconds, cpu_s)


def allow_files(count):
    """Lets this process, and those it starts, have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count), hard))
