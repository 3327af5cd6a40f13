"""A sample of the models that `generated/make_models.py --seed 1` writes with PyTorch's two exporters,
against ONNX Runtime: see `generated/check_models.py`."""

import json
import pathlib
import subprocess
import sys

from conftest import BINARY

GENERATED = pathlib.Path(__file__).parent / "generated"


def test_a_sample_of_generated_models(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, GENERATED / "check_models.py", GENERATED / "sample"]
    command += ["--binary", BINARY, "--json", report]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    classes = [file["class"] for file in json.loads(report.read_text())]
    assert classes and set(classes) == {"ok"}, result.stdout
