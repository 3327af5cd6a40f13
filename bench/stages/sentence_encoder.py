"""A sentence encoder on real sentences: `batchmaker bench` beside ONNX Runtime behind batchers, in turns.

The batchers run in this process, without a wire: padded to the longest of a batch in order of arrival, or of 256 sentences
sorted by length (bucketed, when all of them wait), on one session of all cores or on a session a core. The model takes
`input_ids` and `attention_mask`, and has a pooled output. Needs numpy, onnxruntime and tokenizers.

Under the policy `staged`, the model has the stages of the `profile.json` beside it: run `batchmaker profile` first.

examples:
  python sentence_encoder.py paraphrase-MiniLM-L3-v2.onnx --tokenizer tokenizer.json --sentences train.en --output 461
  python sentence_encoder.py encoder.onnx --tokenizer tokenizer.json --sentences dev.txt --output embedding \\
      --policy cellular --policy staged --json encoder.json
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import onnxruntime
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Sentences that are compared with ONNX Runtime's, one by one.
COMPARED = 64

# Sentences that a bucketed batcher sorts by length.
WINDOW = 256

BATCHES = (8, 16, 32)

# The largest batches of those that wait, where sentences come one by one.
ONLINE = (1, 8)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True, help="a tokenizer.json")
    parser.add_argument("--sentences", type=pathlib.Path, required=True, help="a file of a sentence a line")
    parser.add_argument("--output", required=True, help="the pooled output")
    parser.add_argument("--count", type=int, default=1000, help="sentences (1000)")
    parser.add_argument("--tokens-max", type=int, default=128, help="tokens of a sentence at most (128)")
    parser.add_argument("--in-flight", type=int, default=32, help="requests in flight when saturated (32)")
    parser.add_argument("--policy", action="append", help="of batchmaker; repeatable (cellular)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", type=pathlib.Path, default=ROOT / "target/release/batchmaker")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures here")
    return parser.parse_args()


def tokenised(args):
    """The tokens of sentences drawn from the file, each an array of int64."""
    lines = [line for line in args.sentences.read_text().splitlines() if line.strip()]
    chosen = random.Random(args.seed).choices(lines, k=args.count)
    tokenizer = tokenizers.Tokenizer.from_file(str(args.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(args.tokens_max)
    return [np.array(of.ids, np.int64) for of in tokenizer.encode_batch(chosen)]


class Encoder:
    """ONNX Runtime on a number of sessions, which share the cores."""

    def __init__(self, args, sessions):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, (os.cpu_count() or 1) // sessions)
        provider = ["CPUExecutionProvider"]
        self.sessions = [onnxruntime.InferenceSession(args.model, options, providers=provider) for _ in range(sessions)]
        self.output = args.output

    def encode(self, session, sentences):
        """The pooled outputs of a batch, padded to its longest sentence."""
        shape = (len(sentences), max(map(len, sentences)))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence)] = sentence
            mask[row, : len(sentence)] = 1
        (pooled,) = self.sessions[session].run([self.output], {"input_ids": ids, "attention_mask": mask})
        return pooled

    def throughput(self, batches):
        """Sentences a second, all batches being there from the start."""
        left, lock = iter(batches), threading.Lock()

        def work(session):
            while True:
                with lock:
                    batch = next(left, None)
                if batch is None:
                    return
                self.encode(session, batch)

        for session in range(len(self.sessions)):
            self.encode(session, batches[0])
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(self.sessions)) as threads:
            list(threads.map(work, range(len(self.sessions))))
        return sum(map(len, batches)) / (time.monotonic() - began)

    def latencies(self, sentences, rate, batch_max, seed):
        """Milliseconds that each sentence takes which comes at its time; a session takes up to `batch_max` of those that wait."""
        draw, now, times = random.Random(seed), 0.0, []
        for _ in sentences:
            now += draw.expovariate(rate)
            times.append(now)
        taken, lock, latencies = 0, threading.Lock(), [0.0] * len(sentences)
        began = time.monotonic()

        def work(session):
            nonlocal taken
            while True:
                with lock:
                    if taken == len(sentences):
                        return
                    wait = times[taken] - (time.monotonic() - began)
                    if wait <= 0:
                        first, elapsed = taken, time.monotonic() - began
                        while taken < len(sentences) and taken - first < batch_max and times[taken] <= elapsed:
                            taken += 1
                        last = taken
                if wait > 0:
                    time.sleep(wait)
                    continue
                self.encode(session, sentences[first:last])
                done = time.monotonic() - began
                for place in range(first, last):
                    latencies[place] = 1e3 * (done - times[place])

        with concurrent.futures.ThreadPoolExecutor(len(self.sessions)) as threads:
            list(threads.map(work, range(len(self.sessions))))
        return latencies


def in_order(sentences, size):
    return [sentences[at : at + size] for at in range(0, len(sentences), size)]


def bucketed(sentences, size):
    windows = in_order(sentences, WINDOW)
    return [batch for window in windows for batch in in_order(sorted(window, key=len), size)]


class Batchmaker:
    """`batchmaker bench` on the same sentences."""

    def __init__(self, args, sentences, folder):
        self.args, self.requests = args, folder / "requests.jsonl"
        self.requests.write_text("".join(self.line(sentence) + "\n" for sentence in sentences))

    def line(self, sentence):
        shape = [1, len(sentence)]
        tensors = {"input_ids": sentence.tolist(), "attention_mask": [1] * len(sentence)}
        inputs = [{"name": name, "shape": shape, "datatype": "INT64", "data": of} for name, of in tensors.items()]
        return json.dumps({"inputs": inputs, "outputs": [{"name": self.args.output}]})

    def bench(self, policy, *load):
        command = [self.args.server, "bench", self.args.model, "--replay", self.requests, "--json", "--policy", policy]
        command += ["--requests", str(self.args.count), "--seed", str(self.args.seed), *map(str, load)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"batchmaker bench failed: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    def pooled(self, count):
        lines = "".join(self.requests.read_text().splitlines(keepends=True)[:count])
        command = [self.args.server, "run", self.args.model]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
        replies = [json.loads(line)["outputs"][0] for line in done.stdout.splitlines()]
        return [np.array(reply["data"], np.float32) for reply in replies]


def main():
    args = arguments()
    policies = args.policy or ["cellular"]
    sentences = tokenised(args)
    lengths = [len(sentence) for sentence in sentences]
    print(f"{args.count} sentences of {min(lengths)} to {max(lengths)} tokens, {statistics.mean(lengths):.1f} on average")
    encoders = {sessions: Encoder(args, sessions) for sessions in sorted({1, os.cpu_count() or 1})}
    with tempfile.TemporaryDirectory() as folder:
        ours = Batchmaker(args, sentences, pathlib.Path(folder))
        alone = [encoders[1].encode(0, [sentence])[0] for sentence in sentences[:COMPARED]]
        errors = [np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b))) for a, b in zip(ours.pooled(COMPARED), alone, strict=True)]
        print(f"largest difference from ONNX Runtime, a sentence at a time: {max(errors):.1e}")

        kinds = {("order of arrival", size): in_order(sentences, size) for size in (1, *BATCHES)}
        kinds |= {("bucketed", size): bucketed(sentences, size) for size in BATCHES}
        figures = {}
        for _ in range(args.turns):
            for policy in policies:
                report = ours.bench(policy, "--saturate", "--in-flight", args.in_flight)
                figures.setdefault(("batchmaker", policy), []).append(report["throughput_rps"])
            for sessions, encoder in encoders.items():
                for kind, batches in kinds.items():
                    figures.setdefault((sessions, *kind), []).append(encoder.throughput(batches))
        peaks = {key: statistics.median(values) for key, values in figures.items()}
        print("\nsaturated, sentences a second (median of the turns)")
        for key, peak in peaks.items():
            name = " ".join(key) if key[0] == "batchmaker" else f"ONNX Runtime, {key[0]} session(s), {key[1]}, batches of {key[2]}"
            print(f"  {peak:8.1f}  {name}")
        of_ours = {policy: peaks["batchmaker", policy] for policy in policies}
        of_theirs = {key: peak for key, peak in peaks.items() if key[0] != "batchmaker"}
        padded = max(peak for key, peak in of_theirs.items() if key[1] == "order of arrival" and key[2] >= 8)
        best_key, best = max(of_theirs.items(), key=lambda of: of[1])
        for policy, peak in of_ours.items():
            print(f"  {policy}: {peak / padded:.2f} times the padded batcher, {peak / best:.2f} times its best configuration")

        results = {"peaks": {" ".join(map(str, key)): peak for key, peak in peaks.items()}, "error": float(max(errors))}
        for share in (0.5, 0.9):
            rate = share * best
            of_rate = {}
            for turn in range(args.turns):
                for policy in policies:
                    report = ours.bench(policy, "--rate", f"{rate:.3f}")
                    of_rate.setdefault(policy, []).append(report["latency_ms"]["p90"])
                for (sessions, encoder), batch_max in itertools.product(encoders.items(), ONLINE):
                    name = f"ONNX Runtime, {sessions} session(s), up to {batch_max}"
                    latencies = encoder.latencies(sentences, rate, batch_max, args.seed + turn)
                    of_rate.setdefault(name, []).append(float(np.percentile(latencies, 90)))
            print(f"\np90 at {rate:.1f} sentences a second, {share} of ONNX Runtime's peak, ms (median of the turns)")
            medians = {name: statistics.median(values) for name, values in of_rate.items()}
            theirs = min(value for name, value in medians.items() if name not in policies)
            for name, value in medians.items():
                print(f"  {value:8.1f}  {name}" + (f": {theirs / value:.2f} times as low" if name in policies else ""))
            results[f"p90_ms_at_{share}"] = medians
        print(f"\nONNX Runtime's best when saturated: {best_key[0]} session(s), {best_key[1]}, batches of {best_key[2]}")
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
