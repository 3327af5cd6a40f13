"""The example client that samples from a language model, against a server and ONNX Runtime."""

import subprocess
import sys

import numpy as np
import onnxruntime
from conftest import ROOT

MODEL = ROOT / "models/charlm"
PROMPT = "A cell "


def sample(server, *arguments):
    """The text that the example prints."""
    command = [sys.executable, ROOT / "examples/sampling/sample.py", "--server", server.http]
    command += ["--prompt", PROMPT, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def likeliest(length):
    """The text in which every character is the likeliest one, by ONNX Runtime over whole texts."""
    session = onnxruntime.InferenceSession(MODEL / "model.onnx", providers=["CPUExecutionProvider"])
    escapes = {"\\n": "\n", "\\s": " ", "\\\\": "\\"}
    lines = (MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    characters = [escapes.get(line, line) for line in lines]
    text = PROMPT
    for _ in range(length):
        token = np.array([[characters.index(character) for character in text]])
        [logits] = session.run(["logits"], {"token": token})
        text += characters[logits[0, -1].argmax()]
    return text


def test_a_seed_decides_the_text(serve):
    server = serve(MODEL)
    text = sample(server, "--seed", 1, "--length", 60)
    assert text.startswith(PROMPT) and len(text) == len(PROMPT) + 60
    assert sample(server, "--seed", 1, "--length", 60) == text
    assert sample(server, "--seed", 1, "--length", 20) == text[: len(PROMPT) + 20]
    assert sample(server, "--seed", 2, "--length", 60) != text
    server.wait_until_unused()
    assert server.metrics()['batchmaker_sessions_ended_total{by="client"}'] == 4


def test_near_temperature_zero_the_likeliest_characters_are_drawn(serve):
    server = serve(MODEL)
    assert sample(server, "--temperature", 0.0001, "--length", 40) == likeliest(40)
