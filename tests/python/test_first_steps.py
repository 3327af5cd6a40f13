"""Mistakes and habits of a first hour: how ports and sizes are written, busy ports, SIGHUP, and what `inspect` and notes
say of a model."""

import json
import re
import signal
import socket
import subprocess
import time
import urllib.request

import cell_files
import pytest
from conftest import BINARY, ROOT

LANGID = ROOT / "models" / "langid"


def refusal(*arguments):
    """Exit status and standard error of a command that is to fail."""
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "flag, value, example",
    [
        ("--http", "localhost", "such as 8000"),
        ("--metrics", "http://localhost:8002", "127.0.0.1:8000"),
        ("--max-memory-bytes", "4G", "4GiB"),
        ("--session-idle", "1d", "30s"),
    ],
)
def test_what_cannot_be_read_is_answered_with_an_example(flag, value, example):
    status, error = refusal("serve", flag, value)
    assert status == 2 and value in error and example in error, error


def test_addresses_sizes_and_durations_as_people_write_them(serve):
    server = serve(LANGID, "--max-memory-bytes", "512MiB", "--max-body-bytes", "1MB",
                   "--session-idle", "5m", "--grace", "10s")
    assert server.ready.startswith("ready ")


@pytest.mark.parametrize("written", ["{}", ":{}", "localhost:{}"])
def test_a_busy_port_and_another_in_one_error(written):
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [taken.getsockname()[1] for taken in (one, two)]
        http, metrics = (written.format(port) for port in ports)
        status, error = refusal("serve", LANGID, "--http", http, "--metrics", metrics)
    assert status == 1
    for port, flag in zip(ports, ("--http", "--metrics")):
        assert f"127.0.0.1:{port}" in error and f"choose another with {flag}" in error, error
    assert error.count("batchmaker: ") == 1


def test_sighup_does_not_end_the_server(serve):
    server = serve(LANGID)
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 10
    while not any("not reloaded" in line for line in server.errors):
        assert time.monotonic() < end and server.process.poll() is None, server.errors
        time.sleep(0.01)
    with urllib.request.urlopen(f"http://{server.http}/v2/health/ready", timeout=10) as response:
        assert response.status == 200


def test_inspect_marks_optional_inputs(tmp_path):
    cell_files.chain(tmp_path / "chain", "forward", 1)
    inspect = [BINARY, "inspect", tmp_path / "chain"]
    text = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
    assert re.search(r"input  h: FP32 \[5\], optional\n", text), text
    assert re.search(r"input  x: FP32 \[-1, 3\]\n", text), text
    shown = subprocess.run([*inspect, "--json"], capture_output=True, text=True, check=True).stdout
    optional = {of["name"]: of["optional"] for of in json.loads(shown)["inputs"]}
    assert optional == {"x": False, "speaker": False, "h": True}


def test_a_lost_model_toml_is_noted(tmp_path):
    for name in ["model.onnx", "vocab.txt", "labels.txt"]:
        (tmp_path / name).write_bytes((LANGID / name).read_bytes())
    inspect = [BINARY, "inspect", tmp_path]
    text = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
    assert "beside it lies labels.txt, but no model.toml" in text, text
