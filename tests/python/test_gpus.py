"""A server on two emulated GPUs beside one on the cores: the same replies over HTTP, and nothing that the emulator finds.

The program must hold images of kernels: it was built where BATCHMAKER_CUDA_IMAGES names a folder of them, as in CI. Without the variable the tests
are skipped.
"""

import concurrent.futures
import ctypes.util
import json
import os
import re
import subprocess
import urllib.request

import numpy as np
import pytest
from conftest import BINARY, ROOT

pytestmark = pytest.mark.skipif(
    not os.environ.get("BATCHMAKER_CUDA_IMAGES"), reason="the program may hold no images of kernels"
)

WORDS = ["kernel", "tree", "a", "node", "step", "row"]


def emulated(folder, *sources):
    """The environment in which a program finds two emulated GPUs with the kernels of these files, too, and the file of what the emulator reports."""
    cargo = ["cargo", "--quiet"]
    build = [*cargo, "build", "--release", "--package", "batchmaker-cuda-emulated-driver"]
    subprocess.run(build, check=True, cwd=ROOT)
    compiled = [*cargo, "run", "--release", "--package", "batchmaker-cuda", "--example", "emulated_kernels", folder, *sources]
    kernels = subprocess.run(compiled, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    reports = folder / "reports"
    return {
        "LD_PRELOAD": f"{target}/release/libemulated_cuda.so",
        "EMULATED_CUDA": f"devices=2;memory_bytes=1000000000;{kernels.strip()}",
        "EMULATED_CUDA_REPORTS": str(reports),
    }, reports


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return emulated(tmp_path_factory.mktemp("kernels"))


def infer(server, model, text):
    inputs = [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]
    url = f"http://{server.http}/v2/models/{model}/infer"
    request = urllib.request.Request(url, json.dumps({"inputs": inputs}).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        return {of["name"]: of["data"] for of in json.load(response)["outputs"]}


def test_replies_are_those_of_the_cores(serve, driver, monkeypatch):
    on_cores = serve("models")
    environment, reports = driver
    with monkeypatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        on_gpus = serve("models", "--device", "cuda")
    assert on_gpus.ready.strip().endswith("GPUs 0, 1"), on_gpus.ready
    requests = [(model, word) for model in ("langid", "g2p") for word in WORDS]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        replies = list(pool.map(lambda request: infer(on_gpus, *request), requests))
    for request, reply in zip(requests, replies):
        expected = infer(on_cores, *request)
        assert reply.keys() == expected.keys(), request
        for name, data in reply.items():
            if isinstance(data[0], float):
                np.testing.assert_allclose(data, expected[name], rtol=1e-5, atol=1e-5, err_msg=str(request))
            else:
                assert data == expected[name], request
    on_gpus.wait_until_unused()
    metrics = on_gpus.metrics()
    for worker in "01":
        assert metrics[f'batchmaker_device_memory_bytes_max{{worker="{worker}"}}'] == 1e9
        assert metrics[f'batchmaker_device_copied_bytes_total{{worker="{worker}",direction="in"}}'] > 0
        assert metrics[f'batchmaker_device_busy_microseconds_total{{worker="{worker}"}}'] > 0, worker
    assert on_gpus.stop() == 0
    assert reports.read_text() == ""


def test_inspect_says_what_runs_where(driver):
    command = [BINARY, "inspect", ROOT / "models/g2p", "--device", "cuda:1"]
    printed = subprocess.run(command, check=True, env={**os.environ, **driver[0]}, stdout=subprocess.PIPE, text=True)
    assert printed.stdout.count("run by GPU 1, ") == 2, printed.stdout


def test_auto_takes_the_cores_where_a_gpu_cannot_be_used(driver):
    environment = {**os.environ, **driver[0]}
    environment["EMULATED_CUDA"] += ";architecture=60"
    command = [BINARY, "inspect", ROOT / "models/g2p", "--device"]
    auto, cuda = (
        subprocess.run([*command, device], env=environment, capture_output=True, text=True) for device in ("auto", "cuda")
    )
    assert auto.returncode == 0 and "encoder: fused" in auto.stdout and "GPU" not in auto.stdout, auto.stdout
    for errors in (auto.stderr, cuda.stderr):
        assert "sm_60): this program holds no kernels for it" in errors, errors
    assert auto.stderr.startswith("note: a GPU is not used: ") and cuda.returncode == 1, cuda.stderr


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="there is a driver")
def test_without_a_driver_the_error_says_so():
    refused = subprocess.run([BINARY, "serve", "--device", "cuda"], stderr=subprocess.PIPE, text=True, timeout=60)
    assert refused.returncode == 1
    assert "there is no NVIDIA driver" in refused.stderr


def source_of(kernel):
    """The source of a kernel that is made for an LSTM, from its name."""
    mapping = re.fullmatch(r"(persistent|quantum)_lstm_(\d+)_(\d+)x(\d+)_(\d+)x(\d+)", kernel)
    kind, *numbers = mapping.groups()
    hidden, width, height, groups, lanes = map(int, numbers)
    shape = f"InF32<{hidden}, {width}, {height}, {groups}, {lanes}>"
    run = f"run_steps<Lstm, {shape}>" if kind == "persistent" else f"run_tasks<OneBarrier<Lstm, {shape}>>"
    return f"{kind.upper()}({kernel}, {groups * lanes}, {run})\n"


@pytest.fixture
def compiler():
    """The environment in which a program finds NVIDIA's compiler."""
    found = sorted(ROOT.glob("target/emulate/venv/lib/python*/site-packages/nvidia/*/lib"))
    if not found:
        pytest.skip("`cargo xtask emulate` has not installed NVIDIA's compiler")
    return {"LD_LIBRARY_PATH": ":".join(map(str, found))}


def test_kernels_that_are_made_for_a_cell(serve, driver, compiler, tmp_path, monkeypatch):
    """NVIDIA's compiler makes the kernels. The emulator has them once their names are known: the first server finds none."""
    arguments = ("models/langid", "--device", "cuda:0", "--gpu-kernels", "quanta")
    environment = {**os.environ, **driver[0], **compiler, "XDG_CACHE_HOME": str(tmp_path)}
    command = [BINARY, "serve", *arguments, "--http", "127.0.0.1:0"]
    refused = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1
    kernels = set()
    while missing := set(re.findall(r"the image has the kernel (\w+), no library", driver[1].read_text())) - kernels:
        kernels |= missing
        driver[1].write_text("")
        source = tmp_path / "made.cu"
        header = ROOT / "crates/cuda/kernels/quantum.cuh"
        source.write_text(f'#include "{header}"\n' + "".join(map(source_of, sorted(kernels))))
        made, reports = emulated(tmp_path / "kernels", source)
        environment = {**made, **compiler, "XDG_CACHE_HOME": str(tmp_path)}
        tried = {**os.environ, **environment, "EMULATED_CUDA_REPORTS": str(driver[1])}
        inspected = subprocess.run([BINARY, "inspect", *arguments], env=tried, cwd=ROOT, capture_output=True, timeout=120)
    assert inspected.returncode == 0, inspected.stderr
    assert {kernel.split("_")[0] for kernel in kernels} == {"persistent", "quantum"}
    on_cores = serve("models/langid")
    with monkeypatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        on_gpu = serve(*arguments)
    for word in WORDS:
        reply, expected = (infer(server, "langid", word) for server in (on_gpu, on_cores))
        assert reply["language"] == expected["language"], word
    assert on_gpu.stop() == 0
    assert not reports.exists() or reports.read_text() == ""
