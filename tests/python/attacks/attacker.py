"""A process that runs one attack."""

import asyncio
import logging
import os

from attacks import every_attack  # noqa: F401  (fills the list)
from attacks.ordinary import harmless
from attacks.registry import ATTACKS, room


def main(name, target, count, pipe):
    """Runs the attack of that name, or `count` harmless clients, once the pipe says so."""
    os.nice(5)
    room(1)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    work = ATTACKS[name].run(target) if count is None else harmless(target, count)
    pipe.send("ready")
    pipe.recv()
    try:
        asyncio.run(work)
    except Exception as error:
        target.fail(f"the attack itself: {error!r}")
    pipe.send(target.notes)
