"""Random files of LSTMs, GRUs and RNNs through the server, hundreds of requests in flight, against ONNX Runtime.

A reply is within 1e-5 of ONNX Runtime's (|a - b| <= 1e-5 * max(1, max|b|)) and, bit for bit, the
same as the reply to the same request sent alone, with one worker and with two.
"""

import http.client
import threading

import recurrent_files
import numpy as np
import onnxruntime
import pytest
import tritonclient.http as triton

MODELS = {
    "one_64": dict(input_size=32, hidden_size=64, layers=1),
    "two_64": dict(input_size=48, hidden_size=64, layers=2, head=10),
    "states_64": dict(input_size=20, hidden_size=64, layers=2, initial_states=True, head=7),
    "one_256": dict(input_size=256, hidden_size=256, layers=1, initial_states=True),
    "two_256": dict(input_size=100, hidden_size=256, layers=2, head=33),
    "peepholes_64": dict(
        input_size=30, hidden_size=64, layers=2, initial_states=True, peepholes=True, head=6
    ),
    "gru_64": dict(operator="GRU", input_size=40, hidden_size=64, layers=2, head=9),
    "gru_after_256": dict(
        operator="GRU", input_size=90, hidden_size=256, layers=2, initial_states=True,
        linear_before_reset=1,
    ),
    "gru_before_256": dict(
        operator="GRU", input_size=256, hidden_size=256, layers=1, initial_states=True, head=8
    ),
    "rnn_64": dict(operator="RNN", input_size=24, hidden_size=64, layers=2, initial_states=True),
    "relu_256": dict(
        operator="RNN", input_size=64, hidden_size=256, layers=1, activations=["Relu"]
    ),
    "one_1024": dict(input_size=1024, hidden_size=1024, layers=1, initial_states=True),
    "two_1024": dict(input_size=512, hidden_size=1024, layers=2, head=5),
}
REQUESTS = {64: 100, 256: 60, 1024: 30}
SEED = 20261


def make_requests(name, sizes, count, random):
    """`count` requests as dictionaries of arrays; lengths 1 to 330, batches of 1 to 3."""
    requests = []
    for index in range(count):
        length = [1, 330][index] if index < 2 else int(np.clip(random.lognormal(3.7, 0.9), 1, 330))
        batch = int(random.choice([1, 1, 1, 2, 3]))
        arrays = {"x": random.standard_normal((length, batch, sizes["input_size"]), np.float32)}
        if sizes.get("initial_states"):
            shape = (1, batch, sizes["hidden_size"])
            arrays["h0"] = random.uniform(-1, 1, shape).astype(np.float32)
            if sizes.get("operator", "LSTM") == "LSTM":
                arrays["c0"] = random.uniform(-2, 2, shape).astype(np.float32)
        requests.append((name, arrays))
    return requests


def tensors(arrays):
    made = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made


def body_of(name, arrays):
    """A request's path, body and headers, as `tritonclient` makes them."""
    body, head = triton.InferenceServerClient.generate_request_body(tensors(arrays))
    return f"/v2/models/{name}/infer", body, {"Inference-Header-Content-Length": str(head)}


def send(connection, path, body, headers):
    connection.request("POST", path, body, headers)
    return read_reply(connection)


def read_reply(connection):
    response = connection.getresponse()
    reply = response.read()
    assert response.status == 200, reply
    return reply, int(response.getheader("Inference-Header-Content-Length"))


def arrays_of(reply):
    result = triton.InferenceServerClient.parse_response_body(reply[0], header_length=reply[1])
    names = [output["name"] for output in result.get_response()["outputs"]]
    return {name: result.as_numpy(name) for name in names}


def send_all_but_one_byte(server, path, body, headers):
    """A connection on which the server waits for the last byte of a request."""
    connection = http.client.HTTPConnection(server.http, timeout=300)
    connection.request("POST", path, body[:-1], {**headers, "Content-Length": str(len(body))})
    return connection


def send_together(server, bodies):
    """All requests at once, each on a connection of its own; the replies, and the most that
    were in flight.

    The last bytes of all bodies are sent in one go, so that the requests arrive together however
    slowly this process makes them."""
    most, is_over = [0], threading.Event()

    def watch():
        while not is_over.wait(0.01):
            most[0] = max(most[0], server.in_use()["permits"])

    connections = [send_all_but_one_byte(server, *body) for body in bodies]
    watcher = threading.Thread(target=watch)
    watcher.start()
    for connection, (_, body, _) in zip(connections, bodies):
        connection.send(body[-1:])
    replies = [read_reply(connection) for connection in connections]
    is_over.set()
    watcher.join()
    for connection in connections:
        connection.close()
    return replies, most[0]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, sizes) in enumerate(MODELS.items()):
        recurrent_files.write(folder / f"{name}.onnx", seed=SEED + seed, **sizes)
    return folder


@pytest.fixture(scope="module")
def requests():
    random = np.random.default_rng(SEED)
    made = []
    for name, sizes in MODELS.items():
        made += make_requests(name, sizes, REQUESTS[sizes["hidden_size"]], random)
    random.shuffle(made)
    return made


@pytest.fixture(scope="module")
def expected(files, requests):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    sessions = {
        name: onnxruntime.InferenceSession(files / f"{name}.onnx", options) for name in MODELS
    }
    outputs = {
        name: [output.name for output in session.get_outputs()]
        for name, session in sessions.items()
    }
    return [
        dict(zip(outputs[name], sessions[name].run(None, arrays))) for name, arrays in requests
    ]


@pytest.mark.parametrize("workers, threads", [(1, 1), (2, 1), (1, 2)])
def test_replies(serve, files, requests, expected, workers, threads):
    server = serve(files, "--workers", workers, "--threads-per-worker", threads)
    bodies = [body_of(name, arrays) for name, arrays in requests]
    together, most = send_together(server, bodies)
    together = [arrays_of(reply) for reply in together]
    worst = 0.0
    for (name, arrays), reply, reference in zip(requests, together, expected):
        assert reply.keys() == reference.keys(), name
        for key in reference:
            a, b = reply[key], reference[key]
            assert a.shape == b.shape, (name, key)
            worst = max(worst, float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b)))))
    print(
        f"\n{len(requests)} requests, up to {most:.0f} in flight, {workers} x {threads} threads: "
        f"worst difference {worst:.2e}"
    )
    assert worst <= 1e-5
    assert most >= 100, "not enough requests were in flight to show anything"
    connection = http.client.HTTPConnection(server.http, timeout=300)
    for (name, _), body, reply in zip(requests, bodies, together):
        alone = arrays_of(send(connection, *body))
        for key in reply:
            assert alone[key].tobytes() == reply[key].tobytes(), (name, key)
    connection.close()
    server.wait_until_unused()
