"""Many sessions at once, fed in chunks with time to think between, beside whole sequences of the same
LSTM. Prints the times of chunks, and compares every reply with ONNX Runtime over the whole
sequence and, bit for bit, with the same session alone.

example: python check_sessions.py --sessions 1000 --hidden 128
"""

import argparse
import asyncio
import json
import pathlib
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import recurrent_files
from conftest import Server
from sessions import cuts

INPUT_SIZE = 32


class Connection:
    """One HTTP/1.1 connection with binary tensors."""

    async def open(self, address):
        host, port = address.rsplit(":", 1)
        self._reader, self._writer = await asyncio.open_connection(host, int(port))

    async def infer(self, x, parameters):
        """Sends rows x [time, 1, input]; returns {name: array}, and the seconds that took."""
        raw = x.tobytes()
        head = json.dumps({
            "parameters": parameters | {"binary_data_output": True},
            "inputs": [{
                "name": "x", "datatype": "FP32", "shape": x.shape,
                "parameters": {"binary_data_size": len(raw)},
            }],
        }).encode()
        self._writer.write(
            b"POST /v2/models/lstm/infer HTTP/1.1\r\nHost: localhost\r\n"
            b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
            % (len(head), len(head) + len(raw)) + head + raw
        )
        start = time.perf_counter()
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        seconds = time.perf_counter() - start
        if " 200 " not in lines[0]:
            raise RuntimeError(f"{lines[0]} {body[:300]!r}")
        size = int(headers["inference-header-content-length"])
        outputs, at = {}, size
        for of in json.loads(body[:size])["outputs"]:
            length = of["parameters"]["binary_data_size"]
            array = np.frombuffer(body[at : at + length], np.float32)
            outputs[of["name"]], at = array.reshape(of["shape"]), at + length
        return outputs, seconds

    def close(self):
        self._writer.close()


async def converse(address, number, x, ends, think_s, random, times):
    """A session from start to end; its y, joined, and its last states."""
    connection = Connection()
    await connection.open(address)
    rows = []
    for first, end in zip(ends, ends[1:]):
        await asyncio.sleep(random.exponential(think_s) if think_s else 0)
        parameters = {
            "sequence_id": number, "sequence_start": first == 0,
            "sequence_end": end == ends[-1],
        }
        outputs, seconds = await connection.infer(x[first:end], parameters)
        rows.append(outputs.pop("y"))
        times.append(seconds)
    connection.close()
    return outputs | {"y": np.concatenate(rows)}


async def whole(address, sequences, count, think_s, random, times):
    """Whole sequences one after the other."""
    connection = Connection()
    await connection.open(address)
    replies = []
    for index in range(count):
        await asyncio.sleep(random.exponential(think_s))
        outputs, seconds = await connection.infer(sequences[index % len(sequences)], {})
        replies.append(outputs)
        times.append(seconds)
    connection.close()
    return replies


def show(what, times):
    ms = 1e3 * np.array(times)
    p50, p90, p99 = np.percentile(ms, [50, 90, 99])
    print(f"{what}: {len(ms)}, p50 {p50:.2f} ms, p90 {p90:.2f} ms, p99 {p99:.2f} ms, "
          f"max {ms.max():.2f} ms", flush=True)


async def run(args, server, session, random):
    address = server.http
    lengths = random.integers(20, 200, args.sessions)
    sequences = [
        random.standard_normal((n, 1, INPUT_SIZE), dtype=np.float32) for n in lengths
    ]
    ends = [cuts(random, int(n)) for n in lengths]
    chunk_times, whole_times = [], []
    start = time.perf_counter()
    talks = [
        converse(address, 1 + number, x, ends[number], args.think, random, chunk_times)
        for number, x in enumerate(sequences)
    ]
    others = [
        whole(address, sequences[worker::16], args.sessions // 16, args.think / 8, random, whole_times)
        for worker in range(16)
    ]
    gathered = await asyncio.gather(*talks, *others)
    found, wholes = gathered[: len(talks)], gathered[len(talks) :]
    seconds = time.perf_counter() - start
    rate = len(chunk_times) / seconds
    print(f"{len(talks)} sessions side by side, {seconds:.1f} s, {rate:.0f} chunks a second")
    show("chunks", chunk_times)
    show("whole sequences", whole_times)
    used = server.in_use() | {"sessions": server.metrics()["batchmaker_sessions"]}
    print(f"left behind: {used}")

    worst, others, names = 0.0, 0, [output.name for output in session.get_outputs()]
    for number, (x, reply) in enumerate(zip(sequences, found)):
        for name, wanted in zip(names, session.run(None, {"x": x})):
            difference = np.abs(reply[name] - wanted) / np.maximum(1.0, np.abs(wanted))
            worst = max(worst, float(difference.max()))
        alone = await converse(address, 10**6 + number, x, ends[number], 0, random, [])
        others += any(alone[name].tobytes() != reply[name].tobytes() for name in names)
    for worker, replies in enumerate(wholes):
        of_worker = sequences[worker::16]
        for index, reply in enumerate(replies):
            wanted = found[worker + 16 * (index % len(of_worker))]
            others += any(wanted[name].tobytes() != reply[name].tobytes() for name in names)
    print(f"worst difference from ONNX Runtime {worst:.1e}; {others} replies other than alone")
    return worst <= 1e-5 and others == 0 and set(used.values()) == {0.0}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--sessions", type=int, default=1000, help="at once (default: 1000)")
    option("--hidden", type=int, default=128, help="hidden size (default: 128)")
    option("--think", type=float, default=1.0, help="mean seconds between chunks (default: 1)")
    option("--seed", type=int, default=1, help="seed of everything (default: 1)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "lstm.onnx"
        recurrent_files.write(
            path, seed=args.seed, input_size=INPUT_SIZE, hidden_size=args.hidden, layers=1
        )
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        server = Server(path)
        try:
            good = asyncio.run(run(args, server, session, np.random.default_rng(args.seed)))
        finally:
            server.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
