"""A client of sessions: sequences cut into chunks, and what the server says of them."""

import http.client
import json
import threading

import numpy as np

KINDS = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}


class Client:
    """One connection. `infer` raises `Refused` for whatever is no reply."""

    def __init__(self, server, model):
        self._connection = http.client.HTTPConnection(server.http, timeout=60)
        self._path = f"/v2/models/{model}/infer"

    def send(self, tensors, parameters=None, headers=None):
        inputs = [
            {
                "name": name, "datatype": KINDS[array.dtype], "shape": array.shape,
                "data": array.ravel().tolist(),
            }
            for name, array in tensors.items()
        ]
        body = json.dumps({"inputs": inputs, "parameters": parameters or {}})
        self._connection.request("POST", self._path, body, headers or {})

    def receive(self):
        """Returns ({name: array}, headers)."""
        response = self._connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            raise Refused(response.status, body["error"], response.headers)
        outputs = {
            of["name"]: np.array(of["data"], np.float32).reshape(of["shape"])
            for of in body["outputs"]
        }
        return outputs, response.headers

    def infer(self, tensors, parameters=None, headers=None):
        self.send(tensors, parameters, headers)
        return self.receive()[0]

    def chunk(self, name, tensors, start=False, end=False):
        flags = {"sequence_id": name, "sequence_start": start, "sequence_end": end}
        return self.infer(tensors, flags)

    def close(self):
        self._connection.close()


class Refused(Exception):
    def __init__(self, status, error, headers):
        super().__init__(f"{status}: {error}")
        self.status, self.error, self.headers = status, error, headers


def cuts(random, length, longest=20):
    """Ends of chunks of 1 to `longest` rows."""
    ends = [0]
    while ends[-1] < length:
        ends.append(min(length, ends[-1] + int(random.integers(1, longest + 1))))
    return ends


def play(client, name, sequence, once, ends, axis, pause=None):
    """Sends a sequence [..., time, ...] of tensors in chunks that end at `ends`, `once` with the
    first; returns the replies."""
    replies = []
    for first, end in zip(ends, ends[1:]):
        chunk = {
            of: np.take(array, range(first, end), axis) for of, array in sequence.items()
        }
        if first == 0:
            chunk |= once
        replies.append(client.chunk(name, chunk, first == 0, end == ends[-1]))
        if pause is not None:
            pause()
    return replies


def joined(replies, axis, every_step):
    """What a reply to the whole sequence would hold."""
    return {
        name: np.concatenate([reply[name] for reply in replies], axis)
        if name in every_step else replies[-1][name]
        for name in replies[-1]
    }


def in_threads(count, work):
    """Runs work(0), ..., work(count - 1) side by side; the first error is raised."""
    errors = []

    def run(index):
        try:
            work(index)
        except Exception as error:  # noqa: BLE001  (raised below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=[index]) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
