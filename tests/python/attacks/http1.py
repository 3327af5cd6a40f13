"""HTTP/1.1 as bytes: heads that are written here, replies that are read here."""

import asyncio
import json
import time


def head(path, length=None, method="POST", headers=()):
    """The head of a request; `headers` are pairs."""
    lines = [f"{method} {path} HTTP/1.1", "Host: server"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(path, body, headers=()):
    return head(path, len(body), headers=headers) + body


def get(path):
    return head(path, method="GET")


async def reply(reader):
    """Reads one reply and returns its status, its headers and its body."""
    first = await reader.readuntil(b"\r\n")
    status, headers = int(first.split()[1]), {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, value = line.decode("latin-1").split(":", 1)
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
        return status, headers, b"".join(parts)
    return status, headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def exchange(reader, writer, request):
    """Sends a request and returns the reply."""
    writer.write(request)
    await writer.drain()
    return await reply(reader)


async def seconds_of(host, port, request):
    """The time from a request to its reply, which must be right, on a connection of its own."""
    reader, writer = await asyncio.open_connection(host, port)
    start = time.monotonic()
    status, _, body = await exchange(reader, writer, request)
    took = time.monotonic() - start
    writer.close()
    assert status == 200, body
    return took


async def repeat(target, request, kept=True):
    """Sends one request after another until the target's time is over, and counts the statuses."""
    reader = writer = None
    while target.left():
        try:
            if writer is None:
                reader, writer = await target.open()
            status, headers, _ = await exchange(reader, writer, request)
            target.count(status)
            if not kept or headers.get("connection") == "close":
                writer.close()
                writer = None
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            target.count(type(error).__name__)
            if writer is not None:
                writer.close()
            writer = None
            await asyncio.sleep(0.01)
    if writer is not None:
        writer.close()


def infer(model, body, headers=()):
    """A request for an inference; `body` is JSON to be, or bytes."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return post(f"/v2/models/{model}/infer", body, headers)


def binary(model, tensors, parameters=None, headers=()):
    """A request whose tensors, {name: (datatype, shape, bytes)}, follow its JSON."""
    inputs = [
        {"name": name, "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(data)}}
        for name, (kind, shape, data) in tensors.items()
    ]
    start = json.dumps({"inputs": inputs, "parameters": parameters or {}}).encode()
    body = start + b"".join(data for _, _, data in tensors.values())
    return infer(model, body, [("Inference-Header-Content-Length", len(start)), *headers])
