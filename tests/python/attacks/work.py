"""Requests that are small to send and large to compute."""

import numpy as np

from attacks import http1
from attacks.models import FEATURES
from attacks.registry import attack


def tokens(sequences, steps, model="tokens"):
    """INT64 ids as a list in JSON where they are few bytes so, all of them 3."""
    ids = b"3," * (sequences * steps)
    body = b'{"inputs":[{"name":"token","shape":[%d,%d],"datatype":"INT64","data":[%s]}]}'
    return http1.infer(model, body % (sequences, steps, ids[:-1]))


def floats(model, *shape):
    data = np.full(shape, 0.25, np.float32).tobytes()
    return http1.binary(model, {"x": ("FP32", shape, data)})


async def at_once(target, count, request):
    await target.together(count, lambda _: http1.repeat(target, request))


@attack(clients=1, seconds=20, short_seconds=3)
async def sequences_of_one_step(target):
    """One request of 65,536 sequences of one step each, 131 kB; 16,384 in the short form."""
    await at_once(target, 1, tokens(16_384 if target.short else 65_536, 1))


@attack(clients=4, in_short=False)
async def fewer_sequences_of_one_step(target):
    """Four clients, each with 8,192 sequences of one step."""
    await at_once(target, 4, tokens(8192, 1))


@attack(clients=16, in_short=False)
async def sequences_of_256_steps(target):
    """Sixteen clients with the most rows that a request may have, as 256 sequences of 256 steps."""
    await at_once(target, 16, tokens(256, 256))


@attack(clients=64, in_short=False)
async def longest_sequences(target):
    """64 clients with a sequence of 65,536 steps each."""
    await at_once(target, 64, tokens(1, 65_536))


@attack(clients=32, in_short=False)
async def longest_sequences_with_replies(target):
    """32 clients with 65,536 steps each and 81 numbers in the reply for each step."""
    await at_once(target, 32, tokens(1, 65_536, "next"))


@attack(clients=8, in_short=False)
async def longest_texts(target):
    """Texts of 65,536 characters, and of a million, which are refused."""
    requests = [http1.post("/v2/models/langid/infer", text_of(length)) for length in (65_536, 10**6)]
    await target.together(8, lambda index: http1.repeat(target, requests[index % 2]))


def text_of(length):
    return b'{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["%s"]}]}' % (b"a" * length)


@attack(clients=128)
async def neighbour(target):
    """128 sequences of an LSTM of 512 units in flight, beside the small models."""
    await at_once(target, 128, floats("recurrent", 200, 1, FEATURES))


@attack(clients=1, short_seconds=3)
async def attention_of_many_steps(target):
    """Attention over 49,152 steps, whose scores are 9.7 GB."""
    await at_once(target, 1, floats("attention", 1, 49_152, FEATURES))


@attack(clients=8, short_seconds=3)
async def attention_of_eight(target):
    """Eight clients with attention over 8,192 steps, whose scores are 268 MB each."""
    await at_once(target, 8, floats("attention", 1, 8192, FEATURES))


@attack(clients=1, short_seconds=3, in_short=False, longest=floats("attention", 1, 4096, FEATURES))
async def attention_of_a_batch(target):
    """One request of 16 sequences of 4,096 steps with attention, 67 MB each."""
    await at_once(target, 1, floats("attention", 16, 4096, FEATURES))


@attack(clients=16)
async def attention_of_short_sequences(target):
    """Sixteen clients with attention over 65,536 sequences of one step."""
    await at_once(target, 16, floats("attention", 65_536, 1, FEATURES))


@attack(clients=4)
async def shapes_of_zero_steps(target):
    """Ten million sequences of no step, and no sequence of ten million steps."""
    body = b'{"inputs":[{"name":"token","shape":[%d,%d],"datatype":"INT64","data":[]}]}'
    shapes = [(10**7, 0), (0, 10**7), (2**62, 0), (0, 2**62)]
    requests = [http1.infer("tokens", body % shape) for shape in shapes]
    await target.together(4, lambda index: http1.repeat(target, requests[index]))


@attack(clients=16, in_short=False)
async def decoders_without_end(target):
    """Decoders that are told to run two thousand million steps, and as long as they may."""
    body = b'{"text_input": "%s", "parameters": {"%s": %d}}'
    requests = [
        http1.post("/v2/models/g2p/generate", body % (b"a" * length, kind, steps))
        for length in (1, 256) for kind in (b"force_steps", b"max_steps")
        for steps in (500, 2**31 - 1, 2**62)
    ]
    await target.together(16, lambda index: http1.repeat(target, requests[index % len(requests)]))


@attack(clients=4, in_short=False)
async def many_numbers_of_a_reply(target):
    """Replies of 4,000 rows of 4,096 numbers, 65 MB as bytes, are asked for in both forms and read."""
    data = np.full((1, 4000, 1), 0.123, np.float32).tobytes()
    tensors = {"x": ("FP32", (1, 4000, 1), data)}
    forms = [{}, {"binary_data_output": True}]
    requests = [http1.binary("wide", tensors, form) for form in forms]
    await target.together(4, lambda index: http1.repeat(target, requests[index % 2]))


@attack(clients=16, in_short=False)
async def subnormal_numbers(target):
    """Numbers that are nearly zero, infinite or none, which processors and batches may mind."""
    def request(model, shape, value):
        data = np.full(shape, value, np.float32).tobytes()
        return http1.binary(model, {"x": ("FP32", shape, data)})

    shapes = {"recurrent": (50, 1, FEATURES), "attention": (1, 200, FEATURES), "wide": (1, 20, 1)}
    requests = [
        request(model, shape, value)
        for model, shape in shapes.items() for value in (1e-40, np.nan, np.inf, 3e38)
    ]
    await target.together(16, lambda index: http1.repeat(target, requests[index % len(requests)]))
