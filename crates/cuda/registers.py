"""Compiles all kernels with NVRTC for each architecture, and compares registers, spills and shared memory with a table, or writes the images.

The table is `registers.md` beside this file. A kernel that spills, or has other registers than the table says, is an error: look whether the
change is meant, then write the table anew. Images are what a program holds that is built with BATCHMAKER_CUDA_IMAGES=FOLDER, an absolute path.
Needs no GPU and no driver, and the package of `requirements.txt`.

examples:
  python crates/cuda/registers.py                           # compare
  python crates/cuda/registers.py --write                   # write the table
  python crates/cuda/registers.py --images target/images    # write an image for each architecture
  BATCHMAKER_CUDA_IMAGES=$PWD/target/images cargo build --release
"""

import argparse
import concurrent.futures
import ctypes
import functools
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
TABLE = FOLDER / "registers.md"

# Virtual architectures are compiled to PTX, real ones to cubins.
VIRTUAL = ("compute_75", "compute_80")
REAL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

# What images are made of, in their folder.
SOURCES = "sources.txt"

HEADING = """# Registers of the kernels

What NVRTC {version} gives each kernel on each architecture: registers of a thread; bytes of shared memory of a block, without
that of weights which do not fit the registers. No kernel spills.
`registers.py` writes this table, and `cargo xtask emulate` compares it.
"""


class Nvrtc:
    """NVIDIA's runtime compiler."""

    def __init__(self):
        import nvidia

        folders = [pathlib.Path(folder) for folder in nvidia.__path__]
        found = sorted(path for folder in folders for path in folder.glob("**/libnvrtc.so.*"))
        if not found:
            sys.exit("the package nvidia-cuda-nvrtc has no libnvrtc.so")
        self.library = ctypes.CDLL(str(found[0]))

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, name, text, files, architecture):
        """The image of a source, which may include files, and what the compiler says of it; ends the program where it refuses it."""
        program = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(files))(*(file.name.encode() for file in files))
        texts = (ctypes.c_char_p * len(files))(*(file.read_bytes() for file in files))
        made = self.library.nvrtcCreateProgram(ctypes.byref(program), text, name.encode(), len(files), texts, names)
        if made:
            sys.exit(f"{name}: NVRTC makes no program of it: error {made}")
        options = [f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v"]
        options = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        result = self.library.nvrtcCompileProgram(program, len(options), options)
        log = self._given(program, "ProgramLog").rstrip(b"\0").decode()
        if result:
            sys.exit(f"{name}, {architecture}: {log}")
        # A text ends with a zero, which is not part of it.
        image = self._given(program, "PTX")[:-1] if architecture in VIRTUAL else self._given(program, "CUBIN")
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return image, log

    def _given(self, program, what):
        """The bytes that a compiled program has of some kind."""
        size = ctypes.c_size_t()
        failed = getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        to = ctypes.create_string_buffer(size.value)
        failed = failed or getattr(self.library, f"nvrtcGet{what}")(program, to)
        if failed:
            sys.exit(f"NVRTC gives no {what}: error {failed}")
        return to.raw


@functools.cache
def nvrtc_of_process():
    return Nvrtc()


def compile_one(program):
    return nvrtc_of_process().compile(*program)


def compile_all(programs):
    """Images and logs of programs, which are arguments of `Nvrtc.compile`, in their order: as many at a time as there are processors."""
    with concurrent.futures.ProcessPoolExecutor() as pool:
        return list(pool.map(compile_one, programs))


def resources(log):
    """Registers, shared memory and spills of each kernel that a log is of."""
    kernels = {}
    for part in log.split("Compiling entry function '")[1:]:
        registers = re.search(r"Used (\d+) registers", part)
        shared = re.search(r"(\d+) bytes smem", part)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        spilled = sum(map(int, spills.groups())) if spills else 0
        kernels[part.split("'")[0]] = (int(registers.group(1)), int(shared.group(1)) if shared else 0, spilled)
    return kernels


def table_of(sources, headers):
    """The table, and the number of kernels."""
    of_kernels = {}
    # The largest source first: others are compiled beside its last architecture.
    sources = sorted(sources, key=lambda source: -source.stat().st_size)
    programs = [(source.name, source.read_bytes(), headers, of) for source in sources for of in REAL + VIRTUAL]
    for (*_, architecture), (_, log) in zip(programs, compile_all(programs)):
        for kernel, of in resources(log).items() if architecture in REAL else ():
            if of[2]:
                sys.exit(f"{kernel} spills {of[2]} bytes on {architecture}")
            of_kernels.setdefault(kernel, {})[architecture] = of
    if not of_kernels:
        sys.exit("the compiler names no kernel")
    lines = ["| kernel | " + " | ".join(REAL) + " |", "|---" * (1 + len(REAL)) + "|"]
    for kernel, by_architecture in sorted(of_kernels.items()):
        cells = (f"{registers}; {shared}" for registers, shared, _ in map(by_architecture.get, REAL))
        lines.append(f"| `{kernel}` | " + " | ".join(cells) + " |")
    return HEADING.format(version=nvrtc_of_process().version()) + "\n" + "\n".join(lines) + "\n", len(of_kernels)


def write_whole(path, content):
    """Writes a file that is never seen half written."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def write_images(sources, headers, folder):
    """Writes an image for each architecture: of one program that includes all sources, so that a GPU loads one module."""
    text = "".join(f'#include "{source.name}"\n' for source in sources).encode()
    images = {}
    programs = [("kernels.cu", text, headers + sources, architecture) for architecture in VIRTUAL + REAL]
    for (*_, architecture), (image, _) in zip(programs, compile_all(programs)):
        ending = "ptx" if architecture in VIRTUAL else "cubin"
        images[f"kernels_{architecture.split('_')[1]}.{ending}"] = image
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("kernels_*"):
        if old.name not in images:
            old.unlink()
    for name, image in images.items():
        write_whole(folder / name, image)
        print(f"{folder / name}: {len(image):,} bytes")
    # Whoever embeds the images can tell whether they are of the sources that it has.
    files = sorted(headers + sources, key=lambda file: file.name)
    write_whole(folder / SOURCES, b"".join(b"// %s\n%s" % (file.name.encode(), file.read_bytes()) for file in files))
    print(f"{len(images)} images: {sum(map(len, images.values())):,} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--write", action="store_true", help="write the table anew")
    does.add_argument("--images", metavar="FOLDER", type=pathlib.Path, help="write PTX and cubins of all kernels to a folder, which is created")
    args = parser.parse_args()
    headers = sorted((FOLDER / "kernels").glob("*.cuh"))
    sources = sorted((FOLDER / "kernels").glob("*.cu"))
    # Not part of the images: a program compiles persistent kernels for the cells that it serves.
    persistent = [FOLDER / "table_1.cu"]
    if args.images:
        write_images(sources, headers, args.images)
        return
    table, kernels = table_of(sources + persistent, headers)
    if args.write:
        TABLE.write_text(table)
        return
    if table != TABLE.read_text():
        sys.exit(f"{TABLE.name} differs from what NVRTC says, which is:\n\n{table}")
    print(f"{kernels} kernels on {len(REAL)} architectures, as {TABLE.name} says")


if __name__ == "__main__":
    main()
