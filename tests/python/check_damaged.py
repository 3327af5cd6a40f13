"""Damaged models, and what the program makes of them.

    python tests/python/check_damaged.py --count 1000 --seed 1

Each model (see `damage/`) goes through `batchmaker inspect`, and through `batchmaker run` with a few
requests if it loads. Whatever the damage is, the program either loads the model or gives one error
that names a file; it never panics, hangs, ends by a signal, takes more than 2 GiB, or opens a file
outside the model's folder (the last is seen where `strace` is installed; where it is not, files outside
hold what the model needs, so that it would load). A test that is run by hand; `test_damaged_files.py`
does some of it.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
from random import Random
import re
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time

import damage
from conftest import BINARY

# What a process may use. The allocator reserves 1 GiB more of addresses than it uses.
MEMORY_BYTES = 2 << 30
ADDRESSES_BYTES = 3 << 30
SECONDS = 20.0

STRACE = shutil.which("strace")


@dataclasses.dataclass
class Ended:
    """How a process ended."""

    # As `subprocess` has it; none: it was killed because it took too long.
    status: int | None
    output: bytes
    errors: str
    seconds: float
    peak_bytes: int


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES_BYTES, ADDRESSES_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def execute(command, folder, stdin=b""):
    """Runs a command under the limits; its output goes through files in `folder`."""
    (folder / "stdin").write_bytes(stdin)
    start = time.monotonic()
    with (
        open(folder / "stdin", "rb") as given, open(folder / "stdout", "wb") as output,
        open(folder / "stderr", "wb") as errors,
    ):
        process = subprocess.Popen(
            list(map(str, command)), stdin=given, stdout=output, stderr=errors, preexec_fn=limits,
            start_new_session=True, env=os.environ | {"RUST_BACKTRACE": "1"},
        )
    end = os.pidfd_open(process.pid)
    has_ended, _, _ = select.select([end], [], [], SECONDS)
    os.close(end)
    if not has_ended:
        os.killpg(process.pid, 9)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(
        process.returncode if has_ended else None,
        (folder / "stdout").read_bytes(),
        (folder / "stderr").read_bytes().decode(errors="replace"),
        time.monotonic() - start,
        usage.ru_maxrss * 1024,
    )


def place(errors):
    """Why and where in the sources a process panicked or was aborted, as far as it told."""
    found = re.search(r"panicked at (?!/rustc)(\S+?):?\n", errors)
    found = found or re.search(r"at \S*?((?:crates|rten[\w-]*-[\d.]+)/\S+)", errors)
    why = "" if "overflowed its stack" not in errors else ", its stack overflowed"
    why = why if "memory allocation" not in errors else ", out of memory"
    return f"{why} at {found.group(1)}" if found else why


def broken_rules(ended):
    """What no process may do."""
    broken = []
    if ended.status is None:
        broken.append(f"a hang: killed after {SECONDS:.0f} s")
    elif ended.status < 0:
        broken.append(f"ended by signal {-ended.status}{place(ended.errors)}")
    elif ended.status > 1:
        broken.append(f"exit status {ended.status}")
    if "panicked" in ended.errors:
        broken.append(f"a panic{place(ended.errors)}")
    if ended.peak_bytes > MEMORY_BYTES:
        broken.append(f"{ended.peak_bytes >> 20} MiB of memory")
    return broken


def error_rules(case, ended):
    """What an error must be: one, with a text, that names the model or a file of it."""
    head, *lines = ended.errors.split("\n")
    if not re.match(r"(batchmaker|error): .{10}", head) or any(
        re.match("(batchmaker|error): ", line) for line in lines
    ):
        return ["not one error"]
    names = [case.model.name, *(path.name for path in case.folder.rglob("*"))]
    if not any(name in ended.errors for name in names):
        return ["an error that names no file"]
    return []


# Files that a process may open wherever its model is.
SYSTEM = re.compile(r"/(lib|lib64|usr/lib\w*|sys|proc)/|/etc/ld\.so|/dev/(null|pts)")


def opened_outside(case, binary, trace):
    """The files outside the model's folder that a traced process opened."""
    inside = (str(case.folder.resolve()), str(binary))
    for line in trace.read_text(errors="replace").splitlines():
        found = re.search(r"= \d+<(.*?)>(\(deleted\))?$", line)
        if found is None:
            continue
        path = found.group(1)
        if path.endswith("/mem") or not (path.startswith(inside) or SYSTEM.match(path)):
            yield path


