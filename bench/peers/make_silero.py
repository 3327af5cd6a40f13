"""Writes model directories of silero-vad, a detector of speech, from its wheel or one of its ONNX files.

A sequence is audio in chunks of 32 ms, and a step reads one chunk, behind the last eighth of the chunk
before it. The files leave the length of such a row open, and the sample rate is an input of theirs:
`model.toml` says both.
"""

import argparse
import pathlib
import sys
import zipfile

import onnx

CHUNK_S = 0.032

# Directory: file in the wheel, samples a second.
IN_WHEEL = {
    "vad_op15": ("silero_vad_16k_op15.onnx", 16000),
    "vad_op18": ("silero_vad_op18_ifless.onnx", 16000),
    "vad_op18_8k": ("silero_vad_op18_ifless.onnx", 8000),
}

MODEL = """\
fixed = {{ sr = {rate} }}

[[cell]]
name = "vad"
graph = "vad.onnx"
batch_axis = {{ state = 1, stateN = 1 }}
row = {{ input = [{row}] }}

[unfold]
kind = "chain"
cell = "vad"
sequence = ["input"]
state = {{ state = "stateN" }}
[unfold.outputs]
output = {{ from = "output", every_step = true }}
"""


class SileroError(Exception):
    """The path holds nothing to write."""


def chunk(rate):
    """Samples of a chunk, and of the context before it: 512 and 64 at 16 kHz."""
    samples = round(CHUNK_S * rate)
    return samples, samples // 8


def read(path):
    """{directory: (ONNX model, rate)} of a wheel, or of one file at 16 kHz."""
    path = pathlib.Path(path)
    try:
        if path.suffix == ".onnx":
            return {path.stem: (onnx.load(path), 16000)}
        with zipfile.ZipFile(path) as wheel:
            return {
                name: (onnx.load_from_string(wheel.read(f"silero_vad/data/{file}")), rate)
                for name, (file, rate) in IN_WHEEL.items()
            }
    except Exception as error:  # protobuf's own error for what is no ONNX file, OSError, KeyError, ...
        raise SileroError(f"cannot read {path}: {error}") from error


def write(folder, model, rate):
    """Writes a directory that is served under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "vad.onnx")
    (folder / "model.toml").write_text(MODEL.format(rate=rate, row=sum(chunk(rate))))


def main():
    parser = argparse.ArgumentParser(
        description="Write model directories of silero-vad from its wheel or one of its ONNX files.",
        epilog="example: pip download --no-deps silero-vad && "
        "python make_silero.py silero_vad-*.whl --out models",
    )
    parser.add_argument("path", metavar="WHEEL|FILE.onnx", help="where the model is")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where directories are made")
    args = parser.parse_args()
    try:
        for name, (model, rate) in read(args.path).items():
            write(pathlib.Path(args.out) / name, model, rate)
            print(pathlib.Path(args.out) / name)
    except (OSError, SileroError) as error:
        sys.exit(f"make_silero: {error}")


if __name__ == "__main__":
    main()
