"""A TreeLSTM of random weights on all trees of a file, through the server.

    python tests/python/check_trees.py --trees sst/test.txt --hidden 150

Every node's h and c is compared with a recursion in float64 (|a - b| <= 1e-5 * max(1, max|b|)), and
the reply with that to the same tree sent alone, bit for bit. A test that is run by hand: the trees
are not part of the project.
"""

import argparse
import concurrent.futures
import re
import sys
import tempfile
import threading
import time
import zlib

import cell_files
import numpy as np
import tritonclient.http as triton
from conftest import Server

VOCABULARY = 97


def read(line):
    """(words, children) of a labelled tree; inner nodes are numbered as they end."""
    words, inner, open_ = [], [], []
    for token in re.findall(r"\(|\)|[^()\s]+", line, re.ASCII):
        if token == "(":
            open_.append([])
        elif token != ")":
            open_[-1].append(token)
        else:
            node = open_.pop()[1:]
            if isinstance(node[0], str):
                words.append(zlib.crc32(node[0].encode()) % VOCABULARY)
                node = ("leaf", len(words) - 1)
            else:
                inner.append(node)
                node = ("inner", len(inner) - 1)
            if open_:
                open_[-1].append(node)
    number = lambda node: node[1] + (len(words) if node[0] == "inner" else 0)
    return words, [[number(child) for child in node] for node in inner]


def recursion(weights, trees):
    """h and c of all nodes of each tree, float64: nodes of one height are computed together."""
    hidden = weights["w_b"].shape[0] // 3
    states = [np.empty((2, len(words) + len(inner), hidden)) for words, inner in trees]
    by_height = {}
    for tree, (words, inner) in enumerate(trees):
        heights = [0] * len(words)
        for left, right in inner:
            heights.append(1 + max(heights[left], heights[right]))
        for node, height in enumerate(heights):
            by_height.setdefault(height, []).append((tree, node))
    for height in sorted(by_height):
        for start in range(0, len(by_height[height]), 2048):
            nodes = by_height[height][start : start + 2048]
            if height == 0:
                rows = [trees[tree][0][node] for tree, node in nodes]
                sums = weights["embedding"][rows] @ weights["w"] + weights["w_b"]
                i, o, u = np.split(sums, 3, axis=1)
                c = cell_files.sigmoid(i) * np.tanh(u)
            else:
                sides = []
                for side in range(2):
                    children = [
                        (tree, trees[tree][1][node - len(trees[tree][0])][side])
                        for tree, node in nodes
                    ]
                    sides.append(np.array([states[tree][:, child] for tree, child in children]))
                both = np.concatenate([sides[0][:, 0], sides[1][:, 0]], axis=1)
                sums = both @ weights["u"] + weights["u_b"]
                i, o, f_l, f_r, u = np.split(sums, 5, axis=1)
                c = cell_files.sigmoid(i) * np.tanh(u)
                c += cell_files.sigmoid(f_l) * sides[0][:, 1]
                c += cell_files.sigmoid(f_r) * sides[1][:, 1]
            h = cell_files.sigmoid(o) * np.tanh(c)
            for row, (tree, node) in enumerate(nodes):
                states[tree][0, node], states[tree][1, node] = h[row], c[row]
    return states


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trees", required=True, help="a labelled tree a line")
    parser.add_argument("--hidden", type=int, default=150)
    parser.add_argument("--in-flight", type=int, default=64)
    args = parser.parse_args()
    with open(args.trees, encoding="utf-8") as file:
        trees = [read(line) for line in file]
    local = threading.local()

    def infer(url, tree):
        if not hasattr(local, "client"):
            local.client = triton.InferenceServerClient(url, network_timeout=600)
        words, inner = trees[tree]
        token = triton.InferInput("token", [len(words)], "INT64")
        token.set_data_from_numpy(np.array(words, np.int64))
        children = triton.InferInput("children", [len(inner), 2], "INT32")
        children.set_data_from_numpy(np.array(inner, np.int32).reshape(-1, 2))
        result = local.client.infer("tree", [token, children])
        return [result.as_numpy(name) for name in ("nodes", "cells", "root")]

    with tempfile.TemporaryDirectory() as folder:
        weights = cell_files.tree_lstm(f"{folder}/tree", args.hidden, args.hidden, False, 1)
        server = Server(f"{folder}/tree")
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(args.in_flight) as pool:
            replies = list(pool.map(lambda tree: infer(server.http, tree), range(len(trees))))
        took = time.monotonic() - start
        differ = 0
        for tree, reply in enumerate(replies):
            alone = infer(server.http, tree)
            differ += any(a.tobytes() != b.tobytes() for a, b in zip(reply, alone))
        server.stop()
    worst = 0.0
    for (h, c), reply in zip(recursion(weights, trees), replies):
        for found, expected in ((reply[0], h), (reply[1], c), (reply[2], h[-1])):
            scale = max(1.0, np.abs(expected).max())
            worst = max(worst, np.abs(found - expected).max() / scale)
    nodes = sum(len(words) + len(inner) for words, inner in trees)
    deepest = max(len(words) for words, _ in trees)
    print(
        f"hidden {args.hidden}: {len(trees)} trees, {nodes} nodes, up to {deepest} leaves, "
        f"{took:.1f} s with {args.in_flight} in flight: worst difference {worst:.1e}, "
        f"{differ} trees other than alone"
    )
    if not worst <= 1e-5 or differ:
        sys.exit("check_trees: failed")


if __name__ == "__main__":
    main()
