"""What random recurrent models end in: heads that write outputs.

A head has `outputs`, {name: axes}; an axis is a number or one of "batch", "steps".
"""

import torch
from torch import nn

from parts import SelfAttention, activation, batch_first


def last_of(x, time_axis):
    return x[:, -1] if time_axis == 1 else x[-1]


def steps_axes(time_axis, *rest):
    return ["batch", "steps", *rest] if time_axis == 1 else ["steps", "batch", *rest]


class Scores(nn.Module):
    """Rows to classes: one or two linear layers, and what follows them."""

    def __init__(self, draw, width, endings):
        super().__init__()
        self.classes = draw.choice([1, 2, 3, 5, 7, 10])
        self.ending = draw.choice(endings)
        if self.classes == 1 and self.ending in ("softmax", "log_softmax"):
            self.ending = "sigmoid"
        name = "linear"
        self.layers = nn.Linear(width, self.classes)
        if draw.chance(0.35):
            inner = draw.choice([6, 10, 16])
            name, act = activation(draw)
            self.layers = nn.Sequential(
                nn.Linear(width, inner), act, nn.Dropout(0.1), nn.Linear(inner, self.classes)
            )
        self.text = f"{name} {width}->{self.classes}, {self.ending}"

    def forward(self, x):
        y = self.layers(x)
        if self.ending == "none":
            return y
        if self.ending in ("softmax", "log_softmax"):
            return getattr(torch, self.ending)(y, dim=-1)
        return getattr(torch, self.ending)(y)


class Steps(nn.Module):
    """A score, or a class, for every step."""

    def __init__(self, draw, width, time_axis, name):
        super().__init__()
        self.time_axis, self.name = time_axis, name
        self.form = draw.pick({"plain": 8, "transposed": 1.5, "channels": 1, "class": 2, "both": 1})
        endings = ["none", "softmax", "log_softmax", "sigmoid", "tanh"]
        if self.form in ("class", "both"):
            endings = ["none", "softmax", "log_softmax"]
        self.scores = Scores(draw, width, endings)
        if self.form in ("class", "both") and self.scores.classes == 1:
            self.form = "plain"
        self.squeezed = self.scores.classes == 1 and self.form == "plain" and draw.chance(0.5)
        classes = self.scores.classes
        axes = {
            "plain": steps_axes(time_axis, *([] if self.squeezed else [classes])),
            "transposed": steps_axes(1 - time_axis, classes),
            "channels": ["batch", classes, "steps"] if time_axis == 1 else ["steps", classes, "batch"],
        }
        self.outputs = {}
        if self.form != "class":
            self.outputs[name] = axes.get(self.form, axes["plain"])
        if self.form in ("class", "both"):
            self.outputs[f"{name}_class"] = steps_axes(time_axis)
        self.text = f"every step ({self.form}{', squeezed' * self.squeezed}): {self.scores.text}"

    def forward(self, x, flow):
        y = self.scores(x)
        if self.form in ("class", "both"):
            flow.outputs[f"{self.name}_class"] = y.argmax(-1)
        if self.form == "transposed":
            y = y.transpose(0, 1)
        if self.form == "channels":
            y = y.transpose(1, 2) if self.time_axis == 1 else y.permute(0, 2, 1)
        if self.form != "class":
            flow.outputs[self.name] = y.squeeze(-1) if self.squeezed else y


POOLS = {
    "last": 5, "state": 3, "first_last": 1, "mean": 4, "max": 3, "sum": 1.5, "mean_max": 2.5,
    "mean_std": 1, "adaptive": 1, "attention": 4, "attention_query": 1.5, "attention_last": 2,
    "gathered": 0.0,
}


