"""Ordinary requests with known answers."""

import asyncio
import json

from attacks import http1
from attacks.registry import attack

SENTENCES = {
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.": "deu",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.": "fra",
    "All human beings are born free and equal in dignity and rights.": "eng",
    "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.": "ita",
    "Alla människor är födda fria och lika i värde och rättigheter.": "swe",
}
WORDS = {
    "phoneme": "F OW1 N IY0 M",
    "hello": "HH EH1 L OW0",
    "batch": "B AE1 CH",
}


def sentence(text):
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}
    return http1.infer("langid", {"inputs": [tensor]})


def word(text, path="generate"):
    return http1.post(f"/v2/models/g2p/{path}", json.dumps({"text_input": text}).encode())


def requests():
    """Pairs of a request and a part of its answer."""
    pairs = [(sentence(text), f'["{language}"]') for text, language in SENTENCES.items()]
    pairs += [(word(text), f'"{phonemes}"') for text, phonemes in WORDS.items()]
    return [(request, answer.encode()) for request, answer in pairs]


@attack(clients=8, in_short=False)
async def harmless(target, count=8):
    """Ordinary clients, who ask again 10 ms after a reply: what attacks are compared with."""
    asked = [request for request, _ in requests()]

    async def client(index):
        reader = writer = None
        turn = index
        while target.left():
            if writer is None:
                reader, writer = await target.open()
            status, headers, _ = await http1.exchange(reader, writer, asked[turn % len(asked)])
            target.count(status)
            if headers.get("connection") == "close":
                writer.close()
                writer = None
            turn += 1
            await asyncio.sleep(0.01)

    await target.together(count, client)
