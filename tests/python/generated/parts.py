"""Parts of random recurrent models: modules that are drawn, and say in words what they are.

`time_axis` is 1 where tensors are [batch, time, width], 0 where they are [time, batch, width].
A part that works on each row by itself takes `x`; others take `x` and a `Flow`.
"""

import random

import torch
from torch import nn
from torch.nn import functional


class Draw(random.Random):
    """A source of draws; one a model."""

    def chance(self, probability):
        return self.random() < probability

    def pick(self, weights):
        """One key of `weights`, {key: weight}."""
        return self.choices(list(weights), list(weights.values()))[0]


class Flow:
    """What a forward pass carries beside the sequence: inputs by name, outputs, states, lengths, mask."""

    def __init__(self, inputs):
        self.inputs = inputs
        self.outputs = {}
        self.lengths = inputs.get("lengths")
        self.mask = None        # [batch, time], bool
        self.last_state = None  # h_n of the stack before, [layers * directions, batch, hidden]
        self.directions = 1


ACTIVATIONS = {
    "relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "silu": nn.SiLU, "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU, "softplus": nn.Softplus, "hardswish": nn.Hardswish, "mish": nn.Mish,
    "selu": nn.SELU, "prelu": nn.PReLU, "softsign": nn.Softsign, "hardtanh": nn.Hardtanh,
    "relu6": nn.ReLU6, "celu": nn.CELU, "log_sigmoid": nn.LogSigmoid, "hardsigmoid": nn.Hardsigmoid,
}
COMMON = {"relu": 6, "tanh": 4, "gelu": 4, "silu": 3, "sigmoid": 2, "leaky_relu": 2}


def activation(draw):
    """(name, module)"""
    name = draw.pick({name: COMMON.get(name, 0.4) for name in ACTIVATIONS})
    return name, ACTIVATIONS[name]()


def to_channels(x, time_axis):
    """[batch, width, time]"""
    return x.transpose(1, 2) if time_axis == 1 else x.permute(1, 2, 0)


def from_channels(x, time_axis):
    return x.transpose(1, 2) if time_axis == 1 else x.permute(2, 0, 1)


def batch_first(x, time_axis):
    """[batch, time, width]; the way back too."""
    return x if time_axis == 1 else x.transpose(0, 1)


def shaken(module, scale=0.3):
    """The module with norms' weights and statistics no longer ones and zeros."""
    for part in module.modules():
        if isinstance(part, (nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.RMSNorm, nn.GroupNorm)):
            for name, parameter in part.named_parameters():
                nn.init.normal_(parameter, 1.0 if name == "weight" else 0.0, scale)
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            part.running_mean.normal_(0, scale)
            part.running_var.uniform_(0.5, 1.5)
    return module


# Row-wise parts.


class Highway(nn.Module):
    def __init__(self, width, act):
        super().__init__()
        self.gate, self.change, self.act = nn.Linear(width, width), nn.Linear(width, width), act

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        return gate * self.act(self.change(x)) + (1 - gate) * x


class Gated(nn.Module):
    """A gated linear unit, by the library or by hand."""

    def __init__(self, width, out, style):
        super().__init__()
        self.linear, self.style = nn.Linear(width, 2 * out), style

    def forward(self, x):
        both = self.linear(x)
        if self.style == "glu":
            return functional.glu(both, dim=-1)
        a, b = both.chunk(2, dim=-1)
        return torch.tanh(a) * torch.sigmoid(b)


