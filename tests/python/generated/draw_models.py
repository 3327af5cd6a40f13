"""Draws whole models: inputs, parts and heads put together.

A model's `inputs` are dictionaries: `name`; `datatype` of the Open Inference Protocol; `shape`, of
numbers and the symbols "batch", "time", "time_b" (of a second sequence); `kind`, one of

    normal    standard normal numbers
    state     uniform in -1..1
    ids       integers in 0..high
    padded    ids in 1..high, then zeros; the first sequence has none
    lengths   integers in 1..time, the longest first, the first of all `time`
    mask      true up to a length, then false; at least one true
"""

import torch
from torch import nn

from heads import Attended, Pooled, Steps
from parts import (
    CellLoop, Convolution, Draw, Flow, Recurrent, TwoWays, Wrapped, batch_first, mixing, rows, shaken,
)

DATATYPES = {"FP32": torch.float32, "INT64": torch.int64, "INT32": torch.int32, "BOOL": torch.bool}


def sequence_axes(time_axis, *rest, time="time"):
    return ["batch", time, *rest] if time_axis == 1 else [time, "batch", *rest]


class Model(nn.Module):
    """A front, a body and heads, in a row."""

    def __init__(self, draw):
        super().__init__()
        self.inputs, self.outputs, self.text = [], {}, []
        self.time_axis = 1 if draw.chance(0.75) else 0
        self.has_loop = False

    def input(self, name, datatype, shape, kind, high=0):
        self.inputs.append(
            {"name": name, "datatype": datatype, "shape": list(shape), "kind": kind, "high": high}
        )

    def forward(self, *tensors):
        flow = Flow({spec["name"]: tensor for spec, tensor in zip(self.inputs, tensors)})
        self.run(flow)
        return tuple(flow.outputs[name] for name in self.outputs)

    def head(self, draw, width, name, rnn=None, masked=False, lengths=False):
        """A head of any kind, its outputs declared."""
        pooled = lambda width: Pooled(
            draw, width, self.time_axis, name, has_state=rnn is not None,
            directions=rnn.directions if rnn else 1, hidden=rnn.hidden if rnn else 0,
            has_mask=masked, has_lengths=lengths,
        )
        kind = draw.pick({"steps": 5, "pooled": 7, "attended": 1.6})
        if kind == "attended":
            inner = pooled(width) if draw.chance(0.6) else Steps(draw, width, self.time_axis, name)
            head = Attended(draw, width, self.time_axis, inner)
        elif kind == "steps":
            head = Steps(draw, width, self.time_axis, name)
        else:
            head = pooled(width)
        self.outputs.update(head.outputs)
        self.text.append(head.text)
        return head

    def states_of(self, part):
        """Declares a recurrent part's inputs and outputs."""
        for name, shape in part.state_inputs():
            self.input(name, "FP32", shape, "state")
        if part.final:
            for state in part.state_names:
                self.outputs[f"{state}{part.number}_n"] = [part.count, "batch", part.hidden]


