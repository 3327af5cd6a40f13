"""How many times as fast as ONNX Runtime the server was, over all files of a run."""

import math

LONG_MS = 2.0  # ONNX Runtime's time from which on a request takes so long that HTTP hardly counts


def ratios(results):
    """Lines: the geometric means of ONNX Runtime's time over the server's."""
    timed = [of for of in results if "ms_alone" in of]
    long = [of for of in timed if of["ms_onnx_runtime"] >= LONG_MS]
    return [line for line in (
        told("all files", timed),
        told(f"files that take ONNX Runtime {LONG_MS:.0f} ms or more", long),
    ) if line]


def told(name, results):
    if not results:
        return ""
    mean = lambda theirs, ours: math.exp(sum(math.log(of[theirs] / of[ours]) for of in results) / len(results))
    return (
        f"{name} ({len(results)}): alone {mean('ms_onnx_runtime', 'ms_alone'):.2f} times as fast as ONNX Runtime on one "
        f"thread and {mean('ms_onnx_runtime_2', 'ms_alone'):.2f} on two; with 8 in flight "
        f"{mean('ms_onnx_runtime', 'ms_at_once'):.2f} and {mean('ms_onnx_runtime_2', 'ms_at_once'):.2f}"
    )
