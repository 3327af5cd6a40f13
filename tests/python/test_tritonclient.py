"""`tritonclient.http` as it comes, against the model that ships."""

import numpy as np
import pytest
import tritonclient.http as triton
from conftest import ROOT
from tritonclient.utils import InferenceServerException

TEXTS = {
    "eng": "All human beings are born free and equal in dignity and rights.",
    "deu": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "fra": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
}


def text_input(text, **options):
    tensor = triton.InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode()], dtype=object), **options)
    return tensor


@pytest.fixture
def client(serve):
    server = serve()
    client = triton.InferenceServerClient(server.http, concurrency=50)
    yield client
    client.close()


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("langid")
    metadata = client.get_server_metadata()
    assert metadata["name"] == "batchmaker" and "binary_tensor_data" in metadata["extensions"]
    model = client.get_model_metadata("langid")
    assert model["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [1]}]
    assert [output["name"] for output in model["outputs"]] == ["languages", "language"]
    assert client.get_model_config("langid")["name"] == "langid"
    assert client.get_model_repository_index()[0]["state"] == "READY"
    assert client.get_inference_statistics("langid")["model_stats"][0]["name"] == "langid"


def test_the_configuration_says_how_many_sequences_are_a_batch(serve):
    server = serve(ROOT / "models" / "digits")
    client = triton.InferenceServerClient(server.http)
    config, metadata = client.get_model_config("digits"), client.get_model_metadata("digits")
    assert config["max_batch_size"] >= 64 and "sequence_batching" not in config
    assert config["dynamic_batching"]["preferred_batch_size"] == []
    (image,), (probabilities,) = config["input"], config["output"]
    assert image["format"] == "FORMAT_NONE" and image["optional"] is False
    assert image["dims"] == [1, 8, 8] and metadata["inputs"][0]["shape"] == [-1, 1, 8, 8]
    assert probabilities["dims"] == [10] and metadata["outputs"][0]["shape"] == [-1, 10]
    images = np.random.default_rng(3).random((3, 1, 8, 8), np.float32)
    tensor = triton.InferInput("image", images.shape, "FP32")
    tensor.set_data_from_numpy(images)
    assert client.infer("digits", [tensor]).as_numpy("probabilities").shape == (3, 10)
    best = triton.InferRequestedOutput("probabilities", class_count=2)
    classes = client.infer("digits", [tensor], outputs=[best]).as_numpy("probabilities")
    numbers = client.infer("digits", [tensor]).as_numpy("probabilities")
    order = np.argsort(-numbers, axis=1)[:, :2]
    expected = [[f"{row[at]:.6f}:{at}" for at in of] for row, of in zip(numbers, order)]
    assert [[text.decode() for text in row] for row in classes] == expected
    statistics = client.get_inference_statistics("digits")["model_stats"][0]
    assert statistics["inference_count"] == 3 and statistics["batch_stats"]
    client.close()


def test_what_other_servers_take_is_taken(client):
    """Parameters of other servers; and the text for a model that is not there is Triton's."""
    text = text_input(TEXTS["fra"], binary_data=False)
    parameters = {"content_type": "str", "priority_level": 3}
    reply = client.infer("langid", [text], parameters=parameters, priority=1)
    assert reply.as_numpy("language").item() == b"fra"
    with pytest.raises(InferenceServerException) as raised:
        client.infer("nobody", [text])
    assert "Request for unknown model: 'nobody' is not found" in str(raised.value)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_languages(client, binary, compression):
    for language, text in TEXTS.items():
        reply = client.infer(
            "langid",
            [text_input(text, binary_data=binary)],
            request_id=language,
            outputs=[
                triton.InferRequestedOutput("languages", binary_data=binary),
                triton.InferRequestedOutput("language", binary_data=not binary),
            ],
            request_compression_algorithm=compression,
        )
        assert reply.get_response()["id"] == language
        best = reply.as_numpy("languages")
        label = reply.as_numpy("language").item()
        label = label.decode() if isinstance(label, bytes) else label
        first = best[0].decode() if isinstance(best[0], bytes) else best[0]
        assert label == language and best.shape == (3,)
        assert first.startswith(f"{language}:0.")  or first.startswith(f"{language}:1")


def test_many_at_once_without_named_outputs(client):
    pending = [
        (language, client.async_infer("langid", [text_input(text[: 20 + index % 40])]))
        for index in range(100)
        for language, text in TEXTS.items()
    ]
    right = sum(
        reply.get_result().as_numpy("language").item().decode() == language
        for language, reply in pending
    )
    assert right >= 0.9 * len(pending)


def test_errors_are_readable(client):
    with pytest.raises(InferenceServerException, match="text"):
        client.infer("langid", [text_input("")])
    with pytest.raises(InferenceServerException, match="nobody"):
        client.infer("nobody", [text_input("x")])
