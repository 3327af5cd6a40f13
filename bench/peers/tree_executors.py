"""What runs a batch of trees: DyNet with automatic batching, or PyTorch level by level.

An executor has one method, `run(trees) -> h`: h [trees, hidden] float32, the root of each tree.

Each library is imported by its own class, so that a process holds one pool of threads.
"""

import os
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper


@dataclass
class Weights:
    """See `make_tree_lstm.weights`; gates i, o, u of a leaf, i, o, f_l, f_r, u of an inner node."""

    embedding: np.ndarray  # [vocabulary, input]
    w: np.ndarray  # [input, 3 * hidden]
    w_b: np.ndarray  # [3 * hidden]
    u: np.ndarray  # [2 * hidden, 5 * hidden]
    u_b: np.ndarray  # [5 * hidden]

    @property
    def hidden(self):
        return len(self.w_b) // 3


def load(folder):
    """The weights of a directory that `make_tree_lstm.py` wrote (not with `--apart`)."""

    def constants(name):
        graph = onnx.load(os.path.join(folder, name)).graph
        return {of.name: numpy_helper.to_array(of) for of in graph.initializer}

    leaf, inner = constants("leaf.onnx"), constants("internal.onnx")
    return Weights(
        leaf["embedding"], leaf["weights"], leaf["biases"], inner["weights"], inner["biases"]
    )


class Tree:
    """A tree, with what an executor wants to know of it worked out before the clock starts.

    `words` [leaves] are ids. `levels[k]` is an int array [nodes of level k, 4]: the level and the
    position of the left child, then of the right one. Level 0 are the leaves.
    """

    def __init__(self, words, children):
        self.words = words
        self.children = children
        leaves = len(words)
        place = [(0, leaf) for leaf in range(leaves)]
        levels = []
        for left, right in children:
            level = 1 + max(place[left][0], place[right][0])
            if level > len(levels):
                levels.append([])
            of_level = levels[level - 1]
            place.append((level, len(of_level)))
            of_level.append([*place[left], *place[right]])
        self.levels = [np.array(of_level, np.int64) for of_level in levels]
        self.nodes = leaves + len(children)
        self.sizes = np.array([leaves, *map(len, levels)], np.int64)


def reference(weights, tree):
    """The root's h [hidden] of a plain recursion in float64."""
    w, u = weights.w.astype(np.float64), weights.u.astype(np.float64)
    sigmoid = lambda x: 1.0 / (1.0 + np.exp(-x))
    nodes = []
    for word in tree.words:
        i, o, g = np.split(weights.embedding[word] @ w + weights.w_b, 3)
        c = sigmoid(i) * np.tanh(g)
        nodes.append((sigmoid(o) * np.tanh(c), c))
    for left, right in tree.children:
        (h_l, c_l), (h_r, c_r) = nodes[left], nodes[right]
        i, o, f_l, f_r, g = np.split(np.concatenate([h_l, h_r]) @ u + weights.u_b, 5)
        c = sigmoid(i) * np.tanh(g) + sigmoid(f_l) * c_l + sigmoid(f_r) * c_r
        nodes.append((sigmoid(o) * np.tanh(c), c))
    return nodes[-1][0]


