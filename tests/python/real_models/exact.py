"""Files with int8 operators, evaluated by ONNX's reference implementation: sums of integers are exact there.

ONNX Runtime's products of bytes saturate at 16 bits on processors without VNNI, so it does not tell what a file says.
"""

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_dequantize_linear, op_quantize_linear

BYTE_MAX = np.float32(255)


def quantised(x):
    """(whole numbers less their zero point, scale) of a tensor, by the equations of `DynamicQuantizeLinear`."""
    least, greatest = (np.float32(bound) for bound in (min(0, x.min()), max(0, x.max())))
    scale = (greatest - least) / BYTE_MAX if greatest != least else np.float32(1)
    zero_point = np.clip(np.rint(-least / scale), 0, BYTE_MAX)
    return np.clip(np.rint(x / scale) + zero_point, 0, BYTE_MAX).astype(np.int64) - int(zero_point), scale


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class DynamicQuantizeLSTM(OpRun):
    """ONNX Runtime's operator for one sequence: X is quantised over all steps, h at every step. Activations are float64."""

    op_domain = "com.microsoft"

    def _run(
        self, x, w, r, b=None, lengths=None, initial_h=None, initial_c=None, peepholes=None,
        w_scale=None, w_zero_point=None, r_scale=None, r_zero_point=None,
        hidden_size=None, direction="forward", **attributes,
    ):
        steps, batch, _ = x.shape
        others = {name: of for name, of in attributes.items() if of and name not in ("activations", "input_forget")}
        if batch != 1 or lengths is not None or peepholes is not None or others:
            raise NotImplementedError(f"DynamicQuantizeLSTM of a batch of {batch}, with {others}")
        directions = len(w)
        y = np.zeros((steps, directions, 1, hidden_size), np.float32)
        last = [np.zeros((directions, 1, hidden_size), np.float32) for _ in "hc"]
        x, x_scale = quantised(x[:, 0])
        for at in range(directions):
            w_whole, r_whole = (
                weights[at].astype(np.int64) - zero_points[at].astype(np.int64)
                for weights, zero_points in ((w, w_zero_point), (r, r_zero_point))
            )
            of_x = (x @ w_whole).astype(np.float32) * (x_scale * w_scale[at])
            bias = b[at].reshape(2, -1).sum(0) if b is not None else np.float32(0)
            h, c = (
                first[at, 0] if first is not None else np.zeros(hidden_size, np.float32)
                for first in (initial_h, initial_c)
            )
            is_reverse = direction == "reverse" or at == 1
            for step in reversed(range(steps)) if is_reverse else range(steps):
                whole, scale = quantised(h)
                sums = of_x[step] + (whole @ r_whole).astype(np.float32) * (scale * r_scale[at]) + bias
                i, o, f, g = np.split(sums.astype(np.float64), 4)
                c = (sigmoid(f) * c + sigmoid(i) * np.tanh(g)).astype(np.float32)
                h = (sigmoid(o) * np.tanh(c)).astype(np.float32)
                y[step, at, 0] = h
            last[0][at, 0], last[1][at, 0] = h, c
        return y, *last


class DequantizeLinear(op_dequantize_linear.DequantizeLinear_25):
    """For every opset."""

    op_domain = ""


class QuantizeLinear(op_quantize_linear.QuantizeLinear_25):
    """For every opset."""

    op_domain = ""


class Exact:
    """A file's outputs for requests of one sequence."""

    def __init__(self, model):
        operators = [DynamicQuantizeLSTM, DequantizeLinear, QuantizeLinear]
        self._evaluator = ReferenceEvaluator(model, new_ops=operators)
        self._names = [output.name for output in model.graph.output]

    def run(self, arrays):
        return dict(zip(self._names, self._evaluator.run(None, arrays)))
