"""A server process, its resident memory and its gauges."""

import re
import signal
import subprocess
import threading
import time
import urllib.request


def resident(pid):
    """VmRSS in bytes; 0 once the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Memory(threading.Thread):
    """Samples resident memory each 20 ms; kills the process if it passes `guard`."""

    def __init__(self, process, guard):
        super().__init__(daemon=True)
        self.process, self.guard = process, guard
        self.peak, self.killed, self.going = 0, False, True

    def run(self):
        while self.going:
            used = resident(self.process.pid)
            self.peak = max(self.peak, used)
            if used > self.guard and not self.killed:
                self.killed = True
                self.process.kill()
            time.sleep(0.02)


class Server:
    """A `serve` process on ports of its own, started by a shell that `shell` prepares."""

    def __init__(self, binary, arguments, shell="", guard=4 * 2**30):
        command = [str(binary), "serve", *map(str, arguments)]
        command += ["--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            ["sh", "-c", f'{shell or ":"}; exec "$@"', "sh", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.errors = []
        threading.Thread(target=self._read_errors, daemon=True).start()
        self.ready = self.process.stdout.readline()
        if not self.ready.startswith("ready "):
            self.process.kill()
            raise RuntimeError(f"no ready line but {self.ready!r}; {''.join(self.errors[-5:])}")
        self.host, port = re.search(r"http://([0-9.]+):(\d+)", self.ready).groups()
        self.port = int(port)
        self.metrics_url = re.search(r"metrics (http://[^\s,]+)", self.ready).group(1)
        self.metrics_port = int(self.metrics_url.split(":")[2].split("/")[0])
        self.memory = Memory(self.process, guard)
        self.memory.start()

    @property
    def pid(self):
        return self.process.pid

    def _read_errors(self):
        for line in self.process.stderr:
            self.errors = self.errors[-50:] + [line]

    def in_use(self):
        """Permits and slots in use, in all."""
        used = {"permits": 0.0, "slots": 0.0}
        with urllib.request.urlopen(self.metrics_url, timeout=5) as response:
            for line in response.read().decode().splitlines():
                for name in used:
                    if line.startswith(f"batchmaker_{name}_in_use"):
                        used[name] += float(line.rsplit(" ", 1)[1])
        return used

    def left_over(self, seconds):
        """What is still in use after so many seconds, or nothing as soon as nothing is."""
        end = time.monotonic() + seconds
        while True:
            try:
                used = self.in_use()
            except OSError as error:
                used = {"metrics": repr(error)}
            used = {name: value for name, value in used.items() if value}
            if not used or time.monotonic() > end:
                return used
            time.sleep(0.05)

    def stop(self, seconds):
        """Sends SIGTERM, if the process still runs, and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds):
        """The exit status, or "hangs"."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "hangs"
        finally:
            self.memory.going = False
