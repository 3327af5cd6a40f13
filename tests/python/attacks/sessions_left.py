"""Sessions that are opened and left."""

import asyncio

import numpy as np

from attacks import http1
from attacks.registry import attack

IDLE = ("--session-idle", "3s")


def chunk(model, tensors, name, start=True, end=False):
    flags = {"sequence_id": name, "sequence_start": start, "sequence_end": end}
    return http1.binary(model, tensors, flags)


def token():
    return {"token": ("INT64", (1, 1), np.array([3]).tobytes())}



async def open_sessions(target, total, request):
    """Opens sessions over sixteen connections; `request(number)` is the first chunk of one."""
    numbers = iter(range(total))

    async def client(_):
        reader, writer = await target.open()
        for number in numbers:
            if not target.left():
                break
            status, headers, _ = await http1.exchange(reader, writer, request(number))
            target.count(status)
            if headers.get("connection") == "close":
                reader, writer = await target.open()
        await target.wait()
        writer.close()

    await target.together(16, client)


@attack(clients=16, flags=IDLE, short_seconds=3)
async def sessions_left_idle(target):
    """Ten thousand sessions, of which each has had one chunk."""
    await open_sessions(target, 10_000, lambda number: chunk("next", token(), number + 1))


@attack(clients=16, flags=IDLE, short_seconds=4)
async def sessions_of_huge_states(target):
    """Four thousand sessions whose states are a megabyte each."""
    x = {"x": ("FP32", (1, 1), bytes(4))}
    await open_sessions(target, 4000, lambda number: chunk("hoard", x, number + 1))


@attack(clients=16, flags=IDLE, short_seconds=4, in_short=False)
async def sessions_of_long_names(target):
    """Sessions whose names are a megabyte each."""
    def request(number):
        return chunk("next", token(), f"{number}" + "a" * 2**20)

    await open_sessions(target, 4000, request)


@attack(clients=16, flags=IDLE)
async def sessions_of_odd_names(target):
    """Names with line ends, control characters or nothing in them, which replies repeat in a header."""
    names = ["a\r\nb: c", "\0", "\x7f", "", " ", "ü", "\U0001f980", "\ud800", "a" * 300]
    names += [-1, 0, 2**64, 1.5, 1e300, None, [1]]

    def request(number):
        return chunk("next", token(), names[number % len(names)])

    await open_sessions(target, 10**6, request)


@attack(clients=16, flags=IDLE, in_short=False)
async def sessions_begun_again(target):
    """The same few sessions begun anew, again and again, from many connections."""
    def request(number):
        return chunk("next", {"token": ("INT64", (1, 50), np.full(50, 3).tobytes())}, number % 5 + 1)

    await open_sessions(target, 10**6, request)


@attack(clients=64, flags=IDLE, in_short=False)
async def chunks_of_one_session(target):
    """64 clients send chunks of one session at once."""
    start = chunk("next", {"token": ("INT64", (1, 1), np.array([3]).tobytes())}, 7)
    more = chunk("next", {"token": ("INT64", (1, 500), np.full(500, 3).tobytes())}, 7, start=False)

    async def client(_):
        reader, writer = await target.open()
        target.count((await http1.exchange(reader, writer, start))[0])
        await http1.repeat(target, more)

    await target.together(64, client)


@attack(clients=64, flags=IDLE, in_short=False)
async def chunks_in_a_row(target):
    """Chunks of one session, a thousand in flight on pipelined connections that leave."""
    more = chunk("next", {"token": ("INT64", (1, 50), np.full(50, 3).tobytes())}, "row", start=True)

    async def client(_):
        loop = asyncio.get_running_loop()
        while target.left():
            connection = await target.socket(receive_buffer=4096)
            try:
                await loop.sock_sendall(connection, more * 16)
                await asyncio.sleep(0.05)
            finally:
                connection.close()
            target.count("sent", 16)

    await target.together(64, client)
