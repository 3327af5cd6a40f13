"""ONNX Runtime beside a server, and what differs between two replies."""

import numpy as np
import onnx
import onnxruntime
from check_models import difference


# What inputs are moved by, relative to their elements: about two steps of FLOAT.
MOVED_BY = 3e-7


class Runtime:
    """A file in ONNX Runtime: its path, or its bytes."""

    def __init__(self, model, threads=1):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        model = model if isinstance(model, bytes) else str(model)
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, arrays):
        return dict(zip(self._names, self._session.run(None, arrays)))


def moved(arrays, seed):
    """The arrays with their floats moved by as little as rounding would."""
    rng = np.random.default_rng(seed)
    move = lambda array: np.asarray(array * (1 + MOVED_BY * rng.standard_normal(array.shape)), array.dtype)
    return {of: move(array) if array.dtype.kind == "f" else array for of, array in arrays.items()}


def moved_constants(model, seed):
    """A file with its constants moved so: neither whole numbers of 8 bits nor ids show that an input was moved."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {of.name: of for of in copy.graph.initializer}
    arrays = {name: onnx.numpy_helper.to_array(of) for name, of in constants.items()}
    for name, array in moved(arrays, seed).items():
        if array.dtype.kind == "f":
            constants[name].CopyFrom(onnx.numpy_helper.from_array(array, name))
    return copy


def gap(found, wanted, scale):
    """The largest difference over `scale`; infinite where shapes, types or integers are not the same."""
    if found.dtype != wanted.dtype or wanted.dtype.kind != "f":
        return difference(found, wanted)
    scale = max(float(scale), float(np.finfo(np.float32).tiny))
    return difference(found.astype(np.float64) / scale, wanted.astype(np.float64) / scale)


def same_bits(found, wanted):
    return found.keys() == wanted.keys() and all(
        found[of].shape == wanted[of].shape and found[of].tobytes() == wanted[of].tobytes() for of in wanted
    )


def stacked(rows, like):
    """Outputs of single sequences along the axis on which a batch's is longer, or which only the batch's has."""
    if rows[0].ndim < like.ndim:
        return np.stack(rows)
    longer = [n for n, (one, all_) in enumerate(zip(rows[0].shape, like.shape)) if one != all_]
    return np.concatenate(rows, longer[0]) if longer else rows[0]
