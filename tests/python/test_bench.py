"""`batchmaker bench` and the graph-batching peers, as their users call them."""

import json
import subprocess
import sys

import pytest

import cell_files
import recurrent_files
from conftest import BINARY, ROOT

DISTRIBUTION = {"mean", "p50", "p90", "p99", "max"}
KEYS = {
    "policy", "workload", "seed", "rate_rps", "requests", "errors", "lateness_ms",
    "throughput_rps", "steps_per_s", "latency_ms", "queue_ms", "compute_ms", "cells", "busy",
    "cpu_s",
}


def bench(*arguments, status=0):
    command = [BINARY, "bench", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done


def reports(*arguments):
    lines = bench(*arguments, "--json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert all(KEYS <= set(report) for report in found)
    return found


@pytest.fixture(scope="module")
def lstm(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "lstm.onnx"
    recurrent_files.write(path, seed=1, input_size=8, hidden_size=32, layers=2, head=5)
    return path


def test_requests_of_a_file_are_replayed(lstm, tmp_path):
    lines = []
    for length in (3, 9):
        data = [0.5] * (8 * length)
        tensor = {"name": "x", "shape": [length, 1, 8], "datatype": "FP32", "data": data}
        lines.append(json.dumps({"inputs": [tensor]}))
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join([*lines, "", lines[0]]))
    [found] = reports(lstm, "--replay", path, "--saturate", "--in-flight", 2, "--requests", 90)
    assert (found["requests"], found["errors"], found["workload"]) == (90, 0, f"replay:{path}")
    assert found["latency_ms"]["p50"] > 0
    path.write_text(lines[0] + "\n{}")
    refused = bench(lstm, "--replay", path, "--saturate", status=1).stderr
    assert f"line 2 of '{path}'" in refused
    path.write_text("\n")
    assert "has no requests" in bench(lstm, "--replay", path, "--saturate", status=1).stderr


def test_policies_take_turns_on_the_same_requests(lstm, tmp_path):
    policies = ["cellular", "padded:10", "padded:40:own"]
    options = [option for policy in policies for option in ("--policy", policy)]
    load = ["--rate", 500, "--requests", 300, "--workload", "europarl:60", "--seed", 5]
    found = reports(lstm, *load, *options)
    trace = tmp_path / "trace"
    bench(lstm, *load, "--write-trace", trace)
    steps = sum(json.loads(line)["length"] for line in trace.read_text().splitlines())
    assert [report["policy"] for report in found] == policies
    for report in found:
        assert (report["requests"], report["errors"], report["rate_rps"]) == (300, 0, 500.0)
        assert set(report["latency_ms"]) == set(report["queue_ms"]) == DISTRIBUTION
        assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["p99"]
        assert report["lateness_ms"]["max"] >= report["lateness_ms"]["p50"] >= 0
        assert set(report["cells"]) == {"layer_0", "layer_1", "head"}
        for cell in report["cells"].values():
            rows = cell["tasks"] * cell["batch_mean"]
            nodes = round(rows * (1 - cell["padding_share"]))
            assert nodes == steps, "every step of every request once"
    padding = [max(cell["padding_share"] for cell in r["cells"].values()) for r in found]
    assert padding[0] == 0 and padding[1] > 0


def test_saturation_and_sweeps(lstm):
    (report,) = reports(lstm, "--saturate", "--seconds", 1)
    assert report["rate_rps"] is None and report["throughput_rps"] > 100
    assert max(cell["batch_max"] for cell in report["cells"].values()) > 8
    rates = [report["rate_rps"] for report in reports(lstm, "--sweep", "300,200", "--seconds", 0.3)]
    assert rates == [300.0, 200.0]


def test_tables_and_plots(lstm, tmp_path):
    plot, times = tmp_path / "plot.svg", tmp_path / "times.svg"
    options = ["--policy", "cellular", "--policy", "padded", "--plot", plot, "--plot-times", times]
    table = bench(lstm, "--rate", 300, "--seconds", 0.5, *options).stdout
    assert "Where time goes" in table and "padded:10" in table
    for path in plot, times:
        svg = path.read_text()
        assert svg.startswith("<svg") and "cellular" in svg and "padded:10" in svg


def test_a_server_is_measured_over_the_wire(lstm, serve):
    server = serve(lstm, "langid")
    for model in "lstm", "langid":
        # So many that the client's time shows where it is counted in hundredths of a second.
        options = ["--rate", 1000, "--requests", 1000, "--url", f"http://{server.http}"]
        (report,) = reports(model, *options)
        assert (report["requests"], report["errors"]) == (1000, 0)
        assert report["cells"] is report["busy"] is report["cpu_s"] is None
        assert report["client_cpu_s"] > 0
    error = bench("nobody", "--rate", 1, "--url", f"http://{server.http}", status=1).stderr
    assert "404" in error and "nobody" in error
    server.wait_until_unused()


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["langid"], 2, "--rate"),
        (["langid", "--rate", "0"], 2, "above 0"),
        (["langid", "--rate", "1", "--saturate"], 2, "cannot be used with"),
        (["langid", "--rate", "1", "--policy", "merged:0"], 2, "no policy"),
        (["langid", "--rate", "1", "--policy", "padded:0"], 2, "no policy"),
        (["langid", "--rate", "1", "--workload", "pairs:a"], 2, "write pairs:SOURCE:TARGET"),
        (["langid", "--rate", "1", "--workload", "file:nowhere.txt"], 1, "nowhere.txt"),
        (["langid", "--rate", "1", "--url", "http://127.0.0.1:1"], 1, "is the server running"),
        (["langid", "--rate", "1", "--url", "x", "--policy", "padded"], 2, "cannot be used with"),
        (["nowhere.onnx", "--rate", "1"], 1, "nowhere.onnx"),
    ],
)
def test_mistakes_are_told(arguments, status, expected):
    assert expected in bench(*arguments, status=status).stderr


