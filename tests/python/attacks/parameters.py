"""Request parameters at their ends: timeouts, priorities, cancellation."""

import asyncio
import socket
import struct

import numpy as np

from attacks import http1, ordinary
from attacks.registry import attack


def tokens(steps, parameters, model="tokens"):
    return http1.binary(model, {"token": ("INT64", (1, steps), np.full(steps, 3).tobytes())}, parameters)


@attack(clients=32)
async def timeouts_of_a_microsecond(target):
    """Requests that time out at once."""
    request = tokens(500, {"timeout": 1})
    await target.together(32, lambda _: http1.repeat(target, request))


@attack(clients=32, in_short=False)
async def timeouts_of_a_millisecond(target):
    """Requests of 20,000 steps that time out while they run."""
    request = tokens(20_000, {"timeout": 1000})
    await target.together(32, lambda _: http1.repeat(target, request))


@attack(clients=32)
async def timeouts_beyond_time(target):
    """Timeouts past the end of every clock, negative ones, and some that are no numbers."""
    values = [10**13, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, 0.5, 1e300, "soon", None, [], True]
    requests = [tokens(5, {"timeout": value}) for value in values]
    await target.together(32, lambda index: http1.repeat(target, requests[index % len(requests)]))


@attack(clients=32)
async def floods_of_priority(target):
    """32 clients whose requests of priority 1 go before all others."""
    request = tokens(100, {"priority": 1})
    await target.together(32, lambda _: http1.repeat(target, request))


@attack(clients=32, in_short=False)
async def many_priorities(target):
    """A priority of its own for each client, up to the largest number."""
    numbers = (1, 2, 1000, 2**31, 2**32 - 1, 2**62, 2**63)
    requests = [tokens(20, {"priority": number}) for number in numbers]
    await target.together(32, lambda index: http1.repeat(target, requests[index % len(requests)]))


@attack(clients=32)
async def cancelled_requests(target):
    """Long requests that are cancelled by a reset, as fast as they can be sent."""
    request = tokens(5000, {})

    async def client(index):
        loop = asyncio.get_running_loop()
        while target.left():
            connection = await target.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await loop.sock_sendall(connection, request)
            await asyncio.sleep(0.002 * (index % 5))
            connection.close()
            target.count("cancelled")

    await target.together(32, client)


@attack(clients=500, flags=("--max-requests", 256), short_seconds=3, refusals=True)
async def all_requests_that_may_be(target):
    """More requests in flight than are allowed, 256 here."""
    request = tokens(5000, {})
    await target.together(500, lambda _: http1.repeat(target, request))


@attack(clients=64, in_short=False)
async def streams_left(target):
    """Streams of tokens whose clients leave after the first."""
    request = ordinary.word("a" * 250, "generate_stream")

    async def client(_):
        loop = asyncio.get_running_loop()
        while target.left():
            connection = await target.socket()
            await loop.sock_sendall(connection, request)
            await loop.sock_recv(connection, 300)
            connection.close()
            target.count("left")

    await target.together(64, client)
