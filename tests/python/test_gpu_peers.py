"""The scripts that time other systems for `cargo xtask gpu --only evaluation`, with a PyTorch that does nothing."""

import ctypes
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "crates/xtask/src/gpu/evaluation/peers"
FAKES = pathlib.Path(__file__).parent / "fake_gpu"


def job(cell="lstm", hidden=64, batch=10, layers=1):
    return {"cell": cell, "hidden": hidden, "batch": batch, "steps": 100, "layers": layers}


def run(peer, jobs, *options, fakes=FAKES):
    """The lines that a script prints, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(fakes or ""), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, SCRIPTS / "peers.py", "--peer", peer, "--jobs", json.dumps(jobs)]
    command += options
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done


def test_a_dry_run_leaves_all_out():
    lines, done = run("pytorch", [job(), job("gru")], "--dry-run", fakes=None)
    assert done.returncode == 0
    assert lines == [of | {"left_out": "a dry run"} for of in (job(), job("gru"))]


def test_pytorch_has_times_of_what_it_has():
    lines, done = run("pytorch", [job(), job("gru0"), job("gru", layers=3)])
    assert done.returncode == 0, done.stderr
    assert lines[0] == {"about": "PyTorch 0.0, cuDNN 91900, no GPU"}
    assert [line.get("ms") for line in lines[1:]] == [0.25, None, 0.25]
    assert lines[1]["wall_ms"] >= 0
    assert lines[2] == job("gru0") | {"left_out": "NotImplementedError: PyTorch has no gru0"}


@pytest.mark.parametrize("backend", ["cuda_fused", "cuda"])
def test_flashrnn_takes_tensors_in_its_order(backend, tmp_path):
    fakes = shutil.copytree(FAKES, tmp_path / "fakes")
    # The version is that of an installed package.
    (package := fakes / "flashrnn-1.0.8.dist-info").mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: flashrnn\nVersion: 1.0.8\n")
    lines, done = run(f"flashrnn-{backend}", [job(batch=1), job("gru")], fakes=fakes)
    assert lines[0] == {"about": f"FlashRNN 1.0.8, {backend}, without the products of x"}, done.stderr
    assert (lines[1].get("ms"), lines[2].get("ms")) == (0.25, None)


def test_what_is_not_installed_is_left_out():
    for peer, fakes in (("pytorch", None), ("cudnn-none", FAKES), ("flashrnn-cuda", None)):
        lines, done = run(peer, [job()], fakes=fakes)
        assert done.returncode == 0, done.stderr
        assert [set(line) - set(job()) for line in lines] == [{"left_out"}], lines


def test_jobs_are_checked():
    _, done = run("pytorch", [{"cell": "lstm"}])
    assert done.returncode == 2 and "a job has no hidden" in done.stderr


def test_a_script_ends_when_its_time_is_over():
    sleeping = "import sys, time; sys.path.insert(0, sys.argv[1]); import peers"
    sleeping += "; peers.stop_after(0.2); time.sleep(30)"
    done = subprocess.run([sys.executable, "-B", "-c", sleeping, SCRIPTS], timeout=20, check=False)
    assert done.returncode == -signal.SIGKILL


class Functions:
    """Stands for cuDNN's library: writes down calls, gives handles and sizes, and has no persistent static algorithm."""

    def __init__(self):
        self.calls = []

    def version(self):
        return 91900

    def create(self, name, *arguments):
        self(name, *arguments)
        return ctypes.c_void_p(0x1000 + len(self.calls))

    def __call__(self, name, *arguments):
        self.calls.append((name, arguments))
        if name == "cudnnSetRNNDescriptor_v8" and arguments[1] == 1:
            raise RuntimeError(f"{name}: CUDNN_STATUS_NOT_SUPPORTED")
        if name == "cudnnGetRNNWeightSpaceSize":
            arguments[-1]._obj.value = 4096
        if name == "cudnnGetRNNTempSpaceSizes":
            arguments[-2]._obj.value = 512


@pytest.fixture
def scripts(monkeypatch):
    """The modules `peers` and `cudnn_rnn`, with the PyTorch that does nothing."""
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), str(FAKES), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = ("torch", "clock", "peers", "torch_rnn", "cudnn_rnn", "flash_rnn")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import cudnn_rnn
    import peers

    yield peers, cudnn_rnn
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("algorithm", ["standard", "persist-static", "persist-dynamic"])
def test_cudnn_runs_the_algorithm_that_is_asked_for(scripts, monkeypatch, algorithm):
    peers, cudnn_rnn = scripts
    functions = Functions()
    monkeypatch.setattr(cudnn_rnn, "Library", lambda: functions)
    results = io.StringIO()
    arguments = ["--peer", f"cudnn-{algorithm}", "--jobs", json.dumps([job("gru", layers=2)])]
    peers.main([*arguments, "--repeats", "3"], results)
    about, line = map(json.loads, results.getvalue().splitlines())
    assert about == {"about": f"cuDNN 91900, algorithm {algorithm}"}
    number = cudnn_rnn.ALGORITHMS[algorithm]
    if algorithm == "persist-static":
        words = "RuntimeError: cudnnSetRNNDescriptor_v8: CUDNN_STATUS_NOT_SUPPORTED"
        assert line == job("gru", layers=2) | {"left_out": words}
        return
    assert line["ms"] == 0.25
    calls = dict(functions.calls)
    # A GRU, two biases, one direction, a linear input, f32 by multiply-adds; two layers of 64.
    modes = (number, 3, 2, 0, 0, 0, 0, 3, 64, 64, 64, 2)
    assert calls["cudnnSetRNNDescriptor_v8"][1:13] == modes
    assert ("cudnnBuildRNNDynamic" in calls) == (algorithm == "persist-dynamic")
    forward = calls["cudnnRNNForward"]
    assert len(forward) == len(cudnn_rnn.SIGNATURES["cudnnRNNForward"]) == 20
    sizes_and_addresses = forward[14:]
    assert sizes_and_addresses[::2] == (4096, 512, 0)
    assert sizes_and_addresses[5] is None and None not in sizes_and_addresses[1:4:2]
    # Warm-ups, and the run that is checked.
    assert sum(name == "cudnnRNNForward" for name, _ in functions.calls) == 3 + 5 + 1


def test_signatures_fit_the_calls(scripts):
    """Every call of the module has as many arguments as its signature: ctypes would take more."""
    _, cudnn_rnn = scripts
    functions = Functions()
    layers = cudnn_rnn.Layers(functions, 0, job(), None)
    assert layers.data and layers.states
    for name, arguments in functions.calls:
        expected = len(cudnn_rnn.SIGNATURES[name])
        is_create = name.startswith("cudnnCreate")
        assert len(arguments) + is_create == expected, name
