"""Lets one server run for an hour under ordinary requests with attacks in between; exits with 1 if it
does not come back to where it began.

python tests/python/attacks/soak.py --server BINARY [--minutes 60] [--json FILE] [-- extra serve flags]

Each round lasts a few seconds. After it, nobody asks for anything until what was under way is over. The
last table has the resident memory of the server after each tenth of the rounds.
"""

import argparse
import json
import os
import pathlib
import random
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from attacks import every_attack, models  # noqa: E402,F401  (found by the line above)
from attacks.registry import ATTACKS  # noqa: E402
from attacks.server import resident  # noqa: E402
from attacks.trial import MB, Limits, Trials, discard  # noqa: E402

SESSION_IDLE, SEED = 10, 24
GAUGES = ("permits_in_use", "slots_in_use", "sessions", "memory_bytes", "waiting_subgraphs")


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="the binary")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--round-seconds", type=float, default=8)
    parser.add_argument("--budget-mib", type=int, default=512)
    parser.add_argument(
        "--growth-mb", type=int, default=50,
        help="the most memory that the last tenth of the rounds may have over the second",
    )
    parser.add_argument("--json", metavar="FILE", help="write what was measured after each round")
    parser.add_argument("flags", nargs="*", help="flags of the server, after --")
    return parser.parse_args()


def gauges(server):
    """The sums of the gauges that are 0 when nobody asks for anything."""
    sums = dict.fromkeys(GAUGES, 0.0)
    with urllib.request.urlopen(server.metrics_url, timeout=30) as response:
        for line in response.read().decode().splitlines():
            name = line.split("{")[0].split(" ")[0].removeprefix("batchmaker_")
            if name in sums:
                sums[name] += float(line.rsplit(" ", 1)[1])
    return sums


def settled(server, idle, seconds):
    """The gauges once they are what they were when nobody had asked for anything, or after `seconds`."""
    end = time.monotonic() + seconds
    while (now := gauges(server)) != idle and time.monotonic() < end:
        time.sleep(0.2)
    return now


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def rounds(asked, trials, attacks):
    """One server to its end: what is measured after each round, and what broke."""
    calm = ATTACKS["harmless"]
    server, watch, _ = trials.start(calm)
    measured, broken = [], []
    try:
        time.sleep(1.0)
        idle, files = gauges(server), open_files(server.pid)
        end, turn, draw = time.monotonic() + 60 * asked.minutes, 0, random.Random(SEED)
        while time.monotonic() < end:
            # Every other round is an ordinary one.
            of = calm if turn % 2 else draw.choice(attacks)
            turn += 1
            watch.begin()
            notes = trials.attack(server, of.name, 32 if of is calm else None, asked.round_seconds)
            seen = watch.end(30)
            now = settled(server, idle, 3 * SESSION_IDLE)
            row = {
                "round": turn, "attack": of.name, "resident_mb": resident(server.pid) / MB,
                "live_ms": 1000 * max(seen.live, default=0), "p99_ms": 1000 * seen.p99(),
                "right": seen.right, "refused": seen.refused, "wrong": seen.wrong, "hung": seen.hung,
                "files": open_files(server.pid), **now,
            }
            measured.append(row)
            if server.process.poll() is not None:
                broken.append(f"the server ended in round {turn} ({of.name})")
                break
            if now != idle:
                broken.append(f"round {turn} ({of.name}) left {now}, where {idle} was in use")
            if seen.wrong or seen.hung or notes.get("failures"):
                broken.append(f"round {turn} ({of.name}): {seen.examples} {notes.get('failures', [])}")
            if turn % 20 == 0:
                print(f"round {turn}: {row['resident_mb']:.0f} MB, {of.name}", file=sys.stderr, flush=True)
        if server.process.poll() is None:
            if (left := open_files(server.pid)) > files + 8:
                broken.append(f"{left} open files, of {files} at the start")
            if (status := server.stop(50)) != 0:
                broken.append(f"exit status {status}")
    finally:
        discard(server, watch)
    return measured, broken


def main():
    asked = options()
    attacks = [
        of for of in ATTACKS.values()
        if of.name != "harmless" and not (of.ends or of.flags or of.shell or of.budget)
    ]
    flags = ["--session-idle", SESSION_IDLE, *asked.flags]
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(budget=asked.budget_mib << 20)
        trials = Trials(asked.server, models.write(folder), limits, flags=flags)
        measured, broken = rounds(asked, trials, attacks)
    tenth = max(1, len(measured) // 10)
    print("| rounds | resident MB, most | right | refused | p99 ms, most | live ms, most |")
    print("|---|---|---|---|---|---|")
    most = []
    for first in range(0, len(measured), tenth):
        part = measured[first : first + tenth]
        most.append(max(row["resident_mb"] for row in part))
        total = lambda name, part=part: sum(row[name] for row in part)
        peak = lambda name, part=part: max(row[name] for row in part)
        print(
            f"| {first + 1} to {first + len(part)} | {most[-1]:.0f} | {total('right')} | {total('refused')} "
            f"| {peak('p99_ms'):.0f} | {peak('live_ms'):.0f} |"
        )
    if len(most) > 2 and most[-1] > most[1] + asked.growth_mb:
        broken.append(f"memory grew from {most[1]:.0f} to {most[-1]:.0f} MB")
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps(measured, indent=1))
    for line in broken[:20]:
        print(line)
    print(f"{len(measured)} rounds, {len(broken)} of them or their sums broke a bound")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
