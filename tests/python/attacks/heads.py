"""Heads of requests that do not end, or are too large."""

import asyncio

from attacks import http1
from attacks.registry import attack, room

START = b"POST /v2/models/langid/infer HTTP/1.1\r\nHost: a\r\n"


@attack(clients=200)
async def heads_never_ended(target):
    """A thousand heads to which a header is added every second."""
    async def client(_):
        loop, connection = asyncio.get_running_loop(), await target.socket()
        try:
            await loop.sock_sendall(connection, START)
            while target.left():
                await asyncio.sleep(min(1.0, target.left()))
                await loop.sock_sendall(connection, b"a: b\r\n")
                target.count("headers")
        finally:
            connection.close()

    await target.together(room(1000), client)


@attack(clients=200, short_seconds=4)
async def large_heads_never_ended(target):
    """Two thousand heads of 400 kB each, not ended."""
    async def client(_):
        loop, connection = asyncio.get_running_loop(), await target.socket()
        try:
            await loop.sock_sendall(connection, START)
            for _ in range(25):
                await loop.sock_sendall(connection, b"a: " + b"b" * 15_900 + b"\r\n")
            target.count("heads")
            await target.wait()
        finally:
            connection.close()

    await target.together(room(2000), client)


@attack(clients=16, in_short=False)
async def many_headers(target):
    """Requests with ninety headers, and with ten thousand tiny ones."""
    few = [(f"a{n}", n) for n in range(90)]
    requests = [http1.post("/v2/models/langid/infer", b"{}", few), http1.post("/v2", b"", few * 111)]
    await target.together(16, lambda index: http1.repeat(target, requests[index % 2]))


@attack(clients=16, in_short=False)
async def long_paths(target):
    """Paths and model names of 60 kB."""
    long = "a" * 60_000
    requests = [http1.get("/v2/" + long), http1.infer(long, b"{}"), http1.get("/" * 60_000)]
    await target.together(16, lambda index: http1.repeat(target, requests[index % 3]))


@attack(clients=16, in_short=False)
async def odd_verbs(target):
    """Verbs, versions and targets that HTTP knows and the server has no use for."""
    firsts = [
        "OPTIONS * HTTP/1.1", "CONNECT a:1 HTTP/1.1", "TRACE / HTTP/1.1", "GET http://a/v2 HTTP/1.1",
        "GET /v2 HTTP/1.0", "HEAD /v2 HTTP/1.1", "DELETE /v2/models/langid HTTP/1.1",
        "GET /v2/%00%ff/../.. HTTP/1.1", "A" * 5000 + " / HTTP/1.1",
    ]
    upgrade = (
        "\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    )

    async def client(index):
        while target.left():
            reader, writer = await target.open()
            try:
                writer.write((firsts[index % len(firsts)] + upgrade).encode())
                async with asyncio.timeout(0.5):
                    target.count((await reader.readline()).decode("latin-1")[9:12] or "end")
            except (OSError, TimeoutError) as error:
                target.count(type(error).__name__)
            finally:
                writer.close()

    await target.together(16, client)


@attack(clients=16, in_short=False)
async def no_http(target):
    """Bytes that are not HTTP, and the first of a TLS connection."""
    starts = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 5000, b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrubbish" * 9,
    ]

    async def client(index):
        while target.left():
            reader, writer = await target.open()
            try:
                writer.write(starts[index % len(starts)])
                async with asyncio.timeout(0.2):
                    await reader.read(100)
            except (OSError, TimeoutError) as error:
                target.count(type(error).__name__)
            finally:
                writer.close()

    await target.together(16, client)
