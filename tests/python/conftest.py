"""Fixtures: a running server, and the ONNX files it is given."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("BATCHMAKER", ROOT / "target/release/batchmaker"))


class Server:
    """A `batchmaker serve` process on ports of its own."""

    def __init__(self, *arguments):
        command = [BINARY, "serve", *map(str, arguments)]
        command += ["--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.errors = []
        reader = threading.Thread(target=self._read_errors, daemon=True)
        reader.start()
        self.ready = self.process.stdout.readline()
        if not self.ready.startswith("ready "):
            self.process.kill()
            # What it says last may not have been read yet.
            reader.join(timeout=10)
            raise RuntimeError(f"no ready line but {self.ready!r}; {''.join(self.errors)}")
        self.http = re.search(r"http://([^\s,]+)", self.ready).group(1)
        self.metrics_url = re.search(r"metrics (http://[^\s,]+)", self.ready).group(1)

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def metrics(self):
        """Prometheus samples: {name with labels: value}."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as response:
            text = response.read().decode()
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {sample[0]: float(sample[1]) for sample in samples if len(sample) == 2}

    def in_use(self):
        """Permits and slots in use, in all."""
        used = {"permits": 0.0, "slots": 0.0}
        for name, value in self.metrics().items():
            if name.startswith("batchmaker_permits_in_use"):
                used["permits"] += value
            if name.startswith("batchmaker_slots_in_use"):
                used["slots"] += value
        return used

    def wait_until_unused(self, seconds=10.0):
        """Returns once no permit and no slot is in use; fails after `seconds`."""
        end = time.monotonic() + seconds
        while (used := self.in_use()) != {"permits": 0.0, "slots": 0.0}:
            assert time.monotonic() < end, f"still in use: {used}"
            time.sleep(0.01)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        """Stops the server gracefully and returns its exit status."""
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture
def serve():
    """Starts servers; stops them after the test."""
    servers = []

    def start(*arguments):
        servers.append(Server(*arguments))
        return servers[-1]

    yield start
    for server in servers:
        assert server.stop() == 0, "".join(server.errors)