def requests(random, model):
    """Lines of requests for a model that `inspect --json` described: some that it should answer, some
    that are strange."""
    lines = []
    for first, others, strange in ((1, 1, False), (3, 1, False), (1, 3, False), (2, 2, True)):
        tensors = []
        for info in model["inputs"]:
            shape, datatype = info["shape"], info["datatype"]
            axes = [n if n >= 0 else others if axis else first for axis, n in enumerate(shape)]
            count = 1
            for length in axes:
                count = min(count * length, 10_000)
            if info["name"] == "children" and len(shape) == 2:
                # As a tree: every inner node takes the next ones that have no parent.
                leaves, arity = first, axes[1]
                axes[0] = max(0, (leaves - 1) // max(1, arity - 1))
                data = list(range(axes[0] * arity))
            elif datatype == "BYTES":
                data = ["hello wörld" if not strange else "\0 \U0001f600" * 50] * count
            elif datatype == "BOOL":
                data = [random.random() < 0.5 for _ in range(count)]
            elif datatype == "FP32":
                data = [random.gauss(0, 1e38 if strange else 1) for _ in range(count)]
                data = [max(-3e38, min(3e38, x)) for x in data]
            else:
                bounds = (-(2**31), 2**31 - 1) if strange else (0, 2)
                data = [random.randint(*bounds) for _ in range(count)]
            tensors.append({
                "name": info["name"], "shape": axes, "datatype": datatype, "data": data,
            })
        lines.append(json.dumps({"inputs": tensors}))
    return lines


def reply_rules(ended, count):
    """What `run` must give: a reply or an error for each request, or one error for all."""
    lines = ended.output.splitlines()
    if ended.status == 1 and not lines:
        return [] if ended.errors.startswith("batchmaker: ") else ["not one error"]
    try:
        replies = [json.loads(line) for line in lines]
    except ValueError:
        return ["a reply that is no JSON"]
    if len(replies) != count or not all("outputs" in one or "error" in one for one in replies):
        return [f"{len(replies)} replies to {count} requests"]
    failed = any("error" in one for one in replies)
    return [] if failed == (ended.status == 1) else ["exit status and replies differ"]


@dataclasses.dataclass
class Verdict:
    """What became of a damaged model."""

    case: damage.Case
    # Whether it was loaded, and how many requests it answered.
    loads: bool
    answered: int
    broken: list
    # All that was printed to standard error.
    errors: str
    seconds: float
    peak_bytes: int


def check(case, binary, into, random):
    """Inspects and runs a damaged model."""
    command = [binary, "inspect", "--json", case.model]
    trace = into / "trace"
    if STRACE:
        command = [STRACE, "-f", "-qq", "-y", "-e", "trace=open,openat,openat2", "-o", trace, *command]
    ended = execute(command, into)
    broken = broken_rules(ended)
    loads, answered = ended.status == 0, 0
    if ended.status == 1 and not broken:
        broken += error_rules(case, ended)
    if case.must_refuse and loads:
        broken.append("loaded with a file from outside")
    if trace.exists():
        broken += [f"opened {path}" for path in sorted(set(opened_outside(case, binary, trace)))]
    errors, seconds, peak_bytes = ended.errors, ended.seconds, ended.peak_bytes
    if loads and not broken:
        # A folder without a model.toml may hold several models, each in a line, which `run` refuses.
        lines = requests(random, json.loads(ended.output.splitlines()[0]))
        command = [binary, "run", "--workers", "1", "--threads-per-worker", "1", case.model]
        ran = execute(command, into, "".join(f"{line}\n" for line in lines).encode())
        broken += [f"run: {rule}" for rule in broken_rules(ran)]
        if not broken:
            broken += [f"run: {rule}" for rule in reply_rules(ran, len(lines))]
        answered = ran.output.count(b'"outputs":[')
        errors, seconds = errors + ran.errors, max(seconds, ran.seconds)
        peak_bytes = max(peak_bytes, ran.peak_bytes)
    return Verdict(case, loads, answered, broken, errors, seconds, peak_bytes)


def check_number(models, seed, number, binary, keep=None):
    """Makes and checks damaged model `number` of a seed; where it breaks a rule, it is moved to
    the folder `keep`."""
    with tempfile.TemporaryDirectory() as into:
        into = pathlib.Path(into)
        case = damage.damaged(models, into, seed, number)
        random = Random(f"requests of {seed}/{number}")
        verdict = check(case, binary, into, random)
        if keep is not None and verdict.broken:
            shutil.copytree(
                into, keep / f"{seed}-{number}", symlinks=True, dirs_exist_ok=True,
                copy_function=copy_sparse, ignore=special,
            )
    return verdict


def special(folder, names):
    """Fifos and sockets, which cannot be copied."""
    paths = {name: pathlib.Path(folder, name) for name in names}
    return {name for name, path in paths.items() if path.is_fifo() or path.is_socket()}


def copy_sparse(source, target):
    size = os.stat(source).st_size
    if size < 1 << 30:
        return shutil.copy2(source, target)
    with open(target, "wb") as file:
        file.truncate(size)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", default="", help="only ways that this regular expression finds")
    parser.add_argument("--only", type=int, help="the model of this number alone, and what it gave")
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the models that break a rule")
    args = parser.parse_args()
    numbers = range(args.count) if args.only is None else [args.only]
    names = list(damage.WAYS)
    numbers = [n for n in numbers if re.search(args.ways, names[n % len(names)])]
    counts, broken = collections.Counter(), collections.Counter()
    slowest = largest = 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder), damage.write_all(folder)
        for number in numbers:
            verdict = check_number(models, args.seed, number, args.binary.resolve(), args.keep)
            case = verdict.case
            counts["loaded" if verdict.loads else "refused"] += 1
            counts["answered"] += verdict.answered > 0
            slowest = max(slowest, verdict.seconds)
            largest = max(largest, verdict.peak_bytes)
            if verdict.broken or args.only is not None:
                print(f"{number}: {case.way}, {case.base}: {case.description}")
                print(f"  {'; '.join(verdict.broken) or 'no rule is broken'}")
                head = [line for line in verdict.errors.splitlines() if line][:3]
                print("".join(f"    {line[:300]}\n" for line in head), end="", flush=True)
            broken.update(re.sub(r"\d+ MiB", "too much", rule) for rule in set(verdict.broken))
            counts["broke a rule"] += bool(verdict.broken)
    print(
        f"seed {args.seed}: {len(numbers)} damaged models, {len(damage.WAYS)} ways: "
        f"{counts['loaded']} loaded ({counts['answered']} answered a request), "
        f"{counts['refused']} refused, {counts['broke a rule']} broke a rule; at most "
        f"{slowest:.1f} s and {largest >> 20} MiB; {time.monotonic() - start:.0f} s in all"
    )
    for rule, count in broken.most_common():
        print(f"  {count}: {rule}")
    if broken:
        sys.exit("check_damaged: failed")


if __name__ == "__main__":
    main()
