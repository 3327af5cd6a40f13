"""Every attribute, input and output of the ONNX operators LSTM, GRU and RNN, drawn at random, through
`batchmaker run` against the specification's equations (recurrent_reference.py) and ONNX Runtime.

`layout=1`, which ONNX Runtime refuses, is compared with `layout=0` of the same weights; activations
whose parameters are left out with the equations alone: ONNX Runtime's defaults are not the operators'.
"""

import json
import subprocess

import numpy as np
import onnxruntime
import pytest
import recurrent_reference
from conftest import BINARY
from onnx import TensorProto, helper, numpy_helper

SEED = 20267
FILES = 24
PER_FILE = 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# Names, how many take an alpha, how many a beta; ONNX Runtime knows the defaults of these.
ACTIVATIONS = {
    "Relu": (0, 0), "Tanh": (0, 0), "Sigmoid": (0, 0), "Softsign": (0, 0), "Softplus": (0, 0),
    "Affine": (1, 1), "LeakyRelu": (1, 0), "ThresholdedRelu": (1, 0), "ScaledTanh": (1, 1),
    "HardSigmoid": (1, 1), "Elu": (1, 0),
}


class Operator:
    """A random node: its attributes, constants, and what a request feeds it."""

    def __init__(self, random):
        self.kind = str(random.choice(list(GATES)))
        self.direction = str(random.choice(["forward", "reverse", "bidirectional"]))
        self.directions = 2 if self.direction == "bidirectional" else 1
        self.input_size, self.hidden_size = (int(n) for n in random.integers(1, 20, 2))
        self.layout = int(random.random() < 0.3)
        self.attributes = {"hidden_size": self.hidden_size, "direction": self.direction}
        if self.kind == "GRU" and random.random() < 0.5:
            self.attributes["linear_before_reset"] = 1
        if self.kind == "LSTM" and random.random() < 0.3:
            self.attributes["input_forget"] = 1
        if random.random() < 0.3:
            self.attributes["clip"] = float(random.uniform(0.1, 1.0))
        # Whether ONNX Runtime computes it as it is specified.
        self.is_plain = True
        if random.random() < 0.6:
            self.draw_activations(random)
        gates, d, h = GATES[self.kind], self.directions, self.hidden_size

        def weights(*shape):
            return random.uniform(-0.2, 0.2, shape).astype(np.float32)

        self.constants = {"w": weights(d, gates * h, self.input_size), "r": weights(d, gates * h, h)}
        if random.random() < 0.7:
            self.constants["b"] = weights(d, 2 * gates * h)
        if self.kind == "LSTM" and random.random() < 0.4:
            self.constants["p"] = weights(d, 3 * h)
        self.has_lengths = random.random() < 0.5
        self.has_states = random.random() < 0.5
        names = ["y", "y_h", "y_c"][: 3 if self.kind == "LSTM" else 2]
        self.outputs = [name for name in names if random.random() < 0.7] or [names[0]]

    def draw_activations(self, random):
        count = {"LSTM": 3, "GRU": 2, "RNN": 1}[self.kind] * self.directions
        names = [str(name) for name in random.choice(list(ACTIVATIONS), count)]
        takes = np.sum([ACTIVATIONS[name] for name in names], axis=0)
        self.attributes["activations"] = names
        self.is_plain = not takes.any()
        if takes[0] and random.random() < 0.7:
            self.attributes["activation_alpha"] = [float(x) for x in random.uniform(0.1, 0.9, takes[0])]
            betas = [float(x) for x in random.uniform(0.1, 0.9, takes[1])]
            self.attributes.update({"activation_beta": betas} if betas else {})
            self.is_plain = True

    def states(self):
        if not self.has_states:
            return []
        return ["h0", "c0"] if self.kind == "LSTM" else ["h0"]

    def model(self, layout):
        """The file; with `layout` 1 its tensors have batch first."""
        h, d = self.hidden_size, self.directions

        def info(name, shape, kind=TensorProto.FLOAT):
            return helper.make_tensor_value_info(name, kind, shape)

        state = ["batch", d, h] if layout else [d, "batch", h]
        inputs = [info("x", ["batch", "time", self.input_size] if layout else
                       ["time", "batch", self.input_size])]
        if self.has_lengths:
            inputs.append(info("lengths", ["batch"], TensorProto.INT32))
        inputs += [info(name, state) for name in self.states()]
        fed = ["x", "w", "r", "b" if "b" in self.constants else "",
               "lengths" if self.has_lengths else "", *self.states()]
        if "p" in self.constants:
            fed += [""] * (7 - len(fed)) + ["p"]
        names = ["y", "y_h", "y_c"]
        shapes = [None, state, state]
        last = max(names.index(name) for name in self.outputs)
        given = [name if name in self.outputs else "" for name in names[: last + 1]]
        attributes = dict(self.attributes, **({"layout": 1} if layout else {}))
        node = helper.make_node(self.kind, fed, given, "node", **attributes)
        outputs = [info(name, shapes[names.index(name)]) for name in self.outputs]
        constants = [numpy_helper.from_array(data, name) for name, data in self.constants.items()]
        graph = helper.make_graph([node], "graph", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)

    def feeds(self, random, batch, time):
        """What a request feeds, with time first."""
        feeds = {"x": random.standard_normal((time, batch, self.input_size)).astype(np.float32)}
        if self.has_lengths:
            feeds["lengths"] = random.integers(0, time + 1, batch).astype(np.int32)
        shape = (self.directions, batch, self.hidden_size)
        for name in self.states():
            feeds[name] = random.uniform(-1, 1, shape).astype(np.float32)
        return feeds


