"""Replies that nobody reads."""

import asyncio

import numpy as np

from attacks import http1, ordinary
from attacks.registry import attack, room

SMALL = 4096


async def send_and_stay(target, requests, count, pipelined=1):
    """So many clients that send requests on one connection each and never read."""
    async def client(index):
        loop, connection = asyncio.get_running_loop(), await target.socket(receive_buffer=SMALL)
        try:
            for turn in range(pipelined):
                await loop.sock_sendall(connection, requests[(index + turn) % len(requests)])
                target.count("sent")
            await target.wait()
        finally:
            connection.close()

    await target.together(count, client)


def wide(rows, binary):
    """A request whose reply has 16 kB for each row, or four times as much in JSON."""
    data = np.full((1, rows, 1), 0.123, np.float32).tobytes()
    request = {"x": ("FP32", (1, rows, 1), data)}
    return http1.binary("wide", request, {"binary_data_output": True} if binary else None)


@attack(clients=64, seconds=15, short_seconds=4, in_short=False)
async def large_replies_unread(target):
    """64 clients ask for 16 MB each, as bytes, and do not read."""
    await send_and_stay(target, [wide(1000, True)], 64)


@attack(clients=64, seconds=15, short_seconds=4)
async def large_replies_unread_in_json(target):
    """The same as JSON."""
    await send_and_stay(target, [wide(1000, False)], 64)


@attack(clients=500, seconds=15, short_seconds=4, in_short=False)
async def middling_replies_unread(target):
    """A thousand clients ask for 1.6 MB each and do not read."""
    await send_and_stay(target, [wide(100, True)], room(1000))


@attack(clients=100, in_short=False)
async def requests_in_a_row_unread(target):
    """A hundred clients send requests one behind the other, never reading."""
    asks = [ordinary.sentence("Alle Menschen"), http1.get("/v2/health/live"), http1.get("/v2")]
    row = b"".join(asks) * 200
    await send_and_stay(target, [row], 100, pipelined=10_000)


@attack(clients=4, in_short=False)
async def metadata_in_a_row(target):
    """Requests for metadata one behind the other, whose replies are read and thrown away."""
    row = http1.get("/v2/models/langid/config") * 500 + http1.get("/v2/models/langid/stats") * 500

    async def client(_):
        reader, writer = await target.open()

        async def throw_away():
            while read := await reader.read(2**20):
                target.count("MB read", len(read) / 1e6)

        task = asyncio.create_task(throw_away())
        while target.left():
            writer.write(row)
            await writer.drain()
        task.cancel()
        writer.close()

    await target.together(4, client)


@attack(clients=200)
async def streams_unread(target):
    """A thousand clients ask for streams of tokens and do not read."""
    await send_and_stay(target, [ordinary.word("a" * 250, "generate_stream")], room(1000), pipelined=20)


@attack(clients=64, seconds=15, in_short=False)
async def replies_read_slowly(target):
    """64 clients read 16 MB at a kilobyte a second."""
    async def client(_):
        loop, connection = asyncio.get_running_loop(), await target.socket(receive_buffer=SMALL)
        try:
            await loop.sock_sendall(connection, wide(1000, True))
            while target.left() and await loop.sock_recv(connection, 1000):
                await asyncio.sleep(1)
        finally:
            connection.close()

    await target.together(64, client)


@attack(clients=64)
async def replies_left(target):
    """Clients that ask for 16 MB, read a part, and leave, again and again."""
    async def client(_):
        loop = asyncio.get_running_loop()
        while target.left():
            connection = await target.socket(receive_buffer=SMALL)
            try:
                await loop.sock_sendall(connection, wide(1000, True))
                await loop.sock_recv(connection, 1000)
                target.count("left")
            except OSError as error:
                target.count(type(error).__name__)
            finally:
                connection.close()

    await target.together(64, client)
