"""`DynamicQuantizeLSTM` of ONNX Runtime: weights of 8 bits of every kind, both directions and first states, against ONNX's
reference implementation with exact sums; the same bits alone and in company.
"""

import concurrent.futures
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BINARY, ROOT
from onnx import TensorProto, helper, numpy_helper
from sessions import Client

sys.path.append(str(ROOT / "tests/python/real_models"))
from exact import Exact  # noqa: E402

HIDDEN, FEATURES, SEED = 19, 6, 53

# The numbers of W and R, their zero point, and whether each row has a scale of its own.
KINDS = {
    "int8": (np.int8, 0, False),
    "int8, a scale a row": (np.int8, 0, True),
    "uint8 around 128": (np.uint8, 128, True),
    "uint8 of all ranges": (np.uint8, 7, True),
}


def write(path, kind, direction, has_states, spread=40, **attributes):
    numbers, zero_point, by_row = KINDS[kind]
    rng = np.random.default_rng(SEED)
    directions = 2 if direction == "bidirectional" else 1
    info, gates = np.iinfo(numbers), 4 * HIDDEN
    tensors = {}
    for name, rows in (("W", FEATURES), ("R", HIDDEN)):
        # A wide range has a mean far from its zero point, at which sums would saturate.
        tensors[name] = np.clip(
            np.rint(rng.normal(zero_point, spread, (directions, rows, gates))), info.min, info.max
        ).astype(numbers)
        shape = (directions, gates) if by_row else (directions,)
        tensors[f"{name}_scale"] = rng.uniform(0.004, 0.008, shape).astype(np.float32)
        tensors[f"{name}_zero"] = np.full(shape, zero_point, numbers)
    tensors["B"] = rng.standard_normal((directions, 2 * gates), np.float32) / 4
    states = ["h0", "c0"] if has_states else ["", ""]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "W", "R", "B", "", *states, "", "W_scale", "W_zero", "R_scale", "R_zero"],
        ["y", "h", "c"], domain="com.microsoft", hidden_size=HIDDEN, direction=direction,
        **attributes,
    )
    info = helper.make_tensor_value_info
    of_states = (directions, "batch", HIDDEN)
    graph = helper.make_graph(
        [node], "quantised",
        [
            info("x", TensorProto.FLOAT, ("time", "batch", FEATURES)),
            *(info(of, TensorProto.FLOAT, of_states) for of in states if of),
        ],
        [
            info("y", TensorProto.FLOAT, ("time", directions, "batch", HIDDEN)),
            *(info(of, TensorProto.FLOAT, of_states) for of in ("h", "c")),
        ],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def request(seed, has_states, directions, steps):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.standard_normal((steps, 1, FEATURES), np.float32)}
    if has_states:
        arrays |= {of: rng.uniform(-1, 1, (directions, 1, HIDDEN)).astype(np.float32) for of in ("h0", "c0")}
    return arrays


@pytest.mark.parametrize(
    "direction, has_states", [("forward", False), ("reverse", True), ("bidirectional", True)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_replies_are_exact(serve, tmp_path, kind, direction, has_states):
    path = tmp_path / "quantised.onnx"
    write(path, kind, direction, has_states)
    told = subprocess.run([BINARY, "inspect", path], capture_output=True, text=True, check=True).stdout
    assert "kernel of bytes; h is quantised, x is whole numbers and their scale" in told
    exact = Exact(onnx.load(path))
    directions = 2 if direction == "bidirectional" else 1
    requests = [request(SEED + n, has_states, directions, steps) for n, steps in enumerate((1, 2, 5, 9, 17))]
    server = serve(path)
    alone = [Client(server, "quantised").infer(of) for of in requests]
    errors = []
    for found, arrays in zip(alone, requests):
        wanted = exact.run(arrays)
        assert found.keys() == wanted.keys()
        errors += [np.abs(found[of] - wanted[of]).max() for of in wanted]
    # Of a number at the middle between two steps, a rounding may give the other one.
    assert np.median(errors) < 1e-6 and max(errors) < 1e-2, errors
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        for _ in range(3):
            together = pool.map(lambda of: Client(server, "quantised").infer(of), requests)
            for found, arrays in zip(together, alone):
                assert all(found[of].tobytes() == arrays[of].tobytes() for of in arrays)


@pytest.mark.parametrize(
    "rule", [{"clip": 0.4}, {"activations": ["HardSigmoid", "Softsign", "Tanh"]}], ids=["clip", "activations"]
)
def test_steps_of_a_rule_quantise_h(serve, tmp_path, rule):
    path = tmp_path / "quantised.onnx"
    # So small that no sum of ONNX Runtime saturates.
    write(path, "int8", "forward", True, spread=12, **rule)
    session = onnxruntime.InferenceSession(path)
    arrays = request(SEED, True, 1, 9)
    wanted = dict(zip(("y", "h", "c"), session.run(None, arrays)))
    found = Client(serve(path), "quantised").infer(arrays)
    errors = [np.abs(found[of] - wanted[of]).max() for of in wanted]
    assert max(errors) < 5e-3, errors
