"""Samples a text from a language model, in a session of `batchmaker serve models/charlm`."""

import argparse
import http.client
import json
import math
import pathlib
import random

VOCABULARY = pathlib.Path(__file__).resolve().parents[2] / "models/charlm/vocab.txt"
ESCAPES = {"\\n": "\n", "\\s": " ", "\\\\": "\\"}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--server", default="127.0.0.1:8000", metavar="HOST:PORT")
parser.add_argument("--prompt", default="A cell ")
parser.add_argument("--length", type=int, default=200, help="characters to sample")
parser.add_argument("--temperature", type=float, default=0.7)
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()

lines = VOCABULARY.read_text(encoding="utf-8").splitlines()  # line n is the character of logit n
characters = [ESCAPES.get(line, line) for line in lines]
connection = http.client.HTTPConnection(arguments.server, timeout=60)
draws = random.Random(arguments.seed)
name = f"sample-{random.SystemRandom().getrandbits(64)}"  # no other client's session

text, chunk = arguments.prompt, arguments.prompt
for number in range(arguments.length):
    session = {
        "sequence_id": name,
        "sequence_start": number == 0,
        "sequence_end": number == arguments.length - 1,
    }
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [chunk]}
    body = json.dumps({"inputs": [tensor], "parameters": session})
    connection.request("POST", "/v2/models/charlm/infer", body)
    reply = json.loads(connection.getresponse().read())
    if "error" in reply:
        raise SystemExit(reply["error"])
    logits = reply["outputs"][0]["data"][-len(characters) :]  # after the chunk's last character
    largest = max(logits)
    weights = [math.exp((logit - largest) / arguments.temperature) for logit in logits]
    [chunk] = draws.choices(characters, weights)
    text += chunk
print(text)
