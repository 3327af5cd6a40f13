"""The ONNX operators LSTM, GRU and RNN as their specification writes them, in NumPy with doubles."""

import numpy as np

DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
# Name: (function of x, alpha, beta; defaults of alpha and beta where it takes them).
ACTIVATIONS = {
    "Relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "Tanh": (lambda x, a, b: np.tanh(x), None, None),
    "Sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), None, None),
    "Softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "Softplus": (lambda x, a, b: np.logaddexp(0, x), None, None),
    "Affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "LeakyRelu": (lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, None),
    "ThresholdedRelu": (lambda x, a, b: np.where(x > a, x, 0), 1.0, None),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "Elu": (lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), 1.0, None),
}


def activations(kind, attributes, directions):
    """The functions of all directions, each with its parameters, one list a direction."""
    names = attributes.get("activations", DEFAULTS[kind] * directions)
    alphas = iter(attributes.get("activation_alpha", []))
    betas = iter(attributes.get("activation_beta", []))
    made = []
    for name in names:
        function, alpha, beta = ACTIVATIONS[name]
        alpha = next(alphas, alpha) if alpha is not None else None
        beta = next(betas, beta) if beta is not None else None
        made.append(lambda x, function=function, alpha=alpha, beta=beta: function(x, alpha, beta))
    count = len(DEFAULTS[kind])
    return [made[count * d : count * (d + 1)] for d in range(directions)]


def run(kind, attributes, constants, feeds):
    """y [time, directions, batch, hidden], y_h and (of an LSTM) y_c [directions, batch, hidden].

    `constants`: w, r, and maybe b and p; `feeds`: x [time, batch, input], and maybe lengths [batch],
    h0 and c0.
    """
    w, r = (constants[name].astype(np.float64) for name in "wr")
    directions, hidden = w.shape[0], r.shape[2]
    time, batch, _ = feeds["x"].shape
    lengths = feeds.get("lengths", np.full(batch, time))
    y = np.zeros((time, directions, batch, hidden))
    last = np.zeros((2, directions, batch, hidden))
    clip = attributes.get("clip") or np.inf
    functions = activations(kind, attributes, directions)
    for d in range(directions):
        reverse = attributes["direction"] == "reverse" or d == 1
        b = constants["b"][d].astype(np.float64) if "b" in constants else np.zeros(2 * w.shape[1])
        wb, rb = np.split(b, 2)
        p = constants["p"][d].astype(np.float64) if "p" in constants else np.zeros(3 * hidden)
        f = [lambda x, one=one: one(np.clip(x, -clip, clip)) for one in functions[d]]
        for row in range(batch):
            h = feeds["h0"][d, row].astype(np.float64) if "h0" in feeds else np.zeros(hidden)
            c = feeds["c0"][d, row].astype(np.float64) if "c0" in feeds else np.zeros(hidden)
            steps = range(lengths[row])
            for t in reversed(steps) if reverse else steps:
                x = w[d] @ feeds["x"][t, row].astype(np.float64) + wb
                if kind == "LSTM":
                    sums = x + r[d] @ h + rb
                    i, o, forget, g = np.split(sums, 4)
                    pi, po, pf = np.split(p, 3)
                    i = f[0](i + pi * c)
                    forget = 1 - i if attributes.get("input_forget") else f[0](forget + pf * c)
                    c = forget * c + i * f[1](g)
                    h = f[0](o + po * c) * functions[d][2](c)
                elif kind == "GRU":
                    xz, xr, xh = np.split(x, 3)
                    rz, rr, rh = np.split(r[d], 3)
                    bz, br, bh = np.split(rb, 3)
                    z, reset = f[0](xz + rz @ h + bz), f[0](xr + rr @ h + br)
                    if attributes.get("linear_before_reset"):
                        new = f[1](xh + reset * (rh @ h + bh))
                    else:
                        new = f[1](xh + rh @ (reset * h) + bh)
                    h = (1 - z) * new + z * h
                else:
                    h = f[0](x + r[d] @ h + rb)
                y[t, d, row] = h
            if lengths[row] > 0:
                last[:, d, row] = h, c
    return [y, last[0], last[1]][: 3 if kind == "LSTM" else 2]