def test_failures_are_counted_and_told(tmp_path):
    # The longest request that a model takes has 65,536 steps.
    load = ["--rate", 50, "--requests", 6, "--workload", f"file:{tmp_path / 'text'}", "--seed", 3]
    (tmp_path / "text").write_text("short\n" + "w " * 70_000 + "\n")
    done = bench("langid", *load, "--json", status=1)
    report = json.loads(done.stdout)
    assert report["requests"] > 0 and report["errors"] > 0
    assert report["requests"] + report["errors"] == 6
    assert "65536" in done.stderr and "requests failed" in done.stderr


def test_a_file_gives_the_lengths(tmp_path, lstm):
    text, trace = tmp_path / "text", tmp_path / "trace"
    text.write_text("one\nfour words are here\n\nthis line has five words\n")
    load = ["--rate", "100", "--requests", "50", "--workload", f"file:{text}"]
    bench(lstm, *load, "--write-trace", trace)
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert len(lines) == 50 and {line["length"] for line in lines} == {1, 4, 5}
    times = [line["at_s"] for line in lines]
    assert times == sorted(times) and 0.2 < times[-1] < 1.0


@pytest.mark.parametrize(
    "make",
    [
        ["make_lstm.py", "--hidden", "48", "--input", "20"],
        ["make_lstm.py", "--hidden", "24", "--input", "20", "--layers", "2", "--bidirectional"],
        ["make_encoder_decoder.py", "--hidden", "24", "--vocabulary", "40"],
    ],
    ids=["lstm", "both ways", "pairs"],
)
def test_the_onnx_runtime_peer_computes_what_it_should(tmp_path, make):
    peers, model = ROOT / "bench/peers", tmp_path / "model.onnx"
    for arguments in (
        [*make, "--out", str(model)],
        ["peer.py", "--model", str(model), "--executor", "onnxruntime", "--check"],
    ):
        command = [sys.executable, str(peers / arguments[0]), *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["check"] == "passed"


TREES = "(3 (2 (2 not) (1 very)) (2 bad))\n(2 fine)\n\n(1 (1 a) (2 (2 b) (3 (3 a) (3 c))))\n"


def test_pairs_force_what_a_decoder_runs(lstm, tmp_path):
    model, source, target = tmp_path / "translator", tmp_path / "en", tmp_path / "de"
    cell_files.translator(model, 15, 8, 1)
    source.write_text("one two three\n\nfour\n")
    target.write_text("eins zwei\nnichts\nv i e r\n")
    load = ["--rate", 500, "--requests", 100, "--workload", f"pairs:{source}:{target}"]
    (found,) = reports(model, *load)
    trace = tmp_path / "trace"
    bench(model, *load, "--write-trace", trace)
    requests = [json.loads(line) for line in trace.read_text().splitlines()]
    assert {(of["length"], of["target"]) for of in requests} == {(3, 2), (1, 4)}
    assert found["errors"] == 0
    nodes = {name: round(cell["tasks"] * cell["batch_mean"]) for name, cell in found["cells"].items()}
    assert nodes["encoder"] == sum(of["length"] for of in requests)
    assert nodes["decoder"] == sum(of["target"] for of in requests)
    assert "the model has no decoder" in bench(lstm, *load, status=1).stderr


def test_trees_of_a_file_and_complete_ones(tmp_path):
    model = tmp_path / "tree"
    cell_files.tree_lstm(model, 9, 7, False, 1)
    trees = tmp_path / "trees.txt"
    trees.write_text(TREES)
    load = ["--rate", 500, "--requests", 200, "--workload", f"file:{trees}"]
    found = reports(model, *load, "--policy", "cellular", "--policy", "merged:8")
    trace = tmp_path / "trace"
    bench(model, *load, "--write-trace", trace)
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    leaves = sum(line["leaves"] for line in lines)
    inner = sum(len(line["children"]) for line in lines)
    assert {line["leaves"] for line in lines} == {1, 3, 4} and leaves == inner + 200
    for report in found:
        cells = report["cells"]
        nodes = {name: round(of["tasks"] * of["batch_mean"]) for name, of in cells.items()}
        assert (report["errors"], nodes) == (0, {"leaf": leaves, "internal": inner})
    (report,) = reports(model, "--saturate", "--requests", 100, "--workload", "fixed:16")
    tasks = {name: round(of["tasks"] * of["batch_mean"]) for name, of in report["cells"].items()}
    assert tasks == {"leaf": 1600, "internal": 1500}
    assert "has no trees" in bench(model, "--saturate", status=1).stderr
    trees.write_text(TREES + "(1 (2 a) (2 b) (2 c))\n")
    refused = bench(model, *load, status=1).stderr
    assert "line 5" in refused and "a node has 3 children; the model's have 2" in refused
