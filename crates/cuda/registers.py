"""Compiles all kernels with NVRTC for each architecture, and compares registers, spills and shared memory with a table.

The table is `registers.md` beside this file. A kernel that spills, or has other registers than the table says, is an error: look whether the
change is meant, then write the table anew. Needs no GPU and no driver, and the package of `requirements.txt`.

examples:
  python crates/cuda/registers.py            # compare
  python crates/cuda/registers.py --write    # write the table
"""

import argparse
import ctypes
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
TABLE = FOLDER / "registers.md"

# Virtual architectures are compiled to PTX, real ones to cubins.
VIRTUAL = ("compute_75",)
REAL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

HEADING = """# Registers of the kernels

What NVRTC {version} gives each kernel on each architecture: registers of a thread; bytes of shared memory of a block. No kernel spills.
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

    def compile(self, source, headers, architecture):
        """What the compiler says of a source; ends the program where it refuses it."""
        program = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(headers))(*(header.name.encode() for header in headers))
        texts = (ctypes.c_char_p * len(headers))(*(header.read_bytes() for header in headers))
        made = self.library.nvrtcCreateProgram(
            ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names
        )
        if made:
            sys.exit(f"{source.name}: NVRTC makes no program of it: error {made}")
        options = [f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v"]
        options = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        result = self.library.nvrtcCompileProgram(program, len(options), options)
        size = ctypes.c_size_t()
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        if result:
            sys.exit(f"{source.name}, {architecture}: {log.value.decode()}")
        return log.value.decode()


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table anew")
    args = parser.parse_args()
    nvrtc = Nvrtc()
    headers = sorted((FOLDER / "kernels").glob("*.cuh"))
    of_kernels = {}
    for source in sorted((FOLDER / "kernels").glob("*.cu")):
        for architecture in VIRTUAL:
            nvrtc.compile(source, headers, architecture)
        for architecture in REAL:
            for kernel, of in resources(nvrtc.compile(source, headers, architecture)).items():
                if of[2]:
                    sys.exit(f"{kernel} spills {of[2]} bytes on {architecture}")
                of_kernels.setdefault(kernel, {})[architecture] = of
    if not of_kernels:
        sys.exit("the compiler names no kernel")
    lines = ["| kernel | " + " | ".join(REAL) + " |", "|---" * (1 + len(REAL)) + "|"]
    for kernel, by_architecture in sorted(of_kernels.items()):
        cells = (f"{registers}; {shared}" for registers, shared, _ in map(by_architecture.get, REAL))
        lines.append(f"| `{kernel}` | " + " | ".join(cells) + " |")
    table = HEADING.format(version=nvrtc.version()) + "\n" + "\n".join(lines) + "\n"
    if args.write:
        TABLE.write_text(table)
        return
    if table != TABLE.read_text():
        sys.exit(f"{TABLE.name} differs from what NVRTC says, which is:\n\n{table}")
    print(f"{len(of_kernels)} kernels on {len(REAL)} architectures, as {TABLE.name} says")


if __name__ == "__main__":
    main()
