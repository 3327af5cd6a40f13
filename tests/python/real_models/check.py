"""Real ONNX files out of packages of PyPI, each served and compared with ONNX Runtime: unchanged, or with fixed lengths.

A file fails if the server crashes or does not answer, if a reply is further from ONNX Runtime than 1e-5 (for int8:
from ONNX's reference implementation than 2e-2), each unless its own replies move by more than a quarter of that when
inputs and constants are moved a little, or if its bits depend on what is asked beside it or on how a sequence is cut
into chunks. A file that is refused when it is loaded does not fail. The exit status is 1 if any file fails. Archives
of 550 MB are fetched once.

examples:
  python check.py --markdown docs/models.md
  python check.py --only silero --only nsnet2 --json results.json
"""

import argparse
import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "generated")]

import conftest  # noqa: E402
import one_file  # noqa: E402
import page  # noqa: E402
from catalogue import FILES  # noqa: E402
from packages import FetchError, extract  # noqa: E402
from ratios import ratios  # noqa: E402


def summary(result):
    """What became of a file, on one line."""
    if result["failures"]:
        return "FAILED: " + "; ".join(result["failures"])
    if not result["served"]:
        return f"refused: {result['reason']} ({result['reasons']} in all)"
    return (
        f"error {result['error']:.1e}, ms {result['ms_alone']:.2f} alone, "
        f"{result['ms_at_once']:.2f} with 8 in flight, {result['ms_onnx_runtime']:.2f} ONNX Runtime, "
        f"{result['ms_onnx_runtime_2']:.2f} on two threads; "
        f"batch: {result['batch'] or '-'}; sessions: {result['sessions']}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--server", type=pathlib.Path, default=conftest.BINARY, help="the binary (default: %(default)s)")
    option(
        "--cache", type=pathlib.Path, default=conftest.ROOT / "target/real-models",
        help="the folder of archives (default: %(default)s)",
    )
    option(
        "--only", action="append", default=[], metavar="SUBSTRING",
        help="only files whose `package/path` contains this; repeatable",
    )
    option("--executor", help="what runs programs, as the server's option; bits are not compared then")
    option("--threads", type=int, help="run one worker with this number of threads (default: the server chooses)")
    option("--seed", type=int, default=1, help="of the inputs (default: 1)")
    option("--markdown", type=pathlib.Path, help="write the page to this file")
    option("--json", type=pathlib.Path, help="write all results to this file")
    args = parser.parse_args()
    if not args.server.exists():
        sys.exit(f"check.py: no server '{args.server}'; build one with `cargo build --release`")
    conftest.BINARY = args.server.resolve()
    chosen = [
        entry for entry in FILES
        if not args.only or any(text in f"{entry.package}/{entry.path}" for text in args.only)
    ]
    if not chosen:
        sys.exit(f"check.py: no file contains {' or '.join(args.only)}")
    results = []
    for entry in chosen:
        try:
            path = extract(args.cache.resolve(), entry)
        except FetchError as error:
            sys.exit(f"check.py: {error}")
        results.append(one_file.check(entry, path, args.seed, args.executor, args.threads))
        print(f"{entry.package}/{entry.path}: {summary(results[-1])}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(page.write(results))
    failed, served = sum(bool(of["failures"]) for of in results), sum(of["served"] for of in results)
    for line in ratios(results):
        print(line)
    print(f"files: {len(results)} tried, {served} served, {len(results) - served} not served, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