class Front(nn.Module):
    """Inputs to a sequence of rows."""

    def __init__(self, draw, model, masked, has_lengths):
        super().__init__()
        self.time_axis, self.masked = model.time_axis, masked
        self.kind = draw.pick(
            {"features": 5, "ids": 6, "both": 1, "channels": 1.5, "characters": 0.8, "two_ids": 0.7}
        )
        if masked == "ids":
            self.kind = "ids"
        if (masked or has_lengths) and self.kind == "channels":
            self.kind = "features"
        if self.kind in ("channels", "characters"):
            self.time_axis = model.time_axis = 1
        self.width = 0
        if self.kind in ("features", "both"):
            self.width = draw.choice([1, 3, 6, 8, 13, 16, 20])
            model.input("features", "FP32", sequence_axes(self.time_axis, self.width), "normal")
        if self.kind == "channels":
            self.width = draw.choice([1, 4, 8, 16])
            model.input("signal", "FP32", ["batch", self.width, "time"], "normal")
        self.tables = nn.ModuleList()
        self.names = []
        for name in {"ids": ["token"], "both": ["token"], "two_ids": ["token", "tag"]}.get(self.kind, []):
            count, width = draw.choice([7, 20, 50]), draw.choice([4, 8, 12, 16, 24])
            padded = masked == "ids"
            self.tables.append(
                nn.Embedding(count, width, padding_idx=0 if padded or draw.chance(0.3) else None)
            )
            self.names.append(name)
            datatype = "INT64" if draw.chance(0.9) else "INT32"
            kind = "padded" if padded else "ids"
            model.input(name, datatype, sequence_axes(self.time_axis), kind, count)
            self.width += width
        if self.kind == "characters":
            count, width, self.length = 12, draw.choice([4, 6]), draw.choice([4, 6])
            self.width = draw.choice([8, 12])
            self.table = nn.Embedding(count, width)
            self.convolution = nn.Conv1d(width, self.width, 3, padding=1)
            model.input("characters", "INT64", ["batch", "time", self.length], "ids", count)
        self.text = f"{self.kind} [{', '.join(map(str, model.inputs[-1]['shape']))}]"

    def forward(self, flow):
        if self.masked == "ids":
            ids = flow.inputs["token"]
            flow.mask = (ids if self.time_axis == 1 else ids.transpose(0, 1)) != 0
        if self.masked == "input":
            flow.mask = flow.inputs["mask"]
        if self.masked == "float":
            flow.mask = flow.inputs["mask"] > 0.5
        if self.kind == "channels":
            return flow.inputs["signal"].transpose(1, 2)
        if self.kind == "characters":
            ids = flow.inputs["characters"]
            batch, time = ids.size(0), ids.size(1)
            y = self.table(ids.view(batch * time, self.length)).transpose(1, 2)
            return torch.relu(self.convolution(y)).max(dim=-1)[0].view(batch, time, -1)
        parts = [flow.inputs["features"]] if self.kind in ("features", "both") else []
        parts += [table(flow.inputs[name]) for name, table in zip(self.names, self.tables)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


class Sequence(Model):
    """One sequence in: a tagger, a classifier, an acoustic model."""

    def __init__(self, draw):
        super().__init__(draw)
        self.has_lengths = draw.chance(0.06)
        masked = None
        if not self.has_lengths and draw.chance(0.1):
            masked = draw.choice(["ids", "input", "float"])
        self.front = Front(draw, self, masked, self.has_lengths)
        self.text.append(self.front.text)
        width = self.front.width
        if masked in ("input", "float"):
            self.input("mask", "BOOL" if masked == "input" else "FP32", ["batch", "time"], "mask")
        if self.has_lengths:
            self.input("lengths", "INT64", ["batch"], "lengths")
        keeps = bool(masked) or self.has_lengths
        self.body, self.mixes = nn.ModuleList(), []
        self.speaker = 0
        if draw.chance(0.06):
            self.speaker = draw.choice([3, 8])
            self.input("context", "FP32", ["batch", self.speaker], "normal")
            if draw.chance(0.6):
                width += self.speaker
                self.text.append(f"context {self.speaker} beside every step")
                self.speaker_style = "beside"
            else:
                self.speaker_style = "projected"
        wanted = 0.85 if self.front.kind == "channels" else 0.0 if keeps else 0.22
        if draw.chance(wanted):
            for _ in range(draw.choice([1, 1, 2])):
                width = self.add(Convolution(draw, width, self.time_axis), True)
        elif draw.chance(0.3):
            width = self.add_rows(draw, width)
        self.stacks = []
        for number in range(draw.choice([1, 1, 1, 2, 2, 3])):
            if number > 0:
                for _ in range(draw.choice([0, 1, 1, 2])):
                    width = self.add_rows(draw, width)
                if draw.chance(0.15) and not keeps:
                    width = self.add(mixing(draw, width, self.time_axis), True)
            if draw.chance(0.04) and not keeps:
                width = self.add(TwoWays(draw, width, self.time_axis), True)
                self.stacks.append(None)
                continue
            states = "projected" if self.speaker and self.speaker_style == "projected" else None
            part = Recurrent(
                draw, width, self.time_axis, number, states=states, packed=self.has_lengths,
                context=self.speaker,
            )
            if part.states == "projected":
                self.text.append("first states from the context")
            self.states_of(part)
            self.stacks.append(part)
            style = draw.pick({"none": 8, "residual": 1.2, "norm_residual": 0.8, "concatenated": 1})
            width = self.add(part if style == "none" else Wrapped(part, style, width), True)
        for _ in range(draw.choice([0, 0, 1, 1, 2])):
            width = self.add_rows(draw, width)
        if draw.chance(0.12) and not keeps:
            width = self.add(mixing(draw, width, self.time_axis), True)
        names = ["y"] if draw.chance(0.85) else ["y", "z"]
        self.heads = nn.ModuleList(
            self.head(draw, width, name, self.stacks[-1], bool(masked), self.has_lengths) for name in names
        )

    def add(self, part, mixes):
        self.body.append(part)
        self.mixes.append(mixes)
        self.text.append(part.text)
        return part.width

    def add_rows(self, draw, width):
        text, module, width = rows(draw, width, self.time_axis)
        self.body.append(module)
        self.mixes.append(False)
        self.text.append(text)
        return width

    def run(self, flow):
        x = self.front(flow)
        if self.speaker and self.speaker_style == "beside":
            context = flow.inputs["context"].unsqueeze(self.time_axis)
            sizes = (-1, x.size(1), -1) if self.time_axis == 1 else (x.size(0), -1, -1)
            x = torch.cat([x, context.expand(*sizes)], dim=-1)
        for part, mixes in zip(self.body, self.mixes):
            x = part(x, flow) if mixes else part(x)
        for head in self.heads:
            head(x, flow)


class EncoderDecoder(Model):
    """Two sequences: a decoder that is given its words, with or without attention over the source."""

    def __init__(self, draw):
        super().__init__(draw)
        self.source, self.target = nn.Embedding(30, 12), nn.Embedding(20, 8)
        self.input("source", "INT64", sequence_axes(self.time_axis), "ids", 30)
        self.input("target", "INT64", sequence_axes(self.time_axis, time="time_b"), "ids", 20)
        hidden = draw.choice([8, 12, 16])
        both = draw.chance(0.4)
        kind = draw.choice(["LSTM", "GRU"])
        make = lambda width, hidden, both: getattr(nn, kind)(
            width, hidden, batch_first=self.time_axis == 1, bidirectional=both
        )
        self.encoder, self.decoder = make(12, hidden, both), make(8, hidden, False)
        self.bridge = nn.Linear(2 * hidden, hidden) if both else None
        self.attention = draw.choice(["none", "dot", "general", "additive"])
        width = 2 * hidden if both else hidden
        if self.attention == "dot" and both:
            self.attention = "general"
        self.key = nn.Linear(width, hidden, bias=False)
        self.query, self.score = nn.Linear(hidden, hidden), nn.Linear(hidden, 1, bias=False)
        out = hidden if self.attention == "none" else hidden + width
        self.mix = nn.Linear(out, hidden)
        self.text += [
            f"encoder {kind} 12->{hidden}{', both directions' * both}; decoder of given words, "
            f"attention {self.attention}"
        ]
        self.steps = Steps(draw, hidden, self.time_axis, "y")
        self.outputs.update(
            {n: ["steps_b" if a == "steps" else a for a in axes] for n, axes in self.steps.outputs.items()}
        )
        self.text.append(self.steps.text)

    def run(self, flow):
        memory, last = self.encoder(self.source(flow.inputs["source"]))
        lasts = last if isinstance(last, tuple) else (last,)
        if self.bridge is not None:
            lasts = tuple(
                torch.tanh(self.bridge(torch.cat([h[0], h[1]], dim=-1))).unsqueeze(0) for h in lasts
            )
        y, _ = self.decoder(
            self.target(flow.inputs["target"]), lasts if isinstance(last, tuple) else lasts[0]
        )
        if self.attention != "none":
            q, m = batch_first(y, self.time_axis), batch_first(memory, self.time_axis)
            if self.attention == "additive":
                both = torch.tanh(self.query(q).unsqueeze(2) + self.key(m).unsqueeze(1))
                scores = self.score(both).squeeze(-1)
            else:
                keys = m if self.attention == "dot" else self.key(m)
                scores = torch.bmm(q, keys.transpose(1, 2))
            found = torch.bmm(torch.softmax(scores, dim=-1), m)
            y = batch_first(torch.cat([q, found], dim=-1), self.time_axis)
        self.steps(torch.tanh(self.mix(y)), flow)


class Pair(Model):
    """Two sequences through one encoder, compared."""

    def __init__(self, draw):
        super().__init__(draw)
        self.table = nn.Embedding(30, 12)
        for name, time in (("first", "time"), ("second", "time_b")):
            self.input(name, "INT64", sequence_axes(self.time_axis, time=time), "ids", 30)
        self.rnn = Recurrent(draw, 12, self.time_axis, 0, states="none", final=False)
        self.pool = draw.choice(["last", "mean", "max"])
        self.compare = draw.choice(["cosine", "product", "distance", "linear"])
        self.linear = nn.Linear(4 * self.rnn.width, 2)
        self.outputs["y"] = ["batch", 2] if self.compare == "linear" else ["batch"]
        self.text += [self.rnn.text, f"pool {self.pool} of two sequences, {self.compare}"]

    def vector(self, ids, flow):
        y = self.rnn(self.table(ids), flow)
        if self.pool == "last":
            return y.select(self.time_axis, -1)
        return y.mean(self.time_axis) if self.pool == "mean" else y.max(self.time_axis)[0]

    def run(self, flow):
        a, b = self.vector(flow.inputs["first"], flow), self.vector(flow.inputs["second"], flow)
        if self.compare == "cosine":
            y = nn.functional.cosine_similarity(a, b, dim=-1)
        elif self.compare == "product":
            y = torch.sigmoid((a * b).sum(-1))
        elif self.compare == "distance":
            y = torch.exp(-(a - b).abs().sum(-1))
        else:
            y = torch.softmax(self.linear(torch.cat([a, b, (a - b).abs(), a * b], dim=-1)), dim=-1)
        flow.outputs["y"] = y


class Stream(Model):
    """A model of few steps at a time: states in and out."""

    def __init__(self, draw):
        super().__init__(draw)
        width = draw.choice([4, 10, 16])
        self.input("x", "FP32", sequence_axes(self.time_axis, width), "normal")
        self.parts = nn.ModuleList()
        self.text.append(f"features {self.inputs[0]['shape']}")
        for number in range(draw.choice([1, 2])):
            part = Recurrent(
                draw, width, self.time_axis, number, states="inputs", final=True, both=False
            )
            self.states_of(part)
            self.parts.append(part)
            self.text.append(part.text)
            width = part.width
        self.steps = Steps(draw, width, self.time_axis, "y")
        self.outputs.update(self.steps.outputs)
        self.text.append(self.steps.text)

    def run(self, flow):
        x = flow.inputs["x"]
        for part in self.parts:
            x = part(x, flow)
        self.steps(x, flow)


class Image(Model):
    """Lines of text or spectrograms: two-dimensional convolutions, then time is an axis of the image."""

    def __init__(self, draw):
        super().__init__(draw)
        self.time_axis = draw.choice([0, 1])
        self.input("image", "FP32", ["batch", 1, 8, "time"], "normal")
        layers, width, height = [], 1, 8
        for _ in range(draw.choice([1, 2])):
            out = draw.choice([3, 4, 6])
            layers.append(nn.Conv2d(width, out, 3, padding=1, stride=draw.choice([1, 1, (2, 1)])))
            if layers[-1].stride[0] == 2:
                height //= 2
            if draw.chance(0.4):
                layers.append(nn.BatchNorm2d(out))
            layers.append(draw.choice([nn.ReLU(), nn.Hardtanh(0, 20)]))
            if height > 2 and draw.chance(0.6):
                layers.append(nn.MaxPool2d((2, draw.choice([1, 2]))))
                height //= 2
            width = out
        self.layers = shaken(nn.Sequential(*layers))
        self.rnn = Recurrent(draw, width * height, self.time_axis, 0, states="none", final=False)
        self.text += [
            "image [batch, 1, 8, time]", ", ".join(type(layer).__name__ for layer in layers), self.rnn.text
        ]
        self.ends = self.head(draw, self.rnn.width, "y", self.rnn)

    def run(self, flow):
        y = self.layers(flow.inputs["image"])
        y = y.flatten(1, 2)
        y = y.permute(2, 0, 1) if self.time_axis == 0 else y.permute(0, 2, 1)
        self.ends(self.rnn(y, flow), flow)


class Loop(Model):
    """A cell in a Python loop; no recurrent operator is left in the file."""

    def __init__(self, draw):
        super().__init__(draw)
        self.has_loop = True
        width = draw.choice([4, 8])
        self.input("x", "FP32", sequence_axes(self.time_axis, width), "normal")
        self.loop = CellLoop(draw, width, self.time_axis)
        self.text.append(self.loop.text)
        self.ends = self.head(draw, self.loop.width, "y")

    def run(self, flow):
        self.ends(self.loop(flow.inputs["x"], flow), flow)


class Plain(Model):
    """What tutorials show: one sequence, one direction, a head on every step or on the last."""

    def __init__(self, draw):
        super().__init__(draw)
        self.front = Front(draw, self, None, False)
        self.text.append(self.front.text)
        width = self.front.width
        self.parts = nn.ModuleList()
        for number in range(draw.choice([1, 1, 2])):
            part = Recurrent(draw, width, self.time_axis, number, both=False)
            self.states_of(part)
            self.parts.append(part)
            self.text.append(part.text)
            width = part.width
        if draw.chance(0.4):
            text, self.rows, width = rows(draw, width, self.time_axis)
            self.text.append(text)
        else:
            self.rows = nn.Identity()
        if draw.chance(0.5):
            self.ends = Steps(draw, width, self.time_axis, "y")
        else:
            pools = {"last": 3, "state": 2}
            self.ends = Pooled(
                draw, width, self.time_axis, "y", has_state=True, directions=1, hidden=part.hidden,
                has_mask=False, has_lengths=False, pools=pools,
            )
        self.outputs.update(self.ends.outputs)
        self.text.append(self.ends.text)

    def run(self, flow):
        x = self.front(flow)
        for part in self.parts:
            x = part(x, flow)
        self.ends(self.rows(x), flow)


KINDS = {Sequence: 65, Plain: 15, EncoderDecoder: 6, Pair: 4, Stream: 4, Image: 4, Loop: 2}


def draw_model(seed):
    """(a source for further draws, a model in eval mode); the same for the same `seed`."""
    draw = Draw(seed)
    torch.manual_seed(draw.randrange(2**31))
    model = draw.pick(KINDS)(draw).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return draw, model
