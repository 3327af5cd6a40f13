"""Signals, and standard error that nobody can write to."""

import asyncio
import os
import random
import signal
import time

import numpy as np

from attacks import http1, http2, ordinary
from attacks.registry import attack, room


SEED = 24


def tokens(steps):
    return http1.binary("tokens", {"token": ("INT64", (1, steps), np.full(steps, 3).tobytes())})


async def until_refused(target, count, stopped):
    """Clients, half of them with a connection for each request, who take no reset for an answer.

    A request that was sent in full on a connection that the server had accepted, and on which it had
    not said `Connection: close`, must be answered.
    """
    requests = [request for request, _ in ordinary.requests()] + [tokens(2000)]
    draws = random.Random(SEED)

    async def client(index):
        reader = writer = None
        while True:
            if stopped.is_set() and stopped.at + 10 < asyncio.get_running_loop().time():
                target.fail("the server goes on ten seconds after the signal")
                return
            request = draws.choice(requests)
            fresh = writer is None
            if fresh:
                try:
                    reader, writer = await target.open()
                except ConnectionRefusedError:
                    target.count("refused connections")
                    if stopped.is_set():
                        return
                    target.fail("refused before the end")
                    return
                except OSError as error:
                    target.fail(f"connect: {error!r}")
                    return
            target.count("in flight")
            try:
                writer.write(request)
                await writer.drain()
                async with asyncio.timeout(60):
                    status, headers, _ = await http1.reply(reader)
            except (OSError, EOFError, TimeoutError) as error:
                when = "after" if stopped.is_set() else "before"
                kind = "a fresh" if fresh else "a kept"
                target.fail(f"{type(error).__name__} on {kind} connection {when} the signal")
                target.count(f"{kind} connection: {type(error).__name__}")
                writer.close()
                return
            finally:
                target.count("in flight", -1)
            target.count(status)
            if headers.get("connection") == "close" or index % 2:
                writer.close()
                writer = None
                if headers.get("connection") == "close":
                    target.count("closed by the server")

    return [asyncio.create_task(client(index)) for index in range(count)]


class Stopped(asyncio.Event):
    at = 0.0


async def terminate_under(target, count, signals):
    """Load from `count` clients, then the signals, then what the clients saw. Returns when the signals were sent."""
    stopped = Stopped()
    tasks = await until_refused(target, count, stopped)
    await asyncio.sleep(random.uniform(0.5, 1.0) * (target.seconds + count / 1000))
    target.notes["in flight at the signal"] = target.notes.get("in flight", 0)
    stopped.at = asyncio.get_running_loop().time()
    stopped.set()
    for pause, number in signals:
        await asyncio.sleep(pause)
        try:
            os.kill(target.pid, number)
        except ProcessLookupError:
            break
    sent = time.monotonic()
    await asyncio.wait(tasks, timeout=80)
    for task in tasks:
        if not task.done():
            task.cancel()
            target.fail("a client hangs")
        elif task.exception():
            target.fail(repr(task.exception()))
    return sent


@attack(ends=True, seconds=2, short_seconds=0.7, repeats=20, short_repeats=2)
async def terminated_under_load(target):
    """SIGTERM with up to 2,000 requests in flight: every one is answered."""
    await terminate_under(target, room(300 if target.short else 2000), [(0, signal.SIGTERM)])


@attack(ends=True, seconds=1, short_seconds=0.5, statuses=(0, 1, 130, 143, -15), in_short=False)
async def terminated_twice(target):
    """A second SIGTERM ends the server at once, without a crash."""
    sent = await terminate_under(target, 100, [(0, signal.SIGTERM), (0.05, signal.SIGTERM)])
    # Requests are broken off here.
    target.notes.pop("failures", None)
    while runs(target.pid):
        if time.monotonic() > sent + 3:
            return target.fail("the second signal did not end the server")
        await asyncio.sleep(0.05)


PIPE = "d=$(mktemp -d); mkfifo $d/p; %s <$d/p & exec 2>$d/p; rm -r $d; sleep 0.1"
FULL = PIPE % "sleep 40" + "; head -c 65536 /dev/zero >&2"


