"""HTTP/2 in cleartext, as little of it as attacks need: frames, and headers without compression."""

import asyncio
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
FRAME = 16_384


def frame(kind, stream=0, payload=b"", flags=0):
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(value):
    """A string without Huffman coding."""
    value = value.encode()
    length = len(value)
    if length < 127:
        return bytes([length]) + value
    length, parts = length - 127, [127]
    while length >= 128:
        parts.append(length % 128 + 128)
        length //= 128
    return bytes([*parts, length]) + value


def field(name, value):
    """A header that no table remembers."""
    return b"\0" + text(name) + text(value)


def block(path, method="POST", headers=()):
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "server")]
    return b"".join(field(name, str(value)) for name, value in [*fields, *headers])


def headers(stream, path, method="POST", end=False, more=()):
    flags = END_HEADERS | (END_STREAM if end else 0)
    return frame(HEADERS, stream, block(path, method, more), flags)


class Connection:
    """A connection that keeps count of the windows the server gives."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.window, self.first, self.streams = 65_535, 65_535, {}
        self.changed = asyncio.Event()
        self.closed = False
        self.frames = {}
        self.reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, target, window=65_535):
        """`window` is how much of each reply the server may send before it is read."""
        reader, writer = await target.open()
        writer.write(PREFACE + frame(SETTINGS, payload=struct.pack(">HI", 4, window)))
        connection = cls(reader, writer)
        await asyncio.sleep(0.05)
        return connection

    async def _read(self):
        try:
            while True:
                start = await self.reader.readexactly(9)
                length, kind, flags = int.from_bytes(start[:3]), start[3], start[4]
                stream = int.from_bytes(start[5:]) & 0x7FFFFFFF
                payload = await self.reader.readexactly(length)
                self.frames[kind] = self.frames.get(kind, 0) + 1
                if kind == WINDOW:
                    more = int.from_bytes(payload)
                    if stream:
                        self.streams[stream] = self.streams.get(stream, self.first) + more
                    else:
                        self.window += more
                elif kind == SETTINGS and not flags & ACK:
                    for at in range(0, length, 6):
                        key, value = struct.unpack(">HI", payload[at : at + 6])
                        if key == 4:
                            self.first = value
                    self.writer.write(frame(SETTINGS, flags=ACK))
                elif kind == RESET:
                    self.streams[stream] = None
                self.changed.set()
        except (OSError, EOFError):
            self.closed = True
            self.changed.set()

    async def send(self, stream, data, end=False):
        """Sends `data` on a stream, as the windows allow; false if the server will not have it."""
        sent = 0
        while sent < len(data) and not self.closed:
            of_stream = self.streams.get(stream, self.first)
            if of_stream is None:
                return False
            part = min(len(data) - sent, self.window, of_stream, FRAME)
            if part <= 0:
                self.changed.clear()
                await self.changed.wait()
                continue
            self.window -= part
            self.streams[stream] = of_stream - part
            last = END_STREAM if end and sent + part == len(data) else 0
            self.writer.write(frame(DATA, stream, data[sent : sent + part], last))
            await self.writer.drain()
            sent += part
        return not self.closed

    def close(self):
        self.reading.cancel()
        self.writer.close()
