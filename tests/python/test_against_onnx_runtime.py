"""Random LSTM files through the server, hundreds of requests in flight, against ONNX Runtime.

A reply is within 1e-5 of ONNX Runtime's (|a - b| <= 1e-5 * max(1, max|b|)) and, bit for bit, the
same as the reply to the same request sent alone, with one worker and with two.
"""

import lstm_files
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
    "one_1024": dict(input_size=1024, hidden_size=1024, layers=1, initial_states=True),
    "two_1024": dict(input_size=512, hidden_size=1024, layers=2, head=5),
}
REQUESTS = {64: 150, 256: 60, 1024: 12}
OUTPUTS = ["y", "h_n", "c_n"]
SEED = 20261


def make_requests(name, sizes, count, random):
    """`count` requests as dictionaries of arrays; lengths 1 to 330, batches of 1 to 3."""
    requests = []
    for index in range(count):
        length = [1, 330][index] if index < 2 else int(np.clip(random.lognormal(2.96, 0.66), 1, 330))
        batch = int(random.choice([1, 1, 1, 2, 3]))
        arrays = {"x": random.standard_normal((length, batch, sizes["input_size"]), np.float32)}
        if sizes.get("initial_states"):
            shape = (1, batch, sizes["hidden_size"])
            arrays["h0"] = random.uniform(-1, 1, shape).astype(np.float32)
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


def replies(client, requests):
    """All requests at once."""
    pending = [client.async_infer(name, tensors(arrays)) for name, arrays in requests]
    results = [reply.get_result() for reply in pending]
    return [{key: result.as_numpy(key) for key in OUTPUTS} for result in results]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, sizes) in enumerate(MODELS.items()):
        lstm_files.write(folder / f"{name}.onnx", seed=SEED + seed, **sizes)
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
    return [dict(zip(OUTPUTS, sessions[name].run(OUTPUTS, arrays))) for name, arrays in requests]


@pytest.mark.parametrize("workers", [1, 2])
def test_replies(serve, files, requests, expected, workers):
    server = serve(files, "--workers", workers, "--threads-per-worker", 1)
    client = triton.InferenceServerClient(
        server.http, concurrency=300, network_timeout=300, connection_timeout=300
    )
    together = replies(client, requests)
    worst = 0.0
    for (name, arrays), reply, reference in zip(requests, together, expected):
        for key in OUTPUTS:
            a, b = reply[key], reference[key]
            assert a.shape == b.shape, (name, key)
            worst = max(worst, float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b)))))
    print(f"\n{len(requests)} requests, {workers} workers: worst difference {worst:.2e}")
    assert worst <= 1e-5
    for (name, arrays), reply in zip(requests, together):
        alone = client.infer(name, tensors(arrays))
        for key in OUTPUTS:
            assert alone.as_numpy(key).tobytes() == reply[key].tobytes(), (name, key)
    server.wait_until_unused()
    client.close()
