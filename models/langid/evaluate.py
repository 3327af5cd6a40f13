"""Asks a running server for the language of every line of files, and counts the right answers.

    python3 models/langid/evaluate.py eng=english.txt deu=german.txt

Needs nothing but Python 3. Lines shorter than --shortest characters are left out.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import threading
import urllib.parse


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="LANGUAGE=FILE")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--shortest", type=int, default=40, metavar="CHARACTERS")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--at-least", type=float, metavar="SHARE", help="fail below this share")
    arguments = parser.parse_args()
    address = urllib.parse.urlsplit(arguments.url).netloc
    local = threading.local()

    def language(line):
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(address, timeout=60)
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [line]}
        body = json.dumps({"inputs": [tensor], "outputs": [{"name": "language"}]})
        local.connection.request("POST", "/v2/models/langid/infer", body)
        reply = json.loads(local.connection.getresponse().read())
        return reply["outputs"][0]["data"][0]

    is_good = True
    with concurrent.futures.ThreadPoolExecutor(arguments.connections) as pool:
        for file in arguments.files:
            expected, path = file.split("=", 1)
            with open(path, encoding="utf-8") as lines:
                lines = [line.rstrip("\n") for line in lines]
            lines = [line for line in lines if len(line) >= arguments.shortest]
            answers = collections.Counter(pool.map(language, lines))
            share = answers[expected] / max(1, len(lines))
            others = [answer for answer in answers.most_common(6) if answer[0] != expected]
            print(f"{expected}: {answers[expected]} of {len(lines)} right, {share:.2%}; not: {others}")
            is_good &= arguments.at_least is None or share >= arguments.at_least
    raise SystemExit(0 if is_good else 1)


if __name__ == "__main__":
    main()