def batch_first(name, array):
    """The same tensor under `layout=1`."""
    order = {"x": (1, 0, 2), "h0": (1, 0, 2), "c0": (1, 0, 2), "y": (2, 0, 1, 3), "y_h": (1, 0, 2),
             "y_c": (1, 0, 2)}.get(name)
    return array.transpose(order) if order else array


def body(feeds):
    """A request as a JSON line."""
    kinds = {"float32": "FP32", "int32": "INT32", "int64": "INT64"}
    inputs = [
        {"name": name, "shape": array.shape, "datatype": kinds[str(array.dtype)],
         "data": array.ravel().tolist()}
        for name, array in feeds.items()
    ]
    return json.dumps({"inputs": inputs})


def run(path, bodies):
    """The replies of `batchmaker run`, each {name: array}."""
    result = subprocess.run(
        [BINARY, "run", path], input="\n".join(bodies) + "\n", capture_output=True, text=True,
        timeout=120, check=False,
    )
    assert result.returncode == 0, result.stderr
    replies = []
    for line in result.stdout.splitlines():
        reply = json.loads(line)
        assert "outputs" in reply, reply
        replies.append({
            of["name"]: np.array(of["data"], np.float32).reshape(of["shape"])
            for of in reply["outputs"]
        })
    return replies


def check(operator, name, found, wanted):
    about = (name, operator.kind, operator.attributes)
    assert found.shape == wanted.shape, about
    difference = np.max(np.abs(found - wanted), initial=0.0)
    assert difference <= 1e-5 * np.max(np.abs(wanted), initial=1.0), (difference, about)


@pytest.mark.parametrize("file", range(FILES))
def test_all_of_the_operators(tmp_path, file):
    random = np.random.default_rng([SEED, file])
    compared = 0
    for index in range(PER_FILE):
        operator = Operator(random)
        path = tmp_path / f"m{index}.onnx"
        path.write_bytes(operator.model(operator.layout).SerializeToString())
        session = onnxruntime.InferenceSession(operator.model(0).SerializeToString())
        requests = [operator.feeds(random, batch, time)
                    for batch, time in [(1, 1), (1, 7), (3, 5), (2, 12)]]
        turned = [
            {name: batch_first(name, array) if operator.layout else array
             for name, array in feeds.items()}
            for feeds in requests
        ]
        replies = run(path, [body(feeds) for feeds in turned])
        for feeds, reply in zip(requests, replies, strict=True):
            all_outputs = recurrent_reference.run(
                operator.kind, operator.attributes, operator.constants, feeds
            )
            wanted = dict(zip(["y", "y_h", "y_c"], all_outputs, strict=False))
            # Some activations have no bounds, and a sequence may grow without any.
            if not all(np.max(np.abs(array), initial=0) < 1e3 for array in all_outputs):
                continue
            compared += 1
            if operator.is_plain:
                for name, array in zip(operator.outputs, session.run(operator.outputs, feeds)):
                    check(operator, name, array, wanted[name])
            for name in operator.outputs:
                array = wanted[name]
                array = batch_first(name, array) if operator.layout else array
                check(operator, name, reply[name], array)
    assert compared >= 2 * PER_FILE
