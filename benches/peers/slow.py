"""Does a slow script hold up a fast one? Two workers: one is taken for the whole load, the other is free."""

import threading
import time
from dataclasses import dataclass
from typing import Callable

from load import Load, load
from pages import Page
from server import Refused, Server, Unanswered

FAST = Page("hello", "Hello-world JSON", "/hello.php")
LEAD = 0.3
"""Seconds from asking for the slow script to the load, so that a worker has begun it."""


@dataclass(frozen=True)
class Beside:
    alone: list[Load]
    asleep: list[Load | None]
    """Next to a script that waits. None: a round in which the fast one had no response while the slow one ran. With persistent FastCGI
    connections, the other worker may belong to an nginx process that the client is not connected to."""
    busy: list[Load | None]
    """Next to a script that occupies a CPU, which the fast one, the server and wrk then lack."""


def measure(server: Server, rounds: int, seconds: int, say: Callable[[str], None]) -> Beside:
    load(server, FAST, 1, min(2, seconds))  # warm-up
    result = Beside([], [], [])
    for turn in range(rounds):
        result.alone.append(load(server, FAST, 1, seconds))
        result.asleep.append(_beside(server, "sleep", seconds))
        result.busy.append(_beside(server, "busy", seconds))
        p99 = ", ".join(f"{loads[-1].p99_us:.0f}" if loads[-1] else "no answer" for loads in (result.alone, result.asleep, result.busy))
        say(f"slow script {turn + 1}/{rounds} {server.contestant.name}: p99 alone, asleep, busy: {p99} us")
    return result


def _beside(server: Server, how: str, seconds: int) -> Load | None:
    answers: list[bytes] = []
    target = f"/slow.php?seconds={seconds + 2 * LEAD}&how={how}"
    slow = threading.Thread(target=lambda: answers.append(server.get(target, timeout=seconds + 30)))
    slow.start()
    time.sleep(LEAD)
    try:
        result = load(server, FAST, 1, seconds)
    except Unanswered:
        result = None
    early = bool(answers)
    slow.join()
    if early or answers != [b"slow"]:
        raise Refused(f"{server.contestant.name}: the slow script did not last as long as the load")
    return result