@attack(ends=True, seconds=1, short_seconds=0.5, shell="exec 2>&-", in_short=False)
async def closed_standard_error(target):
    """SIGTERM under load where standard error is closed."""
    await terminate_under(target, 50, [(0, signal.SIGTERM)])


@attack(
    ends=True, seconds=1, short_seconds=0.5, shell=PIPE % ":", flags=("--grace", "300ms"),
    statuses=(0, 1),
)
async def standard_error_without_a_reader(target):
    """SIGTERM before requests that outlast the grace; standard error is a pipe whose reader has gone."""
    async def client(_):
        loop, connection = asyncio.get_running_loop(), await target.socket()
        await loop.sock_sendall(connection, tokens(60_000))
        target.count("sent")
        await target.wait()
        return connection

    target.seconds += 1
    clients = asyncio.gather(*(client(index) for index in range(32)))
    await asyncio.sleep(1)
    os.kill(target.pid, signal.SIGTERM)
    for connection in await clients:
        connection.close()


@attack(ends=True, seconds=1, short_seconds=0.5, shell="exec 2>/dev/full")
async def full_standard_error(target):
    """SIGTERM under load where nothing can be written to standard error."""
    await terminate_under(target, 50, [(0, signal.SIGTERM)])


@attack(ends=True, seconds=1, short_seconds=0.5, shell=FULL)
async def unread_standard_error(target):
    """SIGTERM under load where standard error is a full pipe that nobody reads."""
    await terminate_under(target, 50, [(0, signal.SIGTERM)])


@attack(ends=True, seconds=1, short_seconds=0.5, in_short=False)
async def interrupted_under_load(target):
    """SIGINT does what SIGTERM does."""
    await terminate_under(target, 50, [(0, signal.SIGINT)])


@attack(clients=4)
async def hang_ups(target):
    """SIGHUP changes nothing, however many; nor do the signals of broken pipes."""
    while target.left():
        os.kill(target.pid, signal.SIGHUP)
        os.kill(target.pid, signal.SIGPIPE)
        target.count("sent")
        await asyncio.sleep(0.01)


def runs(pid):
    """Whether the process is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rsplit(b")", 1)[1].split()[0] != b"Z"
    except FileNotFoundError:
        return False


async def ended(target, seconds):
    """Waits until the server has ended, for `seconds` at most, and notes the time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while runs(target.pid):
        if loop.time() > began + seconds:
            return target.fail(f"the server goes on {seconds} seconds after the signal")
        await asyncio.sleep(0.05)
    target.notes["seconds to end"] = round(loop.time() - began, 1)


@attack(ends=True, seconds=1, short_seconds=0.5, in_short=False)
async def terminated_beside_idle_connections(target):
    """SIGTERM beside connections that are idle, half a head, half a body, or read nothing."""
    half = http1.head("/v2/models/langid/infer", 1000) + b"{"
    starts = [b"", b"POST /v2/mod", half, http1.get("/v2") * 500]
    loop, held = asyncio.get_running_loop(), []
    for index in range(40):
        connection = await target.socket(receive_buffer=4096)
        await loop.sock_sendall(connection, starts[index % 4])
        held.append(connection)
    await asyncio.sleep(0.5)
    os.kill(target.pid, signal.SIGTERM)
    await ended(target, 60)
    for connection in held:
        connection.close()


@attack(ends=True, seconds=1, short_seconds=0.5)
async def terminated_beside_streams(target):
    """SIGTERM beside HTTP/2 clients that do not take their replies, or say nothing any more."""
    body, held = ordinary.sentence("Alle Menschen sind frei").split(b"\r\n\r\n", 1)[1], []
    for window in (0, 1, 65_535):
        connection = await http2.Connection.open(target, window)
        connection.writer.write(http2.headers(1, "/v2/models/langid/infer"))
        await connection.send(1, body, end=True)
        held.append(connection)
    await asyncio.sleep(0.5)
    os.kill(target.pid, signal.SIGTERM)
    await ended(target, 15)
    for connection in held:
        connection.close()
