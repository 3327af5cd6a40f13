"""Profiles: written by `profile`, taken by `serve`, ignored where they mean nothing; precisions."""

import json
import math
import pathlib
import shutil
import subprocess
import time

import cell_files
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import conftest
from test_cells import infer

HIDDEN = 96


def write_lstm(path, seed):
    """An LSTM with random weights, over x [time, batch, 32]."""
    numbers = np.random.default_rng(seed)
    draw = lambda *shape: (numbers.standard_normal(shape) / HIDDEN**0.5).astype(np.float32)
    weights = {"w": draw(1, 4 * HIDDEN, 32), "r": draw(1, 4 * HIDDEN, HIDDEN)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y", "", ""], "lstm", hidden_size=HIDDEN)
    graph = helper.make_graph(
        [node],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["time", "batch", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["time", 1, "batch", HIDDEN])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]), path)


def batchmaker(*arguments, **options):
    command = [str(conftest.BINARY), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A folder with a model and its profile, and what `profile` said."""
    folder = tmp_path_factory.mktemp("profiled")
    write_lstm(folder / "m.onnx", 1)
    said = batchmaker("profile", folder / "m.onnx", "--max-error", "0.5", "--plot", folder / "m.svg")
    assert said.returncode == 0, said.stderr
    return folder, said.stdout


def run(folder, *arguments):
    """A reply of the model, and notes."""
    x = np.random.default_rng(7).standard_normal((5, 1, 32)).astype(np.float32)
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
    done = batchmaker("run", folder / "m.onnx", *arguments, input=json.dumps({"inputs": [tensor]}) + "\n")
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout)["outputs"][0]["data"], np.float32), done.stderr


def test_profile_measures_and_chooses(profiled):
    folder, said = profiled
    assert "f32 us" in said and "bf16 us" in said and "int8 us" in said
    assert "replies differ from f32 by" in said and "for throughput:" in said
    profile = json.loads((folder / "profile.json").read_text())
    cell = profile["models"]["m"]["cells"]["lstm"]
    for precision, curve in cell["curves"].items():
        batches = [point["batch"] for point in curve["points"]]
        assert batches[0] == 1 and batches == sorted(batches) and len(batches) > 10
        assert all(point["us"] > 0 for point in curve["points"])
        if precision != "f32":
            assert 0 < curve["difference"]["mean"] <= curve["difference"]["largest"] < 0.2
    assert (folder / "m.svg").read_text().count("<circle") > 30


def test_serving_takes_the_profile(profiled):
    """The precision that it chose, which is not f32 if that is not the fastest."""
    folder, _ = profiled
    cell = json.loads((folder / "profile.json").read_text())["models"]["m"]["cells"]["lstm"]
    taken, notes = run(folder)
    assert "note" not in notes
    plain, _ = run(folder, "--precision", "f32")
    named, _ = run(folder, "--precision", f"lstm={cell['precision']}")
    np.testing.assert_array_equal(taken, named)
    assert (taken == plain).all() == (cell["precision"] == "f32")
    for goal in ("latency", "p90:5", "p90:5:20"):
        np.testing.assert_array_equal(run(folder, "--goal", goal)[0], taken)


@pytest.mark.parametrize("precision, tolerance", [("f32", 1e-6), ("bf16", 0.02), ("int8", 0.05)])
def test_precisions_are_near_each_other(profiled, precision, tolerance):
    folder, _ = profiled
    plain, _ = run(folder, "--precision", "f32", "--isa", "scalar")
    reduced, _ = run(folder, "--precision", precision)
    assert np.abs(plain - reduced).max() < tolerance
    assert (plain == reduced).all() == (precision == "f32")


def test_another_machines_profile_is_ignored(profiled, tmp_path):
    folder, _ = profiled
    shutil.copy(folder / "m.onnx", tmp_path)
    profile = json.loads((folder / "profile.json").read_text())
    profile["machine"]["processor"] = "Another 9000"
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    reply, notes = run(tmp_path)
    assert "made on another machine (Another 9000" in notes and "ignored" in notes
    np.testing.assert_array_equal(reply, run(folder, "--precision", "f32")[0])


def test_another_number_of_threads_is_told_of(profiled):
    folder, _ = profiled
    profile = json.loads((folder / "profile.json").read_text())
    threads = profile["models"]["m"]["threads"]
    _, notes = run(folder, "--workers", "1", "--threads-per-worker", 1 if threads > 1 else 2)
    assert f"a profile was made on {threads} threads" in notes


def test_another_files_profile_is_ignored(profiled, tmp_path):
    folder, _ = profiled
    write_lstm(tmp_path / "m.onnx", 2)
    shutil.copy(folder / "profile.json", tmp_path)
    reply, notes = run(tmp_path)
    assert "made with other weights" in notes
    np.testing.assert_array_equal(reply, run(tmp_path, "--precision", "f32")[0])


def test_what_cannot_be_read(profiled, tmp_path):
    folder, _ = profiled
    shutil.copy(folder / "m.onnx", tmp_path)
    (tmp_path / "profile.json").write_text("{}")
    _, notes = run(tmp_path)
    assert "is no profile that this version wrote" in notes
    missing = batchmaker("run", folder / "m.onnx", "--profile", tmp_path / "none.json", input="")
    assert missing.returncode == 1 and "none.json" in missing.stderr
    for arguments in (["--precision", "f16"], ["--goal", "p90"], ["--precision", "x=bf16"]):
        refused = batchmaker("run", folder / "m.onnx", *arguments, input="")
        assert refused.returncode in (1, 2) and refused.stderr.count("\n") <= 4, refused.stderr
    nowhere = batchmaker("profile", folder / "m.onnx", "--output", tmp_path / "no" / "p.json")
    assert nowhere.returncode == 1 and "p.json" in nowhere.stderr


def test_errors_on_given_requests(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("All human beings are born free and equal\nAlle Menschen sind frei geboren\n")
    said = batchmaker(
        "profile", "langid", "--requests", texts, "--output", tmp_path / "p.json",
        "--precision", "int8",
    )
    assert said.returncode == 0, said.stderr
    assert "int8: replies differ from f32" in said.stdout and "100.00 % of ids" in said.stdout
    assert "bf16" not in said.stdout
    done = batchmaker("run", "langid", "--profile", tmp_path / "p.json", input=texts.read_text())
    assert [json.loads(line)["outputs"] for line in done.stdout.splitlines()]
    assert "note" not in done.stderr, "made here, on all cores"


def test_model_toml_names_precisions(tmp_path):
    write_lstm(tmp_path / "whole.onnx", 1)
    folder = tmp_path / "model"
    shutil.copytree(pathlib.Path(__file__).parents[2] / "models" / "g2p", folder)
    text = (folder / "model.toml").read_text()
    (folder / "model.toml").write_text(text.replace("[[cell]]", '[[cell]]\nprecision = "bf16"'))
    shown = json.loads(batchmaker("inspect", folder, "--json").stdout)
    assert {cell["precision"] for cell in shown["cells"]} == {"bf16"}
    (folder / "model.toml").write_text(text.replace("[[cell]]", '[[cell]]\nprecision = "f8"', 1))
    refused = batchmaker("inspect", folder)
    assert refused.returncode == 1 and "'f8' is no precision" in refused.stderr


def test_bad_options_are_told_of_first(profiled, tmp_path):
    folder, _ = profiled
    model = tmp_path / "m.onnx"
    shutil.copy(folder / "m.onnx", model)
    before = model.read_bytes()
    (tmp_path / "bad.jsonl").write_text("{}\n")
    for arguments, reason in [
        (["--output", model], "is no profile: it is left as it is"),
        (["--output", "/dev/null"], "is no profile: it is left as it is"),
        (["--requests", tmp_path / "none.jsonl"], "none.jsonl"),
        (["--requests", tmp_path / "bad.jsonl"], "line 1 of"),
        (["--plot", tmp_path / "no" / "x.svg"], "no folder"),
    ]:
        refused = batchmaker("profile", model, *arguments)
        assert refused.returncode == 1 and reason in refused.stderr, refused.stderr
    assert model.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "m.onnx"]


def test_what_the_model_says_is_no_measure(tmp_path):
    """Of a model that asks for int8 itself, int8 is not without error."""
    folder = tmp_path / "model"
    cell_files.recurrent_chain(folder, vocabulary=50, size=40, seed=2)
    text = (folder / "model.toml").read_text()
    (folder / "model.toml").write_text(text.replace("[[cell]]", '[[cell]]\nprecision = "int8"'))
    said = batchmaker("profile", folder, "--max-error", "0.5", "--precision", "int8")
    assert said.returncode == 0, said.stderr
    (cell,) = json.loads((folder / "profile.json").read_text())["models"]["model"]["cells"].values()
    assert cell["is_stepped"] and cell["curves"]["int8"]["difference"]["mean"] > 0


def test_one_bad_input_is_seen_in_int8(profiled, tmp_path):
    """A row with an infinite input has no scale: its reply is not finite, and int8 is not chosen."""
    folder, _ = profiled
    requests = tmp_path / "requests.jsonl"
    lines = []
    for value in ("Infinity", 0.5):
        data = [value] + [0.1] * 95
        tensor = {"name": "x", "shape": [3, 1, 32], "datatype": "FP32", "data": data}
        lines.append(json.dumps({"inputs": [tensor]}))
    requests.write_text("\n".join(lines) + "\n")
    output = tmp_path / "p.json"
    said = batchmaker(
        "profile", folder / "m.onnx", "--requests", requests, "--max-error", "0.1",
        "--output", output,
    )
    assert said.returncode == 0, said.stderr
    assert "int8: replies are not finite" in said.stdout
    cell = json.loads(output.read_text())["models"]["m"]["cells"]["lstm"]
    assert cell["precision"] != "int8" and cell["curves"]["int8"]["difference"]["largest"] > 1e300
    assert batchmaker("run", folder / "m.onnx", "--profile", output, input="").stderr == ""


def test_goals_that_cannot_be_reached_are_told_of(profiled, tmp_path):
    folder, _ = profiled
    _, notes = run(folder, "--goal", "p90:0.001")
    assert "no batch of cell 'lstm' is fast enough for 'p90:0.001:50'" in notes
    shutil.copy(folder / "m.onnx", tmp_path)
    _, notes = run(tmp_path, "--goal", "latency")
    assert "no profile knows these cells" in notes


def rows_of_a_batch(server, model, sequences=8):
    """Rows of each batch that a request of so many sequences makes, in the mean, and its reply."""
    x = np.random.default_rng(5).standard_normal((6, sequences, 32)).astype(np.float32)

    def counts():
        return np.array([
            sum(value for name, value in server.metrics().items() if name.startswith(counted))
            for counted in ("batchmaker_nodes_total", "batchmaker_batches_total")
        ])

    before = counts()
    y = infer(server, model, {"x": ("FP32", x)})["y"]
    nodes, batches = counts() - before
    return nodes / batches, y


def test_what_a_profile_says_of_one_model(profiled, tmp_path, serve):
    """Its precision is not another model's with the same weights, and limits are those of the
    precision that is served; model directories in a folder have profiles of their own."""
    folder, _ = profiled
    profile = json.loads((folder / "profile.json").read_text())
    cell = profile["models"]["m"]["cells"]["lstm"]
    cell["precision"] = "int8"
    del cell["curves"]["int8"]["points"][2:]
    for model in ("a", "b"):
        (tmp_path / model).mkdir()
        shutil.copy(folder / "m.onnx", tmp_path / model / "net.onnx")
        text = f'name = "{model}"\n[unfold]\nkind = "onnx"\ngraph = "net.onnx"\n'
        (tmp_path / model / "model.toml").write_text(text)
    profile["models"]["a"] = profile["models"].pop("m")
    (tmp_path / "a" / "profile.json").write_text(json.dumps(profile))
    server = serve(tmp_path)
    rows, of_a = rows_of_a_batch(server, "a")
    assert rows == 2
    rows, of_b = rows_of_a_batch(server, "b")
    assert rows == 8 and (of_a != of_b).any()
    # Nor in one folder, with one file of profiles.
    beside = tmp_path / "files"
    beside.mkdir()
    for model in ("a", "c"):
        shutil.copy(folder / "m.onnx", beside / f"{model}.onnx")
    (beside / "profile.json").write_text(json.dumps(profile))
    server = serve(beside / "a.onnx", beside / "c.onnx")
    assert (rows_of_a_batch(server, "a")[1] == of_a).all()
    assert (rows_of_a_batch(server, "c")[1] == of_b).all()
    shutil.rmtree(beside)
    in_f32 = serve(tmp_path, "--precision", "f32")
    rows, plain = rows_of_a_batch(in_f32, "a")
    assert rows == 8 and (plain == of_b).all()


def limit_for_throughput(curve):
    """The smallest batch within 3 % of the best rate, at 10 microseconds a batch beside its cell."""
    rates = [(point["batch"], point["batch"] / (point["us"] + 10)) for point in curve["points"]]
    most = max(rate for _, rate in rates)
    return next(batch for batch, rate in rates if rate >= 0.97 * most)


def test_calibrating_in_the_background(tmp_path, serve):
    write_lstm(tmp_path / "m.onnx", 3)
    how = ("--precision", "int8", "--goal", "throughput")
    server = serve(tmp_path / "m.onnx", "--calibrate", *how)
    rows, before = rows_of_a_batch(server, "m", 512)
    assert rows == 64, "the limit of a cell that nobody measured"
    end = time.monotonic() + 60
    while not any("m was calibrated" in line for line in server.errors):
        assert time.monotonic() < end, "".join(server.errors)
        time.sleep(0.05)
    profile = json.loads((tmp_path / "profile.json").read_text())
    cell = profile["models"]["m"]["cells"]["lstm"]
    assert list(cell["curves"]) == ["f32", "int8"]
    limit = limit_for_throughput(cell["curves"]["int8"])
    rows, after = rows_of_a_batch(server, "m", 512)
    assert rows == 512 / math.ceil(512 / limit), "limits that were found hold at once"
    assert (after == before).all()
    assert cell["precision"] == "f32", "what the command line says is for once"
    server.stop()
    read = serve(tmp_path / "m.onnx", *how)
    assert rows_of_a_batch(read, "m", 512)[0] == rows, "the same limits when they are read"
    read.stop()
    again = serve(tmp_path / "m.onnx", "--calibrate")
    time.sleep(1.5)
    assert again.stop() == 0 and "calibrated" not in "".join(again.errors)
