"""How long is a worker missed that has ended? One worker, which is killed; the page is asked for at the moment at which it is gone.

What the answer takes longer than usual is the time until another worker is ready, with what that does at first: less than this it
cannot be. The kernel tells when a process has ended (pidfd_open), so that what ending takes does not count.
"""

import contextlib
import http.client
import os
import select
import signal
import time
from dataclasses import dataclass
from statistics import median
from typing import Callable

import processes
from pages import Page
from server import Refused, Server

TIMES = 50
SERVED = 20
"""Requests ahead of each end: a worker that ends at once is replaced with a delay, and the first answers are slower."""
PATIENCE = 5
"""Seconds in which there has to be a worker."""


@dataclass(frozen=True)
class Replacement:
    usual_ms: list[float]
    """The answer before each end."""
    replaced_ms: list[float]
    """The answer after each end, of those that came."""
    lost: int
    """Those that did not."""

    @property
    def missed_ms(self) -> float:
        return median(self.replaced_ms) - median(self.usual_ms)


def measure(server: Server, page: Page, say: Callable[[str], None]) -> Replacement:
    usual: list[float] = []
    replaced: list[float] = []
    lost = 0
    for _ in range(TIMES):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
            for _ in range(SERVED):
                before = _ask(connection, server, page)
            _end_worker(server)
            try:
                after = _ask(connection, server, page)
            except (OSError, http.client.HTTPException, Refused):
                lost += 1
                continue
            usual.append(before)
            replaced.append(after)
    result = Replacement(usual, replaced, lost)
    if not replaced:
        raise Refused(f"{server.contestant.name} answered none of {TIMES} requests after the end of a worker")
    say(f"replacement {server.contestant.name}: {result.missed_ms:.1f} ms until another worker is ready")
    return result


def _ask(connection: http.client.HTTPConnection, server: Server, page: Page) -> float:
    """Milliseconds to the whole answer."""
    began = time.monotonic()
    connection.request("GET", page.target, headers={"Host": server.app.host} if server.app.host else {})
    response = connection.getresponse()
    body = response.read()
    took = time.monotonic() - began
    if response.status != 200:
        raise Refused(f"{server.contestant.name} answered {page.target} with {response.status}: {body[:300]!r}")
    return took * 1000


def _worker(server: Server) -> int:
    """The process that runs PHP; php-fpm's parent of it is called the same and comes first."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if workers := processes.named(server.pids(), server.contestant.php_process):
            return workers[-1]
    raise Refused(f"{server.contestant.name} has no process called {server.contestant.php_process!r}")


def _end_worker(server: Server) -> None:
    """Returns when the process has ended, and not before."""
    while True:
        try:
            end = os.pidfd_open(_worker(server))
            break
        except ProcessLookupError:
            continue  # it has just been renewed
    try:
        signal.pidfd_send_signal(end, signal.SIGKILL)
        select.select([end], [], [])
    finally:
        os.close(end)