class Pooled(nn.Module):
    """One vector of the whole sequence, and scores of it."""

    def __init__(self, draw, width, time_axis, name, *, has_state, directions, hidden, has_mask,
                 has_lengths, pools=POOLS):
        super().__init__()
        self.time_axis, self.name = time_axis, name
        weights = dict(pools)
        if not has_state:
            weights["state"] = 0
        if has_lengths:
            weights["gathered"] = 6
        if has_mask:
            weights = {"mean": 4, "max": 3, "sum": 2, "attention": 5, "attention_last": 2}
        self.pool = draw.pick(weights)
        self.masked = has_mask
        out = width
        if self.pool == "state":
            self.both = directions == 2 and draw.chance(0.85)
            self.style = draw.choice(["indexed", "viewed"]) if self.both else "indexed"
            out = hidden * (2 if self.both else 1)
        if self.pool in ("first_last", "mean_max", "mean_std"):
            out = 2 * width
        self.shown = False
        if self.pool == "attention":
            inner = draw.choice([6, 8, 16])
            self.score = nn.Linear(width, 1, bias=draw.chance(0.5))
            if draw.chance(0.6):
                self.score = nn.Sequential(
                    nn.Linear(width, inner), nn.Tanh(), nn.Linear(inner, 1, bias=False)
                )
            self.style = draw.choice(["sum", "bmm"])
            self.shown = draw.chance(0.3)
        if self.pool == "attention_query":
            self.query = nn.Parameter(torch.randn(width))
        if self.pool == "attention_last":
            self.key = nn.Linear(width, width, bias=False) if draw.chance(0.6) else nn.Identity()
            self.concatenated = draw.chance(0.5)
            out = 2 * width if self.concatenated else width
        self.ending = draw.pick({"scores": 7, "class": 1, "both": 0.7, "unit": 1, "vector": 1})
        endings = ["none", "softmax", "log_softmax", "sigmoid", "tanh"]
        if self.ending in ("class", "both"):
            endings = ["none", "softmax", "log_softmax"]
        self.scores = Scores(draw, out, endings)
        if self.scores.classes == 1 and self.ending in ("class", "both"):
            self.ending = "scores"
        self.squeezed = self.scores.classes == 1 and draw.chance(0.5)
        self.outputs = {}
        if self.ending in ("scores", "both"):
            self.outputs[name] = ["batch"] if self.squeezed else ["batch", self.scores.classes]
        if self.ending in ("unit", "vector"):
            self.outputs[name] = ["batch", out]
        if self.ending in ("class", "both"):
            self.outputs[f"{name}_class"] = ["batch"]
        if self.shown:
            self.outputs[f"{name}_weights"] = ["batch", "steps"]
        style = f" ({self.style})" if hasattr(self, "style") else ""
        self.text = (
            f"pool {self.pool}{style}{', masked' * self.masked}{', weights out' * self.shown}: "
            f"{self.scores.text if self.ending in ('scores', 'class', 'both') else ''} {self.ending}"
        )

    def forward(self, x, flow):
        vector = self.vector(x, flow)
        if self.ending == "unit":
            flow.outputs[self.name] = nn.functional.normalize(vector, dim=-1)
        elif self.ending == "vector":
            flow.outputs[self.name] = vector
        else:
            scores = self.scores(vector)
            if self.ending in ("class", "both"):
                flow.outputs[f"{self.name}_class"] = scores.argmax(-1)
            if self.ending != "class":
                flow.outputs[self.name] = scores.squeeze(-1) if self.squeezed else scores

    def vector(self, x, flow):
        axis = self.time_axis
        mask = None
        if self.masked:
            mask = (flow.mask if axis == 1 else flow.mask.transpose(0, 1)).unsqueeze(-1)
        if self.pool == "last":
            return last_of(x, axis)
        if self.pool == "state":
            state = flow.last_state
            if not self.both:
                return state[-1]
            if self.style == "viewed":
                state = state.view(-1, 2, state.size(1), state.size(2))[-1]
                return state.transpose(0, 1).reshape(state.size(1), -1)
            return torch.cat([state[-2], state[-1]], dim=-1)
        if self.pool == "first_last":
            return torch.cat([x.select(axis, 0), last_of(x, axis)], dim=-1)
        if self.pool == "gathered":
            index = (flow.lengths - 1).view(-1, 1, 1).expand(-1, 1, x.size(2))
            return batch_first(x, axis).gather(1, index).squeeze(1)
        if self.pool == "mean":
            if self.masked:
                weight = mask.to(x.dtype)
                return (x * weight).sum(axis) / weight.sum(axis).clamp(min=1.0)
            return x.mean(axis)
        if self.pool == "sum":
            return (x * mask.to(x.dtype)).sum(axis) if self.masked else x.sum(axis)
        if self.pool == "max":
            if self.masked:
                x = x.masked_fill(~mask, -1e9)
            return x.max(axis)[0]
        if self.pool == "mean_max":
            return torch.cat([x.mean(axis), x.amax(axis)], dim=-1)
        if self.pool == "mean_std":
            deviation = torch.sqrt(x.var(axis, unbiased=False) + 1e-3)
            return torch.cat([x.mean(axis), deviation], dim=-1)
        y = batch_first(x, axis)
        if self.pool == "adaptive":
            return nn.functional.adaptive_avg_pool1d(y.transpose(1, 2), 1).squeeze(-1)
        if self.pool == "attention":
            scores = self.score(y).squeeze(-1)
        elif self.pool == "attention_query":
            scores = y @ self.query / y.size(-1) ** 0.5
        else:
            last = last_of(x, axis)
            scores = torch.bmm(self.key(y), last.unsqueeze(2)).squeeze(2)
        if self.masked:
            scores = scores.masked_fill(~flow.mask, -1e9)
        weights = torch.softmax(scores, dim=1)
        if self.shown:
            flow.outputs[f"{self.name}_weights"] = weights
        if self.pool == "attention" and self.style == "sum":
            return (y * weights.unsqueeze(-1)).sum(1)
        vector = torch.bmm(weights.unsqueeze(1), y).squeeze(1)
        if self.pool == "attention_last" and self.concatenated:
            return torch.cat([vector, last], dim=-1)
        return vector


class Attended(nn.Module):
    """Self-attention over steps, then another head."""

    def __init__(self, draw, width, time_axis, head):
        super().__init__()
        self.attention = SelfAttention(draw, width, time_axis)
        self.head = head
        self.outputs = head.outputs
        self.text = f"{self.attention.text}; {head.text}"

    def forward(self, x, flow):
        self.head(self.attention(x, flow), flow)
