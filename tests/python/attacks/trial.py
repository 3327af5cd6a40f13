"""One attack on one server: what is measured, and which bounds it breaks."""

import asyncio
import dataclasses
import multiprocessing
import time

from attacks import attacker, http1, observer
from attacks.registry import Target
from attacks.server import Server, resident

MB = 10**6
SHORT_COUNTS = (4, 16, 50, 200)
SPAWN = multiprocessing.get_context("spawn")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What must hold while an attack lasts."""

    budget: int = 512 * 2**20
    budget_flag: str = "--max-memory-bytes"
    extra_memory: int = 200 * MB
    live: float = 0.1
    ratio: float = 3.0
    least_p99: float = 0.1
    patience: float = 60.0
    guard: int = 4 * 2**30


@dataclasses.dataclass
class Outcome:
    """What one attack did."""

    name: str
    peak: int = 0
    live: float = 0.0
    metrics: float = 0.0
    right: int = 0
    refused: int = 0
    wrong: int = 0
    hung: int = 0
    alone: float = 0.0
    harmless: float = 0.0
    attacked: float = 0.0
    longest: float = 0.0
    status: object = None
    notes: dict = dataclasses.field(default_factory=dict)
    broken: list = dataclasses.field(default_factory=list)

    def row(self):
        ms = lambda seconds: f"{1000 * seconds:.0f}"
        return [
            self.name, f"{self.peak / MB:.0f}", ms(self.live), ms(self.metrics), str(self.right),
            f"{self.refused}/{self.wrong}/{self.hung}",
            f"{ms(self.alone)}/{ms(self.harmless)}/{ms(self.attacked)}",
            "-" if self.status is None else str(self.status),
            "; ".join(self.broken) or "holds",
        ]


HEADINGS = [
    "attack", "peak MB", "live ms", "metrics ms", "right", "refused/wrong/hung",
    "p99 ms alone/harmless/attack", "exit", "verdict",
]


class Trials:
    """Runs attacks on servers of one binary; in the short form, what is measured beside harmless
    clients is measured once for each number of them."""

    def __init__(self, binary, models, limits, short=False, flags=()):
        self.binary, self.models, self.limits, self.short = binary, models, limits, short
        self.flags, self.references, self.whole = tuple(flags), {}, {}

    def start(self, attack):
        """A server that is warm, the process that watches it, and its resident memory."""
        flags = [*attack.flags, self.limits.budget_flag, attack.budget or self.limits.budget]
        server = Server(
            self.binary, [*self.models, *flags, *self.flags], attack.shell, self.limits.guard
        )
        watch = None
        if not attack.ends:
            watch = Watch(server)
            watch.begin()
            time.sleep(0.5 if self.short else 1.0)
            watch.end(self.limits.patience)
        time.sleep(0.1)
        return server, watch, resident(server.pid)

    def run(self, attack):
        """Runs the attack as often as it says and returns the outcome of the worst run."""
        runs = attack.short_repeats if self.short else attack.repeats
        outcomes = [self.once(attack) for _ in range(runs)]
        worst = max(outcomes, key=lambda of: (len(of.broken), of.notes.get("failed", 0)))
        if runs > 1:
            worst.notes["broken runs"] = f"{sum(1 for of in outcomes if of.broken)} of {runs}"
        return worst

    def once(self, attack):
        """Runs the attack; in the short form on a server that other attacks have left whole."""
        outcome, key = Outcome(attack.name), (attack.flags, attack.shell, attack.budget)
        left = None if attack.ends else self.whole.pop(key, None)
        server, watch, idle = left or self.start(attack)
        kept = False
        try:
            if watch:
                self.refer(attack, server, watch, outcome)
                watch.begin()
            server.memory.peak = resident(server.pid)
            outcome.notes |= self.attack(server, attack.name, None, self.seconds(attack))
            if watch:
                self.note(outcome, watch.end(self.limits.patience))
                ended = server.process.poll() is not None
                if ended:
                    outcome.broken.append("the server ended")
                elif used := server.left_over(self.limits.patience):
                    outcome.broken.append(f"still in use: {used}")
            outcome.peak = server.memory.peak - idle
            self.judge(attack, server, outcome)
            if self.short and watch and not outcome.broken and outcome.peak < 100 * MB:
                self.whole[key], kept = (server, watch, idle), True
            else:
                outcome.status = (server.wait if attack.ends else server.stop)(50)
                outcome.peak = max(outcome.peak, server.memory.peak - idle)
                if outcome.status not in attack.statuses:
                    outcome.broken.append(f"exit status {outcome.status}")
        finally:
            if not kept:
                discard(server, watch)
        return outcome

    def close(self):
        """Stops the servers that attacks have left whole; returns the exit statuses that are wrong."""
        statuses = []
        while self.whole:
            server, watch, _ = self.whole.popitem()[1]
            statuses.append(server.stop(50))
            discard(server, watch)
        return [status for status in statuses if status != 0]

    def seconds(self, attack):
        return attack.short_seconds if self.short else attack.seconds

    def refer(self, attack, server, watch, outcome):
        """Ordinary requests alone and beside harmless clients, of whom the short form has few numbers."""
        count = attack.clients
        if self.short:
            count = max(of for of in SHORT_COUNTS if of <= max(count, SHORT_COUNTS[0]))
        if 0 not in self.references:
            watch.begin()
            time.sleep(1.0 if self.short else 3.0)
            self.references[0] = watch.end(self.limits.patience).p99()
        if count not in self.references:
            watch.begin()
            self.attack(server, attack.name, count, 1.5 if self.short else 5.0)
            self.references[count] = watch.end(self.limits.patience).p99()
            server.left_over(10)
        outcome.alone, outcome.harmless = self.references[0], self.references[count]
        if attack.longest:
            took = lambda: asyncio.run(http1.seconds_of(server.host, server.port, attack.longest))
            outcome.longest = max(took() for _ in range(5))
            outcome.notes["longest task ms"] = round(1000 * outcome.longest)
        if not self.short:
            self.references.clear()

    def attack(self, server, name, count, seconds):
        """Runs an attack, or `count` harmless clients, in a process of its own; returns its notes."""
        target = Target(
            server.host, server.port, server.metrics_port, server.pid, seconds, self.short
        )
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=attacker.main, args=(name, target, count, theirs))
        process.start()
        theirs.close()
        try:
            ours.recv()
            ours.send("go")
            if not ours.poll(seconds + self.limits.patience + 30):
                process.kill()
                return {"failures": ["the attack did not end"]}
            return ours.recv()
        except EOFError:
            return {"failures": ["the attack's process ended"]}
        finally:
            process.join(5)
            if process.is_alive():
                process.kill()

    def note(self, outcome, seen):
        outcome.live = max(seen.live, default=float("inf"))
        outcome.metrics = max(seen.metrics, default=0.0)
        outcome.right, outcome.refused, outcome.wrong = seen.right, seen.refused, seen.wrong
        outcome.hung, outcome.attacked = seen.hung, seen.p99()
        outcome.notes["late ms"] = round(1000 * seen.lag)
        if seen.examples:
            outcome.notes["examples"] = seen.examples
        # What this process was late itself is not the server's.
        if outcome.live > self.limits.live + seen.lag:
            outcome.broken.append(f"live after {1000 * outcome.live:.0f} ms")

    def judge(self, attack, server, outcome):
        limits, broken = self.limits, outcome.broken
        if server.memory.killed:
            broken.append("killed for its memory")
        bound = (attack.budget or limits.budget) + limits.extra_memory
        if outcome.peak > bound:
            broken.append(f"{outcome.peak / MB:.0f} MB above idle")
        if outcome.hung or outcome.wrong:
            broken.append(f"{outcome.wrong} wrong, {outcome.hung} hung")
        if outcome.refused and not attack.refusals:
            broken.append(f"{outcome.refused} refused")
        if not attack.ends:
            if outcome.metrics > max(1.0, 10 * limits.live):
                broken.append(f"metrics after {1000 * outcome.metrics:.0f} ms")
            if not outcome.right and not attack.refusals:
                broken.append("no ordinary request was answered")
            p99 = max(limits.least_p99, limits.ratio * outcome.harmless) + outcome.longest
            if outcome.attacked > p99:
                broken.append(f"p99 of {1000 * outcome.attacked:.0f} ms")
        broken += outcome.notes.get("failures", [])
        if broken and server.errors:
            outcome.notes["log"] = [line.strip()[:300] for line in server.errors[-3:]]


def discard(server, watch):
    """Ends what is left of a server and of the process that watches it."""
    if watch:
        watch.stop()
    server.memory.going = False
    if server.process.poll() is None:
        server.process.kill()
        server.process.wait()


class Watch:
    """The observer's process."""

    def __init__(self, server):
        self.pipe, theirs = SPAWN.Pipe()
        arguments = (server.host, server.port, server.metrics_port, theirs)
        self.process = SPAWN.Process(target=observer.main, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def begin(self):
        self.pipe.send("begin")

    def end(self, patience):
        self.pipe.send(patience)
        return self.pipe.recv()

    def stop(self):
        try:
            self.pipe.send(None)
            self.process.join(2)
        except OSError:
            pass
        if self.process.is_alive():
            self.process.kill()
