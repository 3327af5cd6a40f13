"""Encoder-decoders as padded batches: every batch is encoded as a whole, then decoded as many steps as
its longest member asks for.

Sources are padded behind their ends, and the encoder's states are those after each member's own
last word; a member that has all its words is decoded on with the others, its further words thrown
away.
"""

import os
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from make_encoder_decoder import START
from model import ModelError


class Weights:
    """What `make_encoder_decoder.py` wrote: `encoder` and `decoder`, each {name: array}."""

    def __init__(self, folder):
        for cell in ("encoder", "decoder"):
            path = os.path.join(folder, f"{cell}.onnx")
            try:
                constants = onnx.load(path).graph.initializer
            except Exception as error:  # protobuf's own error for what is no ONNX file, OSError, ...
                raise ModelError(f"cannot read {path}: {error}") from error
            weights = {c.name: numpy_helper.to_array(c) for c in constants if c.name != "step"}
            setattr(self, cell, weights)
        if not {"table", "w", "r", "b", "head", "bias"} <= self.decoder.keys():
            raise ModelError(f"{folder}: expected a model of make_encoder_decoder.py")

    @property
    def hidden_size(self):
        return self.decoder["r"].shape[2]

    @property
    def vocabulary(self):
        return len(self.decoder["table"])


class OnnxRuntime:
    """One session for all steps of the encoder, one for a step of the decoder.

    The encoder is an LSTM operator with `sequence_lens`; the decoder's states and tokens go through
    arrays between its steps, a few hundred kilobytes beside a product with the whole vocabulary.
    """

    def __init__(self, weights, threads):
        import onnxruntime

        self._hidden = weights.hidden_size
        node, info = helper.make_node, helper.make_tensor_value_info
        states = [info(name, TensorProto.FLOAT, [1, "batch", self._hidden]) for name in ("h", "c")]
        after = [
            info(name, TensorProto.FLOAT, [1, "batch", self._hidden]) for name in ("h_n", "c_n")
        ]

        def session(nodes, inputs, outputs, constants):
            constants = [numpy_helper.from_array(array, name) for name, array in constants.items()]
            graph = helper.make_graph(nodes, "pairs", inputs, outputs, constants)
            opset = [helper.make_opsetid("", 17)]
            model = helper.make_model(graph, opset_imports=opset, ir_version=8)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
            return onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )

        lstm = lambda *inputs: node(
            "LSTM", ["x", "w", "r", "b", *inputs], ["", "h_n", "c_n"], hidden_size=self._hidden
        )
        self._encoder = session(
            [node("Gather", ["table", "source"], ["x"]), lstm("lengths")],
            [
                info("source", TensorProto.INT64, ["time", "batch"]),
                info("lengths", TensorProto.INT32, ["batch"]),
            ],
            after,
            weights.encoder,
        )
        self._decoder = session(
            [
                node("Gather", ["table", "token"], ["x"]),
                lstm("", "h", "c"),
                node("MatMul", ["h_n", "head"], ["product"]),
                node("Add", ["product", "bias"], ["scores"]),
                node("ArgMax", ["scores"], ["next"], axis=2, keepdims=0),
            ],
            [info("token", TensorProto.INT64, [1, "batch"]), *states],
            [info("next", TensorProto.INT64, [1, "batch"]), *after],
            weights.decoder,
        )

    def run(self, source, lengths, steps):
        """source [time, batch] int64, lengths [batch] int32; returns tokens [steps, batch]."""
        h, c = self._encoder.run(["h_n", "c_n"], {"source": source, "lengths": lengths})
        token = np.full((1, len(lengths)), START, np.int64)
        tokens = np.empty((steps, len(lengths)), np.int64)
        for step in range(steps):
            feeds = {"token": token, "h": h, "c": c}
            token, h, c = self._decoder.run(["next", "h_n", "c_n"], feeds)
            tokens[step] = token[0]
        return tokens


class Service:
    """Gathers the sources of a batch, runs it, and hands out the replies.

    Request k has `lengths[k]` words of its own and is answered with `targets[k]`.
    """

    def __init__(self, executor, lengths, targets, vocabulary, seed):
        random = np.random.default_rng(seed)
        self._executor, self._lengths, self._targets = executor, lengths, targets
        self._starts = random.integers(0, 8192, len(lengths))
        self._words = random.integers(0, vocabulary, 8192 + int(lengths.max()))

    def words(self, request):
        """The source of one request."""
        start = self._starts[request]
        return self._words[start : start + self._lengths[request]]

    def run(self, members):
        """Runs one batch of requests. Returns (replies, steps), steps as many as the batch's longest
        source and target have together."""
        lengths, targets = self._lengths[members], self._targets[members]
        source = np.zeros((int(lengths.max()), len(members)), np.int64)
        for place, member in enumerate(members):
            source[: lengths[place], place] = self.words(member)
        steps = int(targets.max())
        tokens = self._executor.run(source, lengths, steps)
        replies = [tokens[:target, place].copy() for place, target in enumerate(targets)]
        return replies, len(source) + steps

    def warm_up(self, seconds, width, max_batch_size, seed):
        """Runs batches of any requests, at least one of the full size."""
        random = np.random.default_rng(seed)
        end, size = time.perf_counter() + seconds, max_batch_size
        while True:
            self.run(random.integers(0, len(self._lengths), size))
            if time.perf_counter() >= end:
                return
            size = random.integers(1, max_batch_size + 1)


def reference(weights, source, steps):
    """The tokens of one request, step by step in float64, and by how much each was ahead."""

    def step(cell, token, h, c):
        of = lambda name: cell[name][0].astype(np.float64)
        b = of("b")
        bias = b[: len(b) // 2] + b[len(b) // 2 :]
        i, o, f, g = np.split(of("w") @ cell["table"][token] + of("r") @ h + bias, 4)
        i, o, f = (1.0 / (1.0 + np.exp(-gate)) for gate in (i, o, f))
        c = f * c + i * np.tanh(g)
        return o * np.tanh(c), c

    h = c = np.zeros(weights.hidden_size)
    for token in source:
        h, c = step(weights.encoder, token, h, c)
    token, tokens, margins = START, [], []
    for _ in range(steps):
        h, c = step(weights.decoder, token, h, c)
        scores = h @ weights.decoder["head"] + weights.decoder["bias"]
        second, first = np.partition(scores, -2)[-2:]
        token = int(scores.argmax())
        tokens.append(token)
        margins.append(first - second)
    return np.array(tokens), np.array(margins)
