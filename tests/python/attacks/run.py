"""Attacks a server and prints a table; exits with 1 if a bound is broken.

python tests/python/attacks/run.py --server BINARY [--only NAME] [--short] [-- extra serve flags]
"""

import argparse
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from attacks import every_attack, models  # noqa: E402,F401  (found by the line above)
from attacks.registry import ATTACKS  # noqa: E402
from attacks.trial import HEADINGS, MB, Limits, Trials  # noqa: E402


def options():
    default = Limits()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help="the binary")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="an attack, or the start of names; repeatable"
    )
    parser.add_argument("--short", action="store_true", help="a few seconds each")
    parser.add_argument("--list", action="store_true", help="name the attacks, and stop")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    parser.add_argument("--budget-flag", default=default.budget_flag, metavar="FLAG")
    parser.add_argument("--budget-mib", type=int, default=default.budget >> 20)
    parser.add_argument("--extra-memory-mb", type=int, default=default.extra_memory // MB)
    parser.add_argument("--live-ms", type=float, default=1000 * default.live)
    parser.add_argument("--p99-ratio", type=float, default=default.ratio)
    parser.add_argument(
        "--least-p99-ms", type=float, default=1000 * default.least_p99,
        help="a p99 below it breaks no bound",
    )
    parser.add_argument(
        "--patience", type=float, help="seconds to wait for what is under way at the end"
    )
    parser.add_argument(
        "--guard-mb", type=int, default=default.guard // MB, help="kill a server that takes more memory"
    )
    parser.add_argument("flags", nargs="*", help="flags of the server, after --")
    return parser.parse_args()


def main():
    asked = options()
    attacks = [of for of in ATTACKS.values() if of.name != "harmless"]
    if asked.short and not asked.only:
        attacks = [of for of in attacks if of.in_short]
    if asked.only:
        named = [name for name in asked.only if name in ATTACKS]
        starts = tuple(name for name in asked.only if name not in ATTACKS)
        attacks = [of for of in ATTACKS.values() if of.name in named or of.name.startswith(starts)]
    if asked.list or not attacks:
        for of in attacks:
            print(f"{of.name}: {of.idea}")
        sys.exit(0 if attacks else "no such attack")
    patience = asked.patience or (15.0 if asked.short else 60.0)
    limits = Limits(
        asked.budget_mib << 20, asked.budget_flag, asked.extra_memory_mb * MB, asked.live_ms / 1000,
        asked.p99_ratio, asked.least_p99_ms / 1000, patience, asked.guard_mb * MB,
    )
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        trials = Trials(asked.server, models.write(folder), limits, asked.short, asked.flags)
        print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS), flush=True)
        for of in attacks:
            outcome = trials.run(of)
            outcomes.append(outcome)
            print("| " + " | ".join(outcome.row()) + " |", flush=True)
            if asked.only or outcome.broken:
                print(f"    {outcome.notes}", file=sys.stderr, flush=True)
        statuses = trials.close()
    if statuses:
        print(f"exit statuses of the servers that held: {statuses}")
    if asked.json:
        measured = json.dumps([vars(of) for of in outcomes], indent=1, default=str)
        pathlib.Path(asked.json).write_text(measured)
    broken = sum(1 for of in outcomes if of.broken)
    print(f"{len(outcomes)} attacks, {broken} of them succeed")
    sys.exit(1 if broken or statuses else 0)


if __name__ == "__main__":
    main()
