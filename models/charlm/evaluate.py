"""Asks a running server for the next character of every place of a text, and states the loss.

    python3 models/charlm/train.py --held-out held-out.txt
    batchmaker serve models/charlm &
    python3 models/charlm/evaluate.py held-out.txt

Needs nothing but Python 3. With --chunk, each line is a session of chunks; the loss is the same.
"""

import argparse
import concurrent.futures
import http.client
import json
import math
import pathlib
import threading
import urllib.parse

VOCABULARY = pathlib.Path(__file__).resolve().parent / "vocab.txt"
ESCAPES = {"\\n": "\n", "\\s": " ", "\\\\": "\\"}


def bits(logits, id):
    """The bits that character `id` costs: -log2 of its probability by softmax."""
    largest = max(logits)
    total = sum(math.exp(logit - largest) for logit in logits)
    return (math.log(total) + largest - logits[id]) / math.log(2)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="a text, a paragraph a line")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--chunk", type=int, metavar="CHARACTERS", help="send sessions of chunks")
    parser.add_argument("--at-most", type=float, metavar="BITS", help="fail above this loss")
    arguments = parser.parse_args()
    address = urllib.parse.urlsplit(arguments.url).netloc
    lines = VOCABULARY.read_text(encoding="utf-8").splitlines()
    ids = {ESCAPES.get(line, line): id for id, line in enumerate(lines)}
    local = threading.local()

    def ask(text, parameters):
        """The logits after each character of `text`, `[chars][vocabulary]`."""
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(address, timeout=60)
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}
        body = json.dumps({"inputs": [tensor], "parameters": parameters})
        local.connection.request("POST", "/v2/models/charlm/infer", body)
        response = local.connection.getresponse()
        reply = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {reply['error']}")
        [output] = reply["outputs"]
        data, width = output["data"], output["shape"][-1]
        return [data[first : first + width] for first in range(0, len(data), width)]

    def loss(paragraph):
        """The bits of a paragraph and its line break, which another line break precedes."""
        number, text = paragraph
        read, following = f"\n{text}", f"{text}\n"
        size = arguments.chunk or len(read)
        logits = []
        for first in range(0, len(read), size):
            start, end = first == 0, first + size >= len(read)
            session = {"sequence_id": number, "sequence_start": start, "sequence_end": end}
            logits += ask(read[first : first + size], session if arguments.chunk else {})
        return sum(bits(row, ids.get(char, 0)) for row, char in zip(logits, following, strict=True))

    with open(arguments.file, encoding="utf-8") as file:
        paragraphs = list(enumerate((line.rstrip("\n") for line in file), 1))
    with concurrent.futures.ThreadPoolExecutor(arguments.connections) as pool:
        losses = list(pool.map(loss, paragraphs))
    chars = sum(len(text) + 1 for _, text in paragraphs)
    mean = sum(losses) / chars
    print(f"{len(paragraphs)} paragraphs, {chars} characters: {mean:.3f} bits per character")
    raise SystemExit(0 if arguments.at_most is None or mean <= arguments.at_most else 1)


if __name__ == "__main__":
    main()
