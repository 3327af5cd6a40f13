"""`generate` and `generate_stream` against the decoder that ships: its words beside PyTorch's
(`g2p.tsv`, written by `models/g2p/evaluate.py --write`)."""

import concurrent.futures
import http.client
import json
import time

import cell_files
import pytest
from conftest import ROOT

WORDS = [
    line.split("\t")
    for line in (ROOT / "tests/python/g2p.tsv").read_text(encoding="utf-8").splitlines()
]


def post(server, path, body):
    """Returns (status, headers, text)."""
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request("POST", f"/v2/models/{path}", json.dumps(body))
    response = connection.getresponse()
    found = response.status, response.headers, response.read().decode()
    connection.close()
    return found


def whole(server, body, model="g2p"):
    status, _, text = post(server, f"{model}/generate", body)
    assert status == 200, text
    return json.loads(text)


def streamed(server, body, model="g2p"):
    status, headers, text = post(server, f"{model}/generate_stream", body)
    assert status == 200 and headers["Content-Type"] == "text/event-stream", text
    events = [event for event in text.split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.mark.parametrize("workers, threads", [(1, 2), (2, 1)])
def test_words_are_pytorchs(serve, workers, threads):
    server = serve("g2p", "--workers", workers, "--threads-per-worker", threads)

    def ask(word):
        events = streamed(server, {"text_input": word})
        return whole(server, {"text_input": word})["text_output"], [
            event["text_output"] for event in events
        ]

    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        answers = list(pool.map(ask, [word for word, _ in WORDS]))
    assert len(WORDS) > 300
    assert [said for said, _ in answers] == [said for _, said in WORDS]
    assert [events for _, events in answers] == [said.split() for _, said in WORDS]
    server.wait_until_unused()


def test_ids_and_parameters(serve):
    server = serve("g2p")
    parameters = {"max_steps": 3, "priority": 1}
    body = {"id": "a", "text_input": "Hello", "parameters": parameters}
    expected = {"id": "a", "model_name": "g2p", "model_version": "1"}
    assert whole(server, body) == expected | {"text_output": "HH EH1 L"}
    assert streamed(server, body) == [
        expected | {"text_output": said} for said in ("HH", "EH1", "L")
    ]
    long = {"text_input": "hello", "parameters": {"force_steps": 200}}
    assert len(streamed(server, long)) == 200


def test_fields_of_other_servers_clients_are_taken(serve):
    server = serve("g2p", "--log-details")
    body = {"text_input": "Hello", "stream": False, "max_tokens": 3, "bad_words": ["x"], "id": None}
    assert whole(server, body)["text_output"] == "HH EH1 L"
    body = {"text_input": "Hello", "parameters": {"max_tokens": 3.0, "temperature": 0.5}}
    assert [event["text_output"] for event in streamed(server, body)] == ["HH", "EH1", "L"]


def test_text_may_come_in_chunks(serve):
    server = serve("langid")
    text = "Tous les êtres humains naissent libres et égaux en dignité et en droits."
    for first, name in ((0, "generate"), (40, "generate_stream")):
        flags = {"sequence_id": "s", "sequence_start": first == 0, "sequence_end": first > 0}
        body = {"text_input": text[first : first + 40], "parameters": flags}
        status, headers, reply = post(server, f"langid/{name}", body)
        assert status == 200 and headers["x-session-id"] == "s" and '"fra"' in reply, reply
    server.wait_until_unused()


def test_a_model_without_steps_is_told_whole(serve):
    server = serve("langid")
    body = {"text_input": "Tous les êtres humains naissent libres et égaux"}
    assert whole(server, body, "langid")["text_output"] == "fra"
    assert [event["text_output"] for event in streamed(server, body, "langid")] == ["fra"]


@pytest.mark.parametrize(
    "path, body, status, expected",
    [
        ("g2p/generate", {"text": "x"}, 400, "`text_input` is missing"),
        ("g2p/generate", {}, 400, "text_input"),
        ("g2p/generate_stream", {"text_input": ""}, 400, "empty sequence"),
        ("g2p/generate", {"text_input": 5}, 400, "text_input"),
        ("g2p/generate", {"text_input": "x", "max_tokens": "few"}, 400, "parameter 'max_tokens'"),
        ("nobody/generate", {"text_input": "x"}, 404, "nobody"),
        ("words/generate", {"text_input": "x"}, 400, "takes no text"),
        ("words/generate_stream", {"text_input": "x"}, 400, "takes no text"),
    ],
)
def test_what_is_wrong_is_said(serve, tmp_path, path, body, status, expected):
    cell_files.translator(tmp_path / "words", 7, 4, 1)
    found, _, text = post(serve(ROOT / "models/g2p", tmp_path / "words"), path, body)
    assert found == status and expected in json.loads(text)["error"]


@pytest.fixture
def slow(tmp_path):
    """A decoder of text whose forced steps take seconds."""
    folder = tmp_path / "slow"
    cell_files.translator(folder, 1201, 1024, 1, scored=False)
    (folder / "words.txt").write_text("".join(f"w{n}\n" for n in range(1201)))
    toml = (folder / "model.toml").read_text().replace("max_length = 400", "max_length = 60000")
    (folder / "model.toml").write_text(
        toml
        + '[inputs.text]\ntensor = "source"\nvocabulary = "words.txt"\nunit = "word"\nunknown = 0\n'
        + '[outputs.words]\ntensor = "token"\nvocabulary = "words.txt"\njoin = " "\n'
    )
    return folder


def test_steps_come_before_the_reply(serve, slow):
    server = serve(slow)
    body = {"text_input": "w1 w2", "parameters": {"force_steps": 60000}}
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request("POST", "/v2/models/slow/generate_stream", json.dumps(body))
    response = connection.getresponse()
    first = response.readline()
    assert first.startswith(b"data: ") and server.in_use()["slots"] == 1
    # Who leaves frees what it held.
    response.close()
    connection.close()
    server.wait_until_unused(5)
    ended = server.metrics()['batchmaker_requests_total{model="slow",outcome="cancelled"}']
    assert ended == 1


def test_a_late_reply_ends_with_an_error(serve, slow):
    server = serve(slow)
    parameters = {"force_steps": 60000, "timeout": 400_000}
    start = time.monotonic()
    events = streamed(server, {"text_input": "w1", "parameters": parameters}, "slow")
    assert time.monotonic() - start < 20
    assert len(events) > 2 and "400000" in events[-1]["error"]
    assert all(event["text_output"].startswith("w") for event in events[:-1])
    server.wait_until_unused(5)