class ResidualRows(nn.Module):
    def __init__(self, width, inner, act, norm):
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.up, self.act, self.down = nn.Linear(width, inner), act, nn.Linear(inner, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class RootMeanSquare(nn.Module):
    """RMSNorm written by hand."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * 0.3 + 1)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * self.weight


class LayerNormByHand(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * 0.3 + 1)
        self.bias = nn.Parameter(torch.randn(width) * 0.3)

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-3) * self.weight + self.bias


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x * self.scale + self.shift


class Clamp(nn.Module):
    def forward(self, x):
        return x.clamp(-0.8, 0.8)


class GroupedSum(nn.Module):
    """Rows seen as `groups` groups, a softmax over the groups."""

    def __init__(self, width, groups):
        super().__init__()
        self.linear, self.groups = nn.Linear(width, width), groups

    def forward(self, x):
        y = self.linear(x).view(x.size(0), x.size(1), self.groups, -1)
        return (y * torch.softmax(y, dim=2)).flatten(2)


class Flattened(nn.Module):
    """Rows laid out as [batch * time, width], through a module, and back."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        first, second = x.size(0), x.size(1)
        return self.inner(x.reshape(first * second, -1)).view(first, second, -1)


def rows(draw, width, time_axis):
    """A row-wise part: (text, module, width after it)."""
    kind = draw.pick({
        "linear": 5, "layer_norm": 4, "dropout": 2, "residual_rows": 2, "highway": 2, "glu": 2,
        "batch_norm": 1.5, "flattened": 1.5, "rms_norm": 0.7, "rms_norm_by_hand": 0.7,
        "layer_norm_by_hand": 0.7, "scale": 0.7, "activation": 1.5, "clamp": 0.4, "groups": 0.5,
        "group_norm": 0.0,
    })
    out = draw.choice([4, 6, 8, 12, 16, 20, 24, 32])
    name, act = activation(draw)
    if kind == "linear":
        bias = draw.chance(0.85)
        module = nn.Sequential(nn.Linear(width, out, bias=bias), act)
        return f"linear {width}->{out}{'' if bias else ' without bias'}, {name}", module, out
    if kind == "layer_norm":
        affine = draw.chance(0.85)
        return "layer norm", shaken(nn.LayerNorm(width, elementwise_affine=affine)), width
    if kind == "dropout":
        return "dropout", nn.Dropout(0.3), width
    if kind == "residual_rows":
        norm = draw.chance(0.5)
        module = shaken(ResidualRows(width, out, act, norm))
        return f"residual rows {width}->{out}->{width}, {name}{', norm first' * norm}", module, width
    if kind == "highway":
        return f"highway, {name}", Highway(width, act), width
    if kind == "glu":
        style = draw.choice(["glu", "tanh_sigmoid"])
        return f"gated linear unit ({style}) {width}->{out}", Gated(width, out, style), out
    if kind == "batch_norm":
        return "batch norm over the width", BatchNormRows(width, time_axis), width
    if kind == "flattened":
        inner = nn.Sequential(shaken(nn.BatchNorm1d(width)), nn.Linear(width, out, bias=False), act)
        return f"rows flattened: batch norm, linear {width}->{out}, {name}", Flattened(inner), out
    if kind == "rms_norm":
        return "rms norm", shaken(nn.RMSNorm(width, eps=1e-3)), width
    if kind == "rms_norm_by_hand":
        return "rms norm by hand", RootMeanSquare(width), width
    if kind == "layer_norm_by_hand":
        return "layer norm by hand", LayerNormByHand(width), width
    if kind == "scale":
        return "scale and shift", Scale(width), width
    if kind == "clamp":
        return "clamp", Clamp(), width
    if kind == "groups" and width % 2 == 0:
        return "two groups, softmax over them", GroupedSum(width, 2), width
    return name, act, width


class BatchNormRows(nn.Module):
    """Batch norm over the width of a sequence."""

    def __init__(self, width, time_axis):
        super().__init__()
        self.norm, self.time_axis = shaken(nn.BatchNorm1d(width)), time_axis

    def forward(self, x):
        return from_channels(self.norm(to_channels(x, self.time_axis)), self.time_axis)


# Parts that mix steps.


class Convolution(nn.Module):
    """Conv1d over time, with what often stands around it."""

    def __init__(self, draw, width, time_axis, residual=False, length_kept=False):
        super().__init__()
        self.time_axis, self.residual = time_axis, residual
        kernel = draw.choice([1, 3, 3, 5])
        stride = 1 if residual or length_kept else draw.choice([1, 1, 2])
        dilation = draw.choice([1, 1, 1, 2]) if kernel > 1 else 1
        reach = (kernel - 1) * dilation
        padding = draw.pick({"same": 6, "none": 2, "causal": 2, "string": 0.7})
        if residual or length_kept:
            padding = draw.choice(["same", "causal"])
        if padding == "string" and stride != 1:
            padding = "same"
        out = width if residual else draw.choice([4, 8, 12, 16, 24])
        depthwise = draw.chance(0.12)
        if depthwise:
            out = width
        bias = draw.chance(0.85)
        self.left = reach if padding == "causal" else 0
        given = {"same": reach // 2, "none": 0, "causal": 0, "string": "same"}[padding]
        self.convolution = nn.Conv1d(
            width, out, kernel, stride, given, dilation, groups=width if depthwise else 1, bias=bias
        )
        self.norm = shaken(nn.BatchNorm1d(out)) if draw.chance(0.35) else nn.Identity()
        name, self.act = activation(draw) if draw.chance(0.4) else ("relu", nn.ReLU())
        pool = "none" if residual or length_kept else draw.pick({"none": 6, "max": 2, "average": 1.5})
        window, step = draw.choice([(2, 2), (3, 2), (2, 1), (3, 1)])
        self.pool = nn.Identity()
        if pool == "max":
            self.pool = nn.MaxPool1d(window, step, padding=draw.choice([0, window // 2]))
        if pool == "average":
            padded = draw.choice([0, window // 2])
            self.pool = nn.AvgPool1d(window, step, padded, count_include_pad=draw.chance(0.5))
        self.width = out
        self.text = (
            f"conv {width}->{out} kernel {kernel} stride {stride} dilation {dilation} padding {padding}"
            f"{' depthwise' * depthwise}{' batch norm' * isinstance(self.norm, nn.BatchNorm1d)} {name}"
            f"{f' {pool} pool {window}/{step}' if pool != 'none' else ''}{' residual' * residual}"
        )

    def forward(self, x, flow):
        y = to_channels(x, self.time_axis)
        if self.left:
            y = functional.pad(y, (self.left, 0))
        y = from_channels(self.pool(self.act(self.norm(self.convolution(y)))), self.time_axis)
        return x + y if self.residual else y


class SqueezeExcite(nn.Module):
    """Every step gated by the mean over time."""

    text = "squeeze and excite"

    def __init__(self, width, time_axis):
        super().__init__()
        self.time_axis, self.width = time_axis, width
        self.down, self.up = nn.Linear(width, 4), nn.Linear(4, width)

    def forward(self, x, flow):
        mean = x.mean(self.time_axis, keepdim=True)
        return x * torch.sigmoid(self.up(torch.relu(self.down(mean))))


class MeanSubtracted(nn.Module):
    """Features less their mean over time."""

    text = "mean over time subtracted"

    def __init__(self, width, time_axis):
        super().__init__()
        self.time_axis, self.width = time_axis, width

    def forward(self, x, flow):
        return x - x.mean(self.time_axis, keepdim=True)


class Positions(nn.Module):
    """Embeddings of positions added: a table that is sliced, or looked up."""

    def __init__(self, width, time_axis, style):
        super().__init__()
        self.time_axis, self.width, self.style = time_axis, width, style
        self.table = nn.Embedding(128, width)
        self.text = f"positions added ({style})"

    def forward(self, x, flow):
        if self.style == "sliced":
            rows = self.table.weight[: x.size(self.time_axis)]
        else:
            rows = self.table(torch.arange(x.size(self.time_axis), device=x.device))
        return x + (rows if self.time_axis == 1 else rows.unsqueeze(1))


class Pyramid(nn.Module):
    """Pairs of steps side by side; lengths must be even."""

    text = "pairs of steps concatenated"

    def __init__(self, width, time_axis):
        super().__init__()
        self.time_axis, self.width = time_axis, 2 * width

    def forward(self, x, flow):
        y = batch_first(x, self.time_axis)
        y = y.contiguous().view(y.size(0), y.size(1) // 2, -1)
        return batch_first(y, self.time_axis)


class Differences(nn.Module):
    """Each step beside its difference from the step before."""

    text = "differences between steps concatenated"

    def __init__(self, width, time_axis):
        super().__init__()
        self.time_axis, self.width = time_axis, 2 * width

    def forward(self, x, flow):
        y = batch_first(x, self.time_axis)
        before = torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1]], dim=1)
        return batch_first(torch.cat([y, y - before], dim=-1), self.time_axis)


class SelfAttention(nn.Module):
    """Scaled dot-product attention of steps over steps."""

    def __init__(self, draw, width, time_axis):
        super().__init__()
        self.time_axis, self.width = time_axis, width
        self.heads = draw.choice([1, 2]) if width % 2 == 0 else 1
        self.style = draw.pick({"by_hand": 3, "einsum": 1, "library": 2, "module": 3})
        self.causal = self.style in ("by_hand", "library") and draw.chance(0.25)
        self.residual = draw.chance(0.5)
        self.norm = shaken(nn.LayerNorm(width)) if draw.chance(0.4) else nn.Identity()
        if self.style == "module":
            self.attention = nn.MultiheadAttention(width, self.heads, batch_first=time_axis == 1)
        elif draw.chance(0.5):
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.text = (
            f"self-attention ({self.style}), {self.heads} heads{', causal' * self.causal}"
            f"{', residual' * self.residual}"
        )

    def forward(self, x, flow):
        if self.style == "module":
            y, _ = self.attention(x, x, x, need_weights=False)
        else:
            y = batch_first(self.mix(batch_first(x, self.time_axis)), self.time_axis)
        return self.norm(x + y if self.residual else y)

    def mix(self, x):
        if hasattr(self, "qkv"):
            parts = self.qkv(x).chunk(3, dim=-1)
        else:
            parts = self.q(x), self.k(x), self.v(x)
        batch, time, width = x.size(0), x.size(1), self.width
        q, k, v = (p.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for p in parts)
        if self.style == "library":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        elif self.style == "einsum":
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / (width // self.heads) ** 0.5
            y = torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores, -1), v)
        else:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            if self.causal:
                future = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(future, float("-inf"))
            y = torch.softmax(scores, dim=-1) @ v
        return y.transpose(1, 2).reshape(batch, time, width)


def mixing(draw, width, time_axis):
    """A part that mixes steps."""
    kind = draw.pick({
        "convolution": 4, "residual": 2, "attention": 2, "excite": 1, "mean": 1, "positions": 1,
        "pyramid": 0.7, "differences": 0.7,
    })
    if kind == "convolution":
        return Convolution(draw, width, time_axis)
    if kind == "residual":
        return Convolution(draw, width, time_axis, residual=True)
    if kind == "attention":
        return SelfAttention(draw, width, time_axis)
    if kind == "excite":
        return SqueezeExcite(width, time_axis)
    if kind == "mean":
        return MeanSubtracted(width, time_axis)
    if kind == "positions":
        return Positions(width, time_axis, draw.choice(["sliced", "looked up"]))
    return (Pyramid if kind == "pyramid" else Differences)(width, time_axis)


# Recurrent parts.


class Recurrent(nn.Module):
    """An LSTM, GRU or RNN stack, and where its states come from and go.

    `states`: "none", "zeros" (made in the forward pass), "learned" (a parameter for each layer,
    expanded), "inputs", or "projected" (from the input `context`).
    """

    def __init__(self, draw, width, time_axis, number, *, states=None, final=None, packed=False,
                 hidden=None, both=None, context=0):
        super().__init__()
        kind = draw.pick({"LSTM": 5, "GRU": 4, "tanh": 1, "relu": 0.8})
        self.kind, self.time_axis, self.number, self.packed = kind, time_axis, number, packed
        layers = draw.choice([1, 1, 1, 2, 2, 3])
        both = draw.chance(0.45) if both is None else both
        self.directions = 2 if both else 1
        self.hidden = hidden or draw.choice([4, 5, 8, 8, 11, 12, 16, 16, 24, 31, 32, 48])
        bias = draw.chance(0.88)
        own = time_axis == 1
        self.swapped = draw.chance(0.15)
        options = dict(num_layers=layers, bidirectional=both, bias=bias, batch_first=own != self.swapped)
        if layers > 1 and draw.chance(0.3):
            options["dropout"] = 0.2
        if kind in ("tanh", "relu"):
            self.stack = nn.RNN(width, self.hidden, nonlinearity=kind, **options)
        else:
            self.stack = getattr(nn, kind)(width, self.hidden, **options)
        default = {"none": 6, "zeros": 2, "learned": 1, "inputs": 2}
        self.states = states or draw.pick(default)
        self.final = draw.chance(0.7 if self.states == "inputs" else 0.1) if final is None else final
        self.state_names = ["h", "c"] if kind == "LSTM" else ["h"]
        self.count = layers * self.directions
        if self.states == "learned":
            shape = (self.count, 1, self.hidden)
            self.first = nn.ParameterList(nn.Parameter(torch.randn(shape)) for _ in self.state_names)
        if self.states == "projected":
            self.project = nn.ModuleList(
                nn.Linear(context, self.count * self.hidden) for _ in self.state_names
            )
        self.width = self.hidden * self.directions
        self.text = (
            f"{kind} {width}->{self.hidden}, {layers} layers{', both directions' * both}"
            f"{'' if bias else ', without bias'}, first states: {self.states}"
            f"{', final states out' * self.final}{', packed' * packed}{', swapped axes' * self.swapped}"
        )

    def state_inputs(self):
        if self.states != "inputs":
            return []
        return [(f"{state}{self.number}", [self.count, "batch", self.hidden]) for state in self.state_names]

    def first_states(self, x, flow):
        batch = x.size(1 - self.time_axis)
        if self.states == "none":
            return None
        if self.states == "zeros":
            made = [
                torch.zeros(self.count, batch, self.hidden, device=x.device) for _ in self.state_names
            ]
        elif self.states == "learned":
            made = [p.expand(-1, batch, -1).contiguous() for p in self.first]
        elif self.states == "inputs":
            made = [flow.inputs[f"{state}{self.number}"] for state in self.state_names]
        else:
            made = [
                torch.tanh(linear(flow.inputs["context"])).view(batch, self.count, self.hidden)
                .transpose(0, 1).contiguous()
                for linear in self.project
            ]
        return tuple(made) if self.kind == "LSTM" else made[0]

    def forward(self, x, flow, first=None):
        states = self.first_states(x, flow) if first is None else first
        if self.swapped:
            x = x.transpose(0, 1)
        if self.packed:
            x = nn.utils.rnn.pack_padded_sequence(
                x, flow.lengths, batch_first=self.stack.batch_first, enforce_sorted=True
            )
        y, last = self.stack(x, states)
        if self.packed:
            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=self.stack.batch_first)
        if self.swapped:
            y = y.transpose(0, 1)
        lasts = last if self.kind == "LSTM" else (last,)
        flow.last_state, flow.directions = lasts[0], self.directions
        if self.final:
            for state, value in zip(self.state_names, lasts):
                flow.outputs[f"{state}{self.number}_n"] = value
        return y


class TwoWays(nn.Module):
    """Two stacks of one direction; the second reads the sequence flipped."""

    def __init__(self, draw, width, time_axis):
        super().__init__()
        self.time_axis = time_axis
        hidden = draw.choice([6, 8, 12, 16])
        kind = draw.choice(["LSTM", "GRU"])
        make = lambda: getattr(nn, kind)(width, hidden, batch_first=time_axis == 1)
        self.ahead, self.back = make(), make()
        self.width = 2 * hidden
        self.text = f"two {kind}s {width}->{hidden}, one on the flipped sequence"

    def forward(self, x, flow):
        a, _ = self.ahead(x)
        b, _ = self.back(torch.flip(x, [self.time_axis]))
        return torch.cat([a, torch.flip(b, [self.time_axis])], dim=-1)


class CellLoop(nn.Module):
    """A cell called step by step: exporters write every step out."""

    def __init__(self, draw, width, time_axis):
        super().__init__()
        self.time_axis = time_axis
        self.kind = draw.choice(["LSTMCell", "GRUCell", "RNNCell"])
        self.width = draw.choice([4, 8, 12])
        self.cell = getattr(nn, self.kind)(width, self.width)
        self.text = f"{self.kind} {width}->{self.width} in a loop"

    def forward(self, x, flow):
        state, steps = None, []
        for row in x.unbind(self.time_axis):
            state = self.cell(row, state)
            steps.append(state[0] if self.kind == "LSTMCell" else state)
        return torch.stack(steps, dim=self.time_axis)


class Wrapped(nn.Module):
    """A part with a way around it: "residual", "norm_residual", or "concatenated"."""

    def __init__(self, part, style, width):
        super().__init__()
        self.part, self.style = part, style
        self.norm = shaken(nn.LayerNorm(width)) if style == "norm_residual" else nn.Identity()
        self.bridge = nn.Identity()
        if style != "concatenated" and part.width != width:
            self.bridge = nn.Linear(part.width, width)
        self.width = width + part.width if style == "concatenated" else width
        self.text = f"{style} around [{part.text}]"

    def forward(self, x, flow):
        y = self.part(self.norm(x), flow)
        return torch.cat([x, y], dim=-1) if self.style == "concatenated" else x + self.bridge(y)