class PyTorch:
    """All nodes of a level of all trees in one product, as TensorFlow Fold schedules them."""

    def __init__(self, weights, threads):
        import torch

        self._torch = torch
        torch.set_num_threads(threads)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        self._hidden = weights.hidden
        self._embedding, self._w, self._w_b, self._u, self._u_b = (
            torch.from_numpy(getattr(weights, name).copy())
            for name in ("embedding", "w", "w_b", "u", "u_b")
        )

    def run(self, trees):
        torch, hidden = self._torch, self._hidden
        depth = max(len(tree.sizes) for tree in trees)
        sizes = np.zeros((len(trees), depth), np.int64)
        for number, tree in enumerate(trees):
            sizes[number, : len(tree.sizes)] = tree.sizes
        # Rows of all nodes: level by level, and tree by tree within a level.
        flat = np.concatenate([[0], np.cumsum(sizes.T.ravel())])
        first = flat[:-1].reshape(depth, len(trees)).T
        ends = flat[len(trees) :: len(trees)]
        with torch.inference_mode():
            h = torch.empty(int(flat[-1]), hidden)
            c = torch.empty_like(h)
            words = torch.from_numpy(np.concatenate([tree.words for tree in trees]))
            x = self._embedding.index_select(0, words)
            sums = torch.addmm(self._w_b, x, self._w)
            gates = torch.sigmoid_(sums[:, : 2 * hidden])
            end = int(ends[0])
            torch.mul(gates[:, :hidden], torch.tanh(sums[:, 2 * hidden :]), out=c[:end])
            torch.mul(gates[:, hidden:], torch.tanh(c[:end]), out=h[:end])
            for level in range(1, depth):
                rows = []
                for number, tree in enumerate(trees):
                    if level < len(tree.sizes):
                        of = tree.levels[level - 1]
                        rows.append(first[number][of[:, 0::2]] + of[:, 1::2])
                rows = torch.from_numpy(np.concatenate(rows))
                left, right = rows[:, 0].contiguous(), rows[:, 1].contiguous()
                both = torch.cat([h.index_select(0, left), h.index_select(0, right)], 1)
                sums = torch.addmm(self._u_b, both, self._u)
                gates = torch.sigmoid_(sums[:, : 4 * hidden])
                i, o, f_l, f_r = gates.split(hidden, 1)
                start, end = end, int(ends[level])
                of_level = c[start:end]
                torch.mul(i, torch.tanh(sums[:, 4 * hidden :]), out=of_level)
                of_level.addcmul_(f_l, c.index_select(0, left))
                of_level.addcmul_(f_r, c.index_select(0, right))
                torch.mul(o, torch.tanh(of_level), out=h[start:end])
            last = [len(tree.sizes) - 1 for tree in trees]
            roots = first[np.arange(len(trees)), last]
            return h.index_select(0, torch.from_numpy(roots)).numpy()


class DyNet:
    """One expression a tree; DyNet's agenda batches what it can (`autobatch`). One thread."""

    def __init__(self, weights, threads):
        if threads != 1:
            raise ValueError("DyNet runs in one thread: use --threads 1, and --workers for more")
        import dynet_config

        dynet_config.set(autobatch=1, mem="2048", random_seed=1)
        import dynet

        self._dynet = dynet
        self._hidden = weights.hidden
        model = dynet.ParameterCollection()
        # The parameters live as long as their collection.
        self._collection = model
        self._embedding = model.lookup_parameters_from_numpy(weights.embedding)
        parameter = lambda values: model.parameters_from_numpy(np.ascontiguousarray(values))
        u_l, u_r = np.split(weights.u, 2)
        self._w, self._w_b = parameter(weights.w.T), parameter(weights.w_b)
        self._u_l, self._u_r = parameter(u_l.T), parameter(u_r.T)
        self._u_b = parameter(weights.u_b)

    def run(self, trees):
        dynet, n = self._dynet, self._hidden
        dynet.renew_cg()
        roots = []
        for tree in trees:
            nodes = []
            for word in tree.words:
                sums = dynet.affine_transform([self._w_b, self._w, self._embedding[int(word)]])
                gates = dynet.logistic(dynet.pick_range(sums, 0, 2 * n))
                i, o = dynet.pick_range(gates, 0, n), dynet.pick_range(gates, n, 2 * n)
                c = dynet.cmult(i, dynet.tanh(dynet.pick_range(sums, 2 * n, 3 * n)))
                nodes.append((dynet.cmult(o, dynet.tanh(c)), c))
            for left, right in tree.children:
                (h_l, c_l), (h_r, c_r) = nodes[left], nodes[right]
                sums = dynet.affine_transform([self._u_b, self._u_l, h_l, self._u_r, h_r])
                gates = dynet.logistic(dynet.pick_range(sums, 0, 4 * n))
                i, o, f_l, f_r = (
                    dynet.pick_range(gates, at * n, (at + 1) * n) for at in range(4)
                )
                u = dynet.tanh(dynet.pick_range(sums, 4 * n, 5 * n))
                c = dynet.cmult(i, u) + dynet.cmult(f_l, c_l) + dynet.cmult(f_r, c_r)
                nodes.append((dynet.cmult(o, dynet.tanh(c)), c))
            roots.append(nodes[-1][0])
        dynet.forward(roots)
        return np.stack([root.npvalue() for root in roots])


EXECUTORS = {"dynet": DyNet, "pytorch": PyTorch}
