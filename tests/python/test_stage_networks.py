"""The six networks of DVABatch's evaluation, thinner: through `batchmaker run` against ONNX Runtime, and cut into stages."""

import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import sys
import urllib.request

import numpy as np
import onnxruntime
import pytest
from conftest import BINARY

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "stages"))

from make_networks import NETWORKS, WORDS, write

PIXELS, THIN = 64, 16


def requests(name, random):
    """Requests of one and of several sequences or images; sentences of several lengths."""
    if name.startswith("bert"):
        shapes = [(1, 7), (3, 7), (1, 19), (2, 1)]
        return [random.integers(0, WORDS, shape) for shape in shapes]
    return [random.standard_normal((batch, 3, PIXELS, PIXELS), np.float32) for batch in (1, 2)]


def body(array):
    name, kind = ("input_ids", "INT64") if array.dtype == np.int64 else ("image", "FP32")
    tensor = {"name": name, "shape": array.shape, "datatype": kind, "data": array.ravel().tolist()}
    return json.dumps({"inputs": [tensor]})


def replies(path, arrays):
    """The outputs of each request, by name."""
    text = "\n".join(body(array) for array in arrays) + "\n"
    result = subprocess.run(
        [BINARY, "run", path], input=text, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr
    def outputs(line):
        of_line = json.loads(line)["outputs"]
        return {o["name"]: np.array(o["data"], np.float32).reshape(o["shape"]) for o in of_line}
    return [outputs(line) for line in result.stdout.splitlines()]


def ask(server, name, array):
    """The outputs of a reply over HTTP."""
    url = f"http://{server.http}/v2/models/{name}/infer"
    request = urllib.request.Request(url, body(array).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["outputs"]


def assert_same(outputs, wanted):
    """Asserts that outputs have the same bits as those of `batchmaker run`."""
    for output in outputs:
        bits = np.array(output["data"], np.float32).reshape(output["shape"])
        assert np.array_equal(bits, wanted[output["name"]])


def assert_near(outputs, wanted):
    """Asserts that outputs are within 1e-6 of those of `batchmaker run`."""
    for output in outputs:
        numbers = np.array(output["data"], np.float32).reshape(output["shape"])
        assert np.max(np.abs(numbers - wanted[output["name"]])) <= 1e-6


def profile(path, *options):
    command = [BINARY, "profile", path, "--precision", "f32", "--steps", "8", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


@pytest.mark.parametrize("name", NETWORKS)
def test_against_onnx_runtime(tmp_path, name):
    path = tmp_path / f"{name}.onnx"
    write(name, path, THIN, PIXELS)
    session = onnxruntime.InferenceSession(path)
    (taken,) = session.get_inputs()
    arrays = requests(name, np.random.default_rng(20268))
    for array, reply in zip(arrays, replies(path, arrays), strict=True):
        names = [output.name for output in session.get_outputs()]
        for output, wanted in zip(names, session.run(None, {taken.name: array}), strict=True):
            assert reply[output].shape == wanted.shape
            error = np.max(np.abs(reply[output] - wanted))
            assert error <= 1e-5 * max(1.0, np.max(np.abs(wanted))), output


@pytest.mark.parametrize("name", ["resnet152", "unet", "bert-base"])
def test_stages_give_the_same_bits(tmp_path, serve, name):
    """`profile` cuts a network; served in stages, requests that come together get the replies of the whole network, bit for bit."""
    path = tmp_path / f"{name}.onnx"
    write(name, path, THIN, PIXELS)
    arrays = requests(name, np.random.default_rng(20269)) * 4
    wanted = replies(path, arrays)
    assert "3 stages" in profile(path, "--stages", "3")
    inspected = subprocess.run([BINARY, "inspect", path, "--json"], capture_output=True, text=True, check=True)
    described = json.loads(inspected.stdout)
    stages = described["stages"]
    assert described["staged_policy"].startswith("staged:input:" if name == "bert-base" else "staged:")
    assert [stage["start"] is None for stage in stages] == [True, False, False]
    assert all(stage["preferred_batch_size"] >= 1 for stage in stages)
    for policy in ["staged:batch=3", "delay:window=2ms:batch=4", "staged:pairs=2:window=2ms:stretch=1s:split=0"]:
        server = serve(path, "--policy", policy, "--workers", "2", "--threads-per-worker", "1")
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            for outputs, of_whole in zip(threads.map(ask, [server] * len(arrays), [name] * len(arrays), arrays), wanted, strict=True):
                assert_same(outputs, of_whole)
        server.wait_until_unused()


@pytest.mark.parametrize("name", ["linknet", "bert-base"])
def test_a_network_is_cut_only_where_batches_gain_by_it(tmp_path, serve, name):
    """Without `--stages`, a network in stages has batches that are stretched or split between them; else it is one stage."""
    path = tmp_path / f"{name}.onnx"
    write(name, path, THIN, PIXELS)
    profile(path)
    inspected = subprocess.run([BINARY, "inspect", path, "--json"], capture_output=True, text=True, check=True)
    described = json.loads(inspected.stdout)
    policy = described["staged_policy"]
    brings_nothing = ":stretch=0:" in policy and policy.endswith(":split=never")
    assert brings_nothing == (len(described["stages"]) == 0), described
    arrays = requests(name, np.random.default_rng(20271))
    wanted = replies(path, arrays)
    server = serve(path, "--policy", "staged")
    count = len(described["stages"])
    assert f"{name} is served in {f'{count} stages' if count else 'one stage'}, staged:" in "".join(server.errors)
    # Where noise has linknet cut, a sum of it has another order than in the whole network: its last bit may differ. Other networks keep their bits.
    check = assert_near if name == "linknet" and count else assert_same
    for array, of_whole in zip(arrays, wanted, strict=True):
        check(ask(server, name, array), of_whole)


def test_stages_beside_other_models(tmp_path, serve):
    """Two models in stages, each with its own, beside one with recurrence: all are asked at once."""
    names = ["unet", "bert-base"]
    paths = {name: tmp_path / name / f"{name}.onnx" for name in names}
    arrays, wanted = {}, {}
    for name, path in paths.items():
        path.parent.mkdir()
        write(name, path, THIN, PIXELS)
        profile(path, "--stages", "2")
        arrays[name] = requests(name, np.random.default_rng(20270)) * 3
        wanted[name] = replies(path, arrays[name])
    text = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["Wer reitet so spät durch Nacht und Wind?"]}]}
    policies = ["--policy", "unet=staged", "--policy", "bert-base=staged:load:batch=3"]
    server = serve(*paths.values(), "langid", *policies, "--workers", "2", "--share", "langid=2")
    notes = "".join(server.errors)
    assert "unet is served in 2 stages, staged:" in notes
    assert "bert-base is served in 2 stages, staged:load:batch=3:stretch=" in notes

    def ask_text(_):
        url = f"http://{server.http}/v2/models/langid/infer"
        request = urllib.request.Request(url, json.dumps(text).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["outputs"]

    with concurrent.futures.ThreadPoolExecutor(24) as threads:
        of_text = threads.map(ask_text, range(40))
        of_name = {
            name: threads.map(ask, [server] * len(of_model), [name] * len(of_model), of_model)
            for name, of_model in arrays.items()
        }
        for name, replies_of_model in of_name.items():
            for outputs, of_whole in zip(replies_of_model, wanted[name], strict=True):
                assert_same(outputs, of_whole)
        answers = list(of_text)
    assert all(answer == answers[0] for answer in answers)
    server.wait_until_unused()
    times = {key: us for key, us in server.metrics().items() if "worker_microseconds_total" in key}
    for name in [*names, "langid"]:
        assert sum(us for key, us in times.items() if f'"{name}"' in key) > 0, times


def test_stages_that_cannot_be_served_are_told(tmp_path, serve):
    path = tmp_path / "vgg19.onnx"
    write("vgg19", path, THIN, PIXELS)
    server = serve(path, "--policy", "staged")
    assert "vgg19 is one stage" in "".join(server.errors)
    with pytest.raises(RuntimeError, match="does not take langid: it has recurrence"):
        serve("langid", "--policy", "staged")
    with pytest.raises(RuntimeError, match="a policy is set for 'vgg', which is no model"):
        serve(path, "--policy", "vgg=staged")
    with pytest.raises(RuntimeError, match="models that are not served in stages have one in common"):
        serve("langid", "g2p", "--policy", "padded", "--policy", "g2p=cellular")


def test_padded_batches(tmp_path):
    """A batcher before the engine pads each batch to its longest sentence: cells run over the padding too, and every request is answered."""
    path = tmp_path / "bert-base.onnx"
    write("bert-base", path, THIN, PIXELS)

    def words(policy, workload):
        command = [BINARY, "bench", path, "--policy", policy, "--workload", workload, "--saturate", "--in-flight", "8", "--requests", "96", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["policy"], report["requests"], report["errors"]) == (policy, 96, 0)
        assert report["queue_ms"]["mean"] + report["compute_ms"]["mean"] <= report["latency_ms"]["mean"] * 1.01
        # Most cells run once for each word.
        return statistics.mode(round(cell["tasks"] * cell["batch_mean"]) for cell in report["cells"].values())

    policies = ["zero:batch=4", "zero:padded:batch=4", "delay:padded:batch=4:window=2ms"]
    assert {words(policy, "fixed:9") for policy in policies} == {9 * 96}, "nothing to pad"
    whole, *padded = [words(policy, "europarl:40") for policy in policies]
    assert all(whole * 1.1 < of < whole * 3 for of in padded), (whole, padded)


@pytest.mark.parametrize("policy", ["delay:padded", "zero:padded:padded", "padded:zero"])
def test_what_is_no_padded_policy_is_refused(policy):
    done = subprocess.run([BINARY, "bench", "langid", "--saturate", "--policy", policy], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no policy" in done.stderr
