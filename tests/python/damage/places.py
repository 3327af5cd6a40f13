"""Places where a file of a model should not be: outside its folder, or no file at all."""

import dataclasses
import os
import shutil
import socket

from .case import HUGE


@dataclasses.dataclass
class Place:
    """Where a file went: the name that a model has for it, and whether that is outside."""

    name: str
    is_outside: bool = True


PLACES = {}


def place(name):
    def add(function):
        PLACES[name] = function
        return function

    return add


def hidden(case, path):
    """The file outside the folder, with the bytes that it has inside, where it is no more."""
    moved = case.outside / path.name
    shutil.move(path, moved)
    return moved


@place("the folder above")
def _(case, path):
    return Place(f"../outside/{hidden(case, path).name}")


@place("the folder above, through one inside")
def _(case, path):
    (case.folder / "sub").mkdir()
    return Place(f"sub/../../outside/{hidden(case, path).name}")


@place("the folder above, with dots between")
def _(case, path):
    return Place(f"./.././outside/.//{hidden(case, path).name}")


@place("an absolute path")
def _(case, path):
    return Place(str(hidden(case, path).resolve()))


@place("an absolute path inside")
def _(case, path):
    return Place(str(path.resolve()), is_outside=False)


@place("a path under /proc")
def _(case, path):
    return Place(f"/proc/self/root{hidden(case, path).resolve()}")


@place("/etc/passwd")
def _(case, path):
    return Place("/etc/passwd")


@place("/dev/zero")
def _(case, path):
    return Place("/dev/zero")


@place("/proc/self/mem")
def _(case, path):
    return Place("/proc/self/mem")


@place("standard input")
def _(case, path):
    return Place("/dev/stdin")


@place("a link out of the folder")
def _(case, path):
    path.symlink_to(hidden(case, path).resolve())
    return Place(path.name)


@place("a relative link out of the folder")
def _(case, path):
    path.symlink_to(f"../outside/{hidden(case, path).name}")
    return Place(path.name)


@place("a link to a link out of the folder")
def _(case, path):
    (case.folder / "between").symlink_to(hidden(case, path).resolve())
    path.symlink_to("between")
    return Place(path.name)


@place("a folder that is a link out")
def _(case, path):
    (case.folder / "sub").symlink_to(case.outside.resolve())
    return Place(f"sub/{hidden(case, path).name}")


@place("a folder that is a link out, and back")
def _(case, path):
    (case.folder / "sub").symlink_to(case.outside.resolve())
    return Place(f"sub/../{case.folder.name}/{path.name}")


@place("a link inside the folder")
def _(case, path):
    (case.folder / "link").symlink_to(path.name)
    return Place("link", is_outside=False)


@place("a link to /dev/zero")
def _(case, path):
    path.unlink()
    path.symlink_to("/dev/zero")
    return Place(path.name)


@place("a link to /proc/self/mem")
def _(case, path):
    path.unlink()
    path.symlink_to("/proc/self/mem")
    return Place(path.name)


@place("a link to itself")
def _(case, path):
    path.unlink()
    path.symlink_to(path.name)
    return Place(path.name)


@place("a link to nothing")
def _(case, path):
    path.unlink()
    path.symlink_to("nothing")
    return Place(path.name)


@place("a folder")
def _(case, path):
    path.unlink()
    path.mkdir()
    return Place(path.name)


@place("a fifo")
def _(case, path):
    path.unlink()
    os.mkfifo(path)
    return Place(path.name)


@place("a socket")
def _(case, path):
    path.unlink()
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # The names of sockets are short.
    socket.socket(socket.AF_UNIX).bind(path.name)
    os.fchdir(here)
    os.close(here)
    return Place(path.name)


@place("nothing")
def _(case, path):
    path.unlink()
    return Place(path.name)


@place("a file without an end")
def _(case, path):
    os.truncate(path, HUGE)
    return Place(path.name, is_outside=False)


@place("a file of 3 GiB")
def _(case, path):
    os.truncate(path, 3 << 30)
    return Place(path.name, is_outside=False)


@place("an empty name")
def _(case, path):
    return Place("")


@place("the folder itself")
def _(case, path):
    return Place(".")


@place("a name with a zero")
def _(case, path):
    return Place(f"{path.name}\0")


@place("a very long name")
def _(case, path):
    return Place("x" * 100_000)


@place("a very deep name")
def _(case, path):
    return Place("./" * 100_000 + path.name, is_outside=False)


@place("a name that ends in /")
def _(case, path):
    return Place(f"{path.name}/")
