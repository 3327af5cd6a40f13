"""The ONNX project's own tests of operators, through `batchmaker run`. Each is tried as it is, all that
the operator takes being inputs of the file; then, if that does not pass, with all inputs but the first
made constants. Prints, operator by operator, how many pass, and why the others do not.

examples:
  python check_node_tests.py --operators Conv,Pad,Softmax
  python check_node_tests.py --json node-tests.json
"""

import argparse
import collections
import json
import re
import sys

import node_tests

# The worse is told of the two tries: what is loaded and then wrong, before what is refused. Of two
# that are refused, the one with fewer reasons, or the second: its reasons are not that weights vary.
WORST_FIRST = ["crashed", "wrong", "request refused", "refused", "type not served"]


def operator_of(case, originals):
    """The operator it tests. `_expanded` files hold the functions that define an operator instead of it."""
    original = originals.get(case.name.split("_expanded")[0], case)
    nodes = original.model.graph.node
    operator = nodes[0].op_type if len(nodes) == 1 else "several"
    domain = nodes[0].domain if len(nodes) == 1 else ""
    expanded = " (expanded)" if "_expanded" in case.name else ""
    return (f"{domain}:" if domain else "") + operator + expanded


def check(case):
    """The outcome of the tries, and of which it is."""
    tries = {"inputs": node_tests.run(case)}
    names = [info.name for info in case.model.graph.input]
    if tries["inputs"].kind != "passes" and len(names) > 1:
        tries["constants"] = node_tests.run(case, names[1:])
    for given, outcome in tries.items():
        if outcome.kind == "passes":
            return given, outcome
    rank = lambda outcome: (WORST_FIRST.index(outcome.kind), outcome.reason.count("; "))
    return min(reversed(tries.items()), key=lambda item: rank(item[1]))


def chosen(args):
    """[(operator, case)] in the order of operators."""
    every = node_tests.cases()
    originals = {case.name: case for case in every}
    named = [(operator_of(case, originals), case) for case in every]
    wanted = set(filter(None, args.operators.split(",")))
    unknown = wanted - {operator.removesuffix(" (expanded)") for operator, _ in named}
    if unknown:
        sys.exit(f"check_node_tests.py: no tests of {', '.join(sorted(unknown))}")
    return sorted(
        (
            (operator, case) for operator, case in named
            if (not wanted or operator.removesuffix(" (expanded)") in wanted)
            and (args.expanded or "_expanded" not in case.name)
        ),
        key=lambda item: (item[0], item[1].name),
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--operators", default="", help="a list, separated by commas (default: all)")
    option("--expanded", action="store_true", help="also the files of functions that define operators")
    option("--json", help="also write the results to this file")
    option("--markdown", help="also write a table of operators to this file")
    args = parser.parse_args()
    results, counts = [], collections.defaultdict(collections.Counter)
    todo = chosen(args)
    for number, (operator, case) in enumerate(todo):
        if sys.stderr.isatty():
            print(f"\r{number}/{len(todo)} {operator:40.40}", end="", file=sys.stderr)
        given, outcome = check(case)
        counts[operator][outcome.kind] += 1
        results.append({
            "operator": operator, "test": case.name, "outcome": outcome.kind, "given": given,
            "reason": outcome.reason,
        })
    if sys.stderr.isatty():
        print("\r" + 60 * " " + "\r", end="", file=sys.stderr)
    show(results, counts)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write(table(results))
    bad = sum(of["crashed"] + of["wrong"] for of in counts.values())
    sys.exit(1 if bad else 0)


def why(results):
    """The reasons for what does not pass, each with its number of tests, the node's name left out."""
    reasons = collections.Counter()
    for result in results:
        if result["outcome"] == "type not served":
            reasons["types"] += 1
        elif result["outcome"] != "passes":
            text = re.sub(r"^(\w+) `[^`]*`: ", "", result["reason"].split("; ")[0])
            reasons[re.sub(r"`[^`]*`: ", "", text)[:70].replace("|", " ")] += 1
    return "; ".join(f"{text} ({count})" for text, count in reasons.most_common(5))


def table(results):
    """Operators of which a test passes, then the names of the others."""
    by_operator, others = collections.defaultdict(list), []
    for result in results:
        by_operator[result["operator"]].append(result)
    lines = ["| operator | pass | of | the others |", "|---|---|---|---|"]
    for operator, of in by_operator.items():
        passes = sum(result["outcome"] == "passes" for result in of)
        if passes:
            lines.append(f"| {operator} | {passes} | {len(of)} | {why(of)} |")
        else:
            others.append(f"{operator} ({len(of)})")
    passes = sum(result["outcome"] == "passes" for result in results)
    return (
        f"{passes} of {len(results)} tests pass. Operators of which some do:\n\n"
        + "\n".join(lines)
        + f"\n\nOf these none does: {', '.join(others)}.\n"
    )


def show(results, counts):
    kinds = list(node_tests.KINDS)
    for kind in kinds[1:]:
        found = [result for result in results if result["outcome"] == kind]
        if found:
            print(f"\n{kind}: {node_tests.KINDS[kind]}")
        for result in found:
            constants = " (all but the first input constant)" if result["given"] == "constants" else ""
            print(f"  {result['test']}{constants}: {result['reason']}")
    print(f"\n{'operator':30}" + "".join(f"{kind:>17}" for kind in kinds))
    for operator, of in [*counts.items(), ("all", sum(counts.values(), collections.Counter()))]:
        print(f"{operator:30}" + "".join(f"{of[kind] or '-':>17}" for kind in kinds))
    print(f"{sum(result['outcome'] == 'passes' for result in results)} of {len(results)} pass")


if __name__ == "__main__":
    main()
