"""silero-vad, a detector of speech, for many streams at once: each is a session that sends its next 32 ms
of sound every so often. Prints the latencies of chunks, and compares every probability with ONNX
Runtime run stream by stream, and with whole sequences sent as one request.

examples:
  pip download --no-deps silero-vad
  python check_silero.py silero_vad-*.whl
  python check_silero.py silero_vad_16k_op15.onnx --streams 200 --interval 0.032
"""

import argparse
import http.client
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnxruntime
from conftest import ROOT, Server

sys.path.append(str(ROOT / "bench/peers"))
import make_silero
import streams
from speech import Feed

TOLERANCE = 1e-4
WHOLE = 16  # streams whose chunks are also sent as one request
PATIENCE_S = 60.0


def runtime(file, rate):
    """The function (row, state) -> (probability, state) of one stream."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    rate = np.array(rate)

    def step(row, state):
        feeds = {"input": row[None], "state": state, "sr": rate}
        output, state = session.run(["output", "stateN"], feeds)
        return output[0, 0], state

    return step


def expected(step, rows):
    """Probabilities of a stream's rows, one after the other."""
    state, found = np.zeros((2, 1, 128), np.float32), np.empty(len(rows), np.float32)
    for at, row in enumerate(rows):
        found[at], state = step(row, state)
    return found


def whole(address, model, rows):
    """Probabilities of a sequence in one request."""
    raw = rows.tobytes()
    tensor = {
        "name": "input", "datatype": "FP32", "shape": rows.shape,
        "parameters": {"binary_data_size": len(raw)},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request(
        "POST", f"/v2/models/{model}/infer", head + raw,
        {"Inference-Header-Content-Length": str(len(head))},
    )
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"{response.status} {body[:600]!r}")
    size = int(response.getheader("Inference-Header-Content-Length"))
    (output,) = json.loads(body[:size])["outputs"]
    if output["shape"] != [len(rows), 1]:
        raise RuntimeError(f"expected [{len(rows)}, 1], got {output['shape']}")
    return np.frombuffer(body[size:], np.float32)


def check(args, folder, model, rate):
    """Serves a directory; whether all is well."""
    sizes = make_silero.chunk(rate)
    feed = Feed(args.streams, args.streams, args.chunks, rate, sizes, args.seed)
    due_s = streams.schedule(args.streams, args.chunks, args.interval, args.seed)
    streams.allow_files(2 * args.streams + 200)
    server = Server(folder, "--max-sessions", args.streams + 1, *args.serve.split())
    try:
        played = streams.play([server.http], model, feed, due_s, PATIENCE_S)
        at_once = [whole(server.http, model, feed.rows[of]) for of in range(min(WHOLE, args.streams))]
        left = server.in_use() | {"sessions": server.metrics()["batchmaker_sessions"]}
    finally:
        server.stop()
    if np.isnan(played.value).any():
        print(f"{model}: given up: a chunk was {PATIENCE_S:.0f} s late")
        return False
    ms = 1e3 * played.latency_s
    p50, p90, p99 = np.percentile(ms, [50, 90, 99])
    print(
        f"{model}: {args.streams} streams of {args.chunks} chunks in {played.seconds:.1f} s, "
        f"p50 {p50:.2f} ms, p90 {p90:.2f} ms, p99 {p99:.2f} ms, max {ms.max():.2f} ms; "
        f"this client used {played.cpu_s / played.seconds:.2f} cores",
        flush=True,
    )
    step = runtime(folder / "vad.onnx", rate)
    wanted = np.array([expected(step, rows) for rows in feed.rows])
    worst = float(np.abs(played.value - wanted).max())
    others = sum(
        rows.tobytes() != chunks.astype(np.float32).tobytes()
        for rows, chunks in zip(at_once, played.value)
    )
    speech = float((wanted > 0.5).mean())
    print(
        f"{model}: largest difference from ONNX Runtime {worst:.1e} (speech in {speech:.0%} of the "
        f"chunks); {others} of {len(at_once)} whole sequences answered otherwise; left behind: {left}"
    )
    return worst <= TOLERANCE and others == 0 and set(left.values()) == {0.0}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("path", metavar="WHEEL|FILE.onnx", help="silero-vad's wheel, or a file of it for 16 kHz")
    option("--streams", type=int, default=1000, help="at once (default: 1000)")
    option("--chunks", type=int, default=60, help="of each stream (default: 60)")
    option(
        "--interval", type=float, default=0.25,
        help="seconds between chunks of a stream (default: 0.25; real time: 0.032)",
    )
    option("--seed", type=int, default=1, help="of sound and times (default: 1)")
    option("--serve", default="", metavar="OPTIONS", help="further options of `batchmaker serve`")
    args = parser.parse_args()
    try:
        models = make_silero.read(args.path)
    except make_silero.SileroError as error:
        sys.exit(f"check_silero.py: {error}")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, rate) in models.items():
            path = pathlib.Path(folder) / name
            make_silero.write(path, model, rate)
            try:
                good &= check(args, path, name, rate)
            except (RuntimeError, streams.StreamError) as error:
                print(f"{name}: {error}")
                good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
