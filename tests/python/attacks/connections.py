"""Connections: many, idle, short, and never closed."""

import asyncio
import socket
import struct

from attacks import http1, ordinary
from attacks.registry import attack, room


@attack(clients=8, shell="ulimit -n 1024", short_seconds=3)
async def idle_connections(target):
    """1,100 idle connections where a process may have 1,024 open files."""
    async def client(_):
        connection = await target.socket()
        try:
            await target.wait()
        finally:
            connection.close()

    await target.together(1100, client)


@attack(clients=8, shell="ulimit -n 1024", in_short=False)
async def idle_connections_at_metrics(target):
    """1,100 idle connections to the port of metrics."""
    async def client(_):
        connection = await target.socket(port=target.metrics_port)
        try:
            await target.wait()
        finally:
            connection.close()

    await target.together(1100, client)


@attack(clients=500, short_seconds=3)
async def thousands_of_connections(target):
    """Four thousand connections of one client, each of which sends a request every 20 seconds."""
    request = ordinary.sentence("Alle Menschen sind frei")

    async def client(index):
        reader, writer = await target.open()
        await asyncio.sleep(index % 100 / 100)
        while target.left():
            status, headers, _ = await http1.exchange(reader, writer, request)
            target.count(status)
            await asyncio.sleep(20.0)
        writer.close()

    await target.together(room(4000), client)


@attack(clients=16)
async def connections_opened_and_closed(target):
    """Connections that are opened and closed at once, half of them by a reset."""
    async def client(index):
        while target.left():
            connection = await target.socket()
            if index % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            target.count("opened")

    await target.together(16, client)


@attack(clients=16, in_short=False)
async def requests_and_connections_closed(target):
    """A connection for each request, which is closed before the reply."""
    request = ordinary.sentence("Alle Menschen sind frei") * 3

    async def client(index):
        loop = asyncio.get_running_loop()
        while target.left():
            connection = await target.socket()
            await loop.sock_sendall(connection, request)
            if index % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            target.count("sent")
            await asyncio.sleep(0.005)

    await target.together(16, client)


@attack(clients=32, in_short=False)
async def metrics_asked_for(target):
    """32 clients that do nothing but ask for metrics."""
    target.port = target.metrics_port
    await target.together(32, lambda _: http1.repeat(target, http1.get("/metrics")))


@attack(clients=16, in_short=False)
async def half_closed(target):
    """Clients that close their half of the connection behind the request, each of which counts as one that leaves."""
    async def client(_):
        while target.left():
            reader, writer = await target.open()
            writer.write(ordinary.word("hello"))
            writer.write_eof()
            try:
                status, _, body = await http1.reply(reader)
                target.count(status)
            except (OSError, EOFError) as error:
                target.count(type(error).__name__)
            writer.close()

    await target.together(16, client)


@attack(clients=500, in_short=False)
async def connections_kept_after_a_request(target):
    """Two thousand connections that are idle after one request."""
    async def client(_):
        reader, writer = await target.open()
        await http1.exchange(reader, writer, http1.get("/v2/health/live"))
        await target.wait()
        writer.close()

    await target.together(room(2000), client)


@attack(clients=16, flags=("--max-connections", 24), seconds=10, short_seconds=4, refusals=True)
async def bodies_for_health(target):
    """As many busy connections as there may be, and slow bodies on all that are left for health."""
    async def client(index):
        loop, connection = asyncio.get_running_loop(), await target.socket()
        path = "/v2/models/langid/infer" if index < 24 else "/v2/health/live"
        try:
            await loop.sock_sendall(connection, http1.head(path, 2**16) + b" ")
            target.count("bodies begun")
            while target.left():
                await asyncio.sleep(0.5)
                await loop.sock_sendall(connection, b" " * 1024)
        finally:
            connection.close()

    await target.together(100, client)
