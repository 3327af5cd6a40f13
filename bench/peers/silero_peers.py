"""What one would run instead of the server: silero-vad in ONNX Runtime, in processes that share out the
streams. A batch holds the chunks that wait, up to a limit, one of a stream; nothing waits for a
batch to fill. The states of its streams stay in one array in the process.

`in_process` has no transport: chunks are rows of arrays, and a clock says which of them are there.
`over_http` answers requests of one chunk, in one thread that parses no JSON and has a stream a
connection.
"""

import contextlib
import gc
import multiprocessing
import select
import socket
import time

import numpy as np

from batcher import wait_until
from speech import Feed
from streams import LENGTH, Played

WARM_UP_S = 0.5

# What comes before the four bytes of a probability.
REPLY = (
    b'{"model_name":"vad","model_version":"1","outputs":[{"name":"output","shape":[1,1],'
    b'"datatype":"FP32","parameters":{"binary_data_size":4}}]}'
)
REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n"
    b"inference-header-content-length: %d\r\ncontent-length: %d\r\n\r\n"
    % (len(REPLY), len(REPLY) + 4) + REPLY
)


class Detector:
    """The model, and the states of `count` streams."""

    def __init__(self, file, rate, row, count, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        self._session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"]
        )
        self._rate = np.array(rate)
        end, size = time.perf_counter() + WARM_UP_S, 1
        while time.perf_counter() < end:
            self._run(np.zeros((size, row), np.float32), np.zeros((2, size, 128), np.float32))
            size = min(2 * size, count, 256)
        self.state = np.zeros((2, count, 128), np.float32)

    def _run(self, rows, state):
        feeds = {"input": rows, "state": state, "sr": self._rate}
        return self._session.run(["output", "stateN"], feeds)

    def batch(self, streams, rows):
        """Probabilities [batch, 1] of the next rows of several streams, none of them twice."""
        found, self.state[:, streams] = self._run(rows, self.state[:, streams])
        return found

    def one(self, stream, row):
        """The same of one stream."""
        found, self.state[:, stream : stream + 1] = self._run(
            row[None], self.state[:, stream : stream + 1]
        )
        return found


def in_process(file, rate, feed_of, due_s, limit, workers, threads, patience_s):
    """Runs chunks of `Feed(*feed_of)` when they are due, in batches up to `limit`; stream j runs in
    process j modulo `workers`. A process ends early once a chunk of its own is `patience_s` late."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for worker in range(workers):
        ours, theirs = context.Pipe()
        mine = np.arange(worker, len(due_s), workers)
        arguments = (theirs, file, rate, feed_of, mine, due_s[mine], limit, threads, patience_s)
        processes.append(context.Process(target=_run_own, args=arguments, daemon=True))
        processes[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    start = time.perf_counter()
    for pipe in pipes:
        pipe.send("go")
    latency_s = np.empty_like(due_s)
    for worker, pipe in enumerate(pipes):
        latency_s[worker::workers] = pipe.recv()
    seconds = time.perf_counter() - start
    for process in processes:
        process.join()
    return Played(due_s, latency_s, None, seconds, 0.0)


def _run_own(pipe, file, rate, feed_of, numbers, due_s, limit, threads, patience_s):
    feed, (count, chunks) = Feed(*feed_of), due_s.shape
    detector = Detector(file, rate, feed.rows.shape[2], count, threads)
    order = due_s.T.ravel()  # first chunks of all streams, then second ones
    latency_s = np.full(order.shape, np.nan)
    gc.collect()
    gc.disable()
    pipe.send("ready")
    pipe.recv()
    at, start, clock = 0, time.perf_counter(), time.perf_counter
    while at < len(order):
        wait_until(start + order[at])
        if limit == 1:
            stream, chunk, end = at % count, at // count, at + 1
            detector.one(stream, feed.row(numbers[stream], chunk))
        else:
            waiting = int(np.searchsorted(order, clock() - start, "right"))
            end = min(max(waiting, at + 1), at + min(limit, count))
            index = np.arange(at, end)
            streams = index % count
            detector.batch(streams, feed.batch(numbers[streams], index // count))
        latency_s[at:end] = clock() - start - order[at:end]
        if latency_s[at] > patience_s:
            break
        at = end
    pipe.send(latency_s.reshape(chunks, count).T)


@contextlib.contextmanager
def over_http(file, rate, row, count, workers, threads):
    """Addresses of `workers` servers, each for `count` streams."""
    context = multiprocessing.get_context("spawn")
    processes, addresses = [], []
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            arguments = (theirs, file, rate, row, count, threads)
            processes.append(context.Process(target=_answer, args=arguments, daemon=True))
            processes[-1].start()
            addresses.append(f"127.0.0.1:{ours.recv()}")
        yield addresses
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _answer(pipe, file, rate, row, count, threads):
    detector = Detector(file, rate, row, count, threads)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    poll, of_file = select.epoll(), {}
    poll.register(listener, select.EPOLLIN)
    pipe.send(listener.getsockname()[1])
    gc.disable()
    while True:
        batch = []
        for file, _ in poll.poll():
            if file == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                poll.register(connection, select.EPOLLIN)
                of_file[connection.fileno()] = [len(of_file), connection, b""]
                continue
            of = of_file[file]
            data = of[2] + of[1].recv(65536)
            end, length = data.find(b"\r\n\r\n"), LENGTH.search(data)
            if not data:
                poll.unregister(file)
            elif end < 0 or length is None or len(data) < end + 4 + int(length.group(1)):
                of[2] = data
            else:
                of[2] = b""
                batch.append((of[0], of[1], data[-4 * row :]))
        if batch:
            streams, connections, rows = zip(*batch)
            rows = np.frombuffer(b"".join(rows), np.float32).reshape(-1, row)
            found = detector.batch(np.array(streams), rows).tobytes()
            for number, connection in enumerate(connections):
                connection.send(REPLY + found[4 * number : 4 * number + 4])
