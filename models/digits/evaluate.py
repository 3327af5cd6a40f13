"""The accuracy of `digits` on its held-out images, and the share of them that leaves at each exit, for thresholds of confidence.

    python3 models/digits/evaluate.py                                  # computed with ONNX Runtime
    python3 models/digits/evaluate.py --url http://127.0.0.1:8000      # and compared with a running server

Needs: numpy, onnxruntime, scikit-learn. The server's exits are those of its `model.toml`; each of its replies must be the
probabilities of the exit that the rules name.
"""

import argparse
import http.client
import json
import pathlib
import sys
import urllib.parse

import numpy as np
import onnxruntime
from sklearn.datasets import load_digits

HERE = pathlib.Path(__file__).resolve().parent
HEADS = ["probabilities_1", "probabilities_2", "probabilities"]


def held_out():
    data = load_digits()
    kept = np.arange(len(data.target)) % 3 == 2
    return (data.images[kept, None] / 16).astype(np.float32), data.target[kept]


def exits(outputs, threshold):
    """For each image, the head that answers."""
    early, later = (outputs[name] > threshold for name in ("confidence_1", "confidence_2"))
    return np.where(early, 0, np.where(later, 1, 2))


def answers(outputs, threshold):
    heads = np.stack([outputs[name] for name in HEADS])
    return heads[exits(outputs, threshold), np.arange(heads.shape[1])]


def served(url, images):
    """The probabilities of a running server, one request an image."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)
    replies = []
    for image in images:
        data = image.ravel().tolist()
        tensor = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": data}
        connection.request("POST", "/v2/models/digits/infer", json.dumps({"inputs": [tensor]}))
        reply = json.loads(connection.getresponse().read())
        if "error" in reply:
            sys.exit(reply["error"])
        replies.append(reply["outputs"][0]["data"])
    return np.array(replies, np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a server to compare with")
    parser.add_argument("--threshold", type=float, default=0.9, help="that of the server's model.toml (default 0.9)")
    arguments = parser.parse_args()
    images, labels = held_out()
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"))
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, {"image": images})))
    print("| confidence above | exit 1 | exit 2 | the end | right |\n|---|---|---|---|---|")
    for threshold in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0):
        shares = [f"{np.mean(exits(outputs, threshold) == head):.0%}" for head in range(3)]
        right = np.mean(answers(outputs, threshold).argmax(1) == labels)
        print(f"| {threshold} | {' | '.join(shares)} | {right:.2%} |")
    if arguments.url:
        expected, got = answers(outputs, arguments.threshold), served(arguments.url, images)
        error = np.abs(expected - got).max()
        print(f"{len(images)} replies of {arguments.url}: error at most {error:.1e}")
        if not error < 1e-5:
            sys.exit("the server's replies are others")


if __name__ == "__main__":
    main()
