"""Requests with binary tensors, one after another or many at once. Bodies are made, and replies read, outside of
what is timed."""

import http.client
import json
import sys
import time
import urllib.parse
from pathlib import Path

import tritonclient.http as triton
from tritonclient.utils import np_to_triton_dtype

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sessions import Refused, in_threads  # noqa: E402

PATIENCE_S = 60.0


def body(arrays, **sequence):
    """A request as bytes, and the size of its JSON."""
    tensors = []
    for name, array in arrays.items():
        tensors.append(triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array)
    return triton.InferenceServerClient.generate_request_body(tensors, **sequence)


def outputs(reply):
    """{name: array} of a reply; `Refused` if it is an error."""
    status, raw, headers = reply
    if status != 200:
        try:
            raise Refused(status, json.loads(raw)["error"], headers)
        except (ValueError, KeyError, TypeError):
            raise Refused(status, repr(raw[:200]), headers) from None
    size = headers.get("Inference-Header-Content-Length")
    read = triton.InferenceServerClient.parse_response_body(raw, header_length=int(size) if size else None)
    return {of["name"]: read.as_numpy(of["name"]) for of in read.get_response()["outputs"]}


class Connection:
    """One connection to a model of a server."""

    def __init__(self, server, model):
        self._connection = http.client.HTTPConnection(server.http, timeout=PATIENCE_S)
        self._connection.connect()
        self._path = f"/v2/models/{urllib.parse.quote(model, safe='')}/infer"

    def send(self, request):
        """The reply as it came: status, bytes, headers."""
        raw, size = request
        headers = {} if size is None else {"Inference-Header-Content-Length": str(size)}
        self._connection.request("POST", self._path, raw, headers)
        response = self._connection.getresponse()
        return response.status, response.read(), response.headers

    def close(self):
        self._connection.close()


def at_once(server, model, requests, count):
    """Sends all with `count` in flight; the replies, and the seconds."""
    replies, todo = [None] * len(requests), iter(range(len(requests)))
    connections = [Connection(server, model) for _ in range(count)]

    def work(index):
        for number in todo:
            replies[number] = connections[index].send(requests[number])

    start = time.perf_counter()
    in_threads(count, work)
    seconds = time.perf_counter() - start
    for connection in connections:
        connection.close()
    return replies, seconds
