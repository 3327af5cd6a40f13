"""The list of attacks, and what an attack is given."""

import asyncio
import dataclasses
import resource
import socket
import time

ATTACKS = {}


@dataclasses.dataclass(frozen=True)
class Attack:
    """An attack and the circumstances under which it runs."""

    name: str
    run: object
    clients: int
    flags: tuple
    seconds: float
    short_seconds: float
    in_short: bool
    repeats: int
    short_repeats: int
    ends: bool
    statuses: tuple
    shell: str
    budget: int | None
    refusals: bool
    longest: bytes | None

    @property
    def idea(self):
        return " ".join((self.run.__doc__ or "").split())


def attack(
    clients=1, flags=(), seconds=10.0, short_seconds=1.5, in_short=True, repeats=1, short_repeats=1,
    ends=False, statuses=(0,), shell="", budget=None, refusals=False, longest=None,
):
    """Adds a coroutine function to the attacks.

    `clients` is the number of harmless clients that the attack is compared with. `flags` go to the
    server, and `shell` stands before the command that starts it. An attack that `ends` the server
    sends the signals itself; `statuses` are the exit statuses that are right. Under `budget` the
    server has so many bytes instead of the run's. With `refusals`, ordinary requests may be answered
    with 503, because the attack takes all of a limit that is stated. `longest` is a request of the
    longest task of the attack, which workers do not interrupt: ordinary requests may wait that long.
    """

    def add(function):
        name = function.__name__
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(
            name, function, clients, tuple(map(str, flags)), seconds, short_seconds, in_short, repeats,
            short_repeats, ends, statuses, shell, budget, refusals, longest,
        )
        return function

    return add


@dataclasses.dataclass
class Target:
    """The server as an attack sees it, and the time that the attack has."""

    host: str
    port: int
    metrics_port: int
    pid: int
    seconds: float
    short: bool
    notes: dict = dataclasses.field(default_factory=dict)
    end: float | None = None

    def left(self):
        """Seconds that are left, counted from the first call."""
        if self.end is None:
            self.end = time.monotonic() + self.seconds
        return max(0.0, self.end - time.monotonic())

    def count(self, what, by=1):
        self.notes[what] = self.notes.get(what, 0) + by

    def fail(self, what):
        """Records something that must not happen."""
        failures = self.notes.setdefault("failures", [])
        if len(failures) < 5:
            failures.append(what)
        self.count("failed")

    async def socket(self, receive_buffer=None, port=None):
        """A connected socket that nothing reads unless the attack does."""
        self.left()
        loop, client = asyncio.get_running_loop(), socket.socket()
        client.setblocking(False)
        if receive_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.sock_connect(client, (self.host, port or self.port))
        except BaseException:
            client.close()
            raise
        return client

    async def open(self):
        """A reader and a writer."""
        self.left()
        return await asyncio.open_connection(self.host, self.port)

    async def wait(self):
        """Returns at the end of the attack."""
        await asyncio.sleep(self.left())

    async def together(self, count, client):
        """Runs so many clients at once until the end; one whose connection breaks begins anew."""
        async def one(index):
            while self.left():
                try:
                    return await client(index)
                except (OSError, EOFError) as error:
                    self.count(type(error).__name__)
                    await asyncio.sleep(0.02)

        self.left()
        tasks = [asyncio.create_task(one(index)) for index in range(count)]
        done, pending = await asyncio.wait(tasks, timeout=self.left())
        for task in pending:
            task.cancel()
        for task in done:
            if not task.cancelled() and task.exception():
                raise task.exception()


def room(wanted):
    """The number of connections, up to `wanted`, that the limit of open files leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wanted, hard - 200)
