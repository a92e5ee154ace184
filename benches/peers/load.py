"""One load of wrk on one page of one contestant: how fast, and how much CPU?"""

import os
import re
import subprocess
import time
from dataclasses import dataclass

import processes
from pages import Page
from server import Changed, Refused, Server, Unanswered

TRIES = 10
MICROSECONDS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000}


@dataclass(frozen=True)
class Load:
    requests: int
    per_second: float
    mean_us: float
    """From one answer of a connection to the next, with what wrk itself does in between. Not the mean that wrk prints: where an answer comes
    late, wrk 4.1 counts as well those that would have been asked for meanwhile (stats_correct() in its src/stats.c)."""
    p50_us: float
    """As wrk prints it, with those; so is the p99."""
    p99_us: float
    cpu_us: float
    """CPU of all server processes for one request."""
    php_cpu_us: float
    """The part of it that the processes that run PHP have used; all of it where they are the web server. Without meaning where they end
    with what they have served."""
    wrk_busy: float
    """Part of one CPU that wrk itself used; near 1 it is what is measured."""


def load(server: Server, page: Page, connections: int, seconds: int) -> Load:
    pids = server.pids()
    php = processes.named(pids, server.contestant.php_process) if server.contestant.php_process else pids
    if not php:
        raise Refused(f"{server.contestant.name} has no process called {server.contestant.php_process!r}")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s"]
    command += ["-H", f"Host: {server.app.host}"] * bool(server.app.host) + [server.url(page)]
    before, began = _times(pids, php), time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    # What has ended meanwhile was reaped by a process that is still there, which has its time since.
    now = server.pids()
    cpu, php_cpu, own = (after - start for after, start in zip(_times(now, php), before))
    who = f"{server.contestant.name}, {page.name}, {connections} connections"
    if result.returncode != 0:
        raise Refused(f"{who}: wrk failed: {result.stderr}{result.stdout}")
    requests = int(_find(result.stdout, r"(\d+) requests in"))
    if requests == 0:
        raise Unanswered(f"{who}: no request was answered")
    for sign in ("Socket errors", "Non-2xx"):
        if line := re.search(rf"^.*{sign}.*$", result.stdout, re.MULTILINE):
            raise Refused(f"{who}: {line.group().strip()}")
    if not server.contestant.renews and sorted(now) != sorted(pids):
        raise Changed(f"{who}: the server's processes changed during the load")
    per_second = float(_find(result.stdout, r"Requests/sec:\s+([\d.]+)"))
    return Load(
        requests=requests,
        per_second=per_second,
        mean_us=connections / per_second * 1e6,
        p50_us=_time(result.stdout, r"50%\s+([\d.]+)(\w+)"),
        p99_us=_time(result.stdout, r"99%\s+([\d.]+)(\w+)"),
        cpu_us=cpu / requests * 1e6,
        php_cpu_us=php_cpu / requests * 1e6,
        wrk_busy=own / took,
    )


def load_again(server: Server, page: Page, connections: int, seconds: int) -> Load:
    """As `load`, once more and for longer where nothing was answered. So it is where all of many connections share the CPUs and none is done in
    time, and where a process of nginx keeps the only child for itself: requests to another process wait until another connection comes to the first.
    """
    for more in range(TRIES - 1):
        try:
            return load(server, page, connections, seconds + more)
        except Unanswered:
            pass
    return load(server, page, connections, seconds + TRIES - 1)


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    if not match:
        raise Refused(f"wrk's report has no {pattern!r}:\n{text}")
    return match.group(1)


def _time(text: str, pattern: str) -> float:
    match = re.search(pattern, text)
    if not match or match.group(2) not in MICROSECONDS:
        raise Refused(f"wrk's report has no {pattern!r}:\n{text}")
    return float(match.group(1)) * MICROSECONDS[match.group(2)]


def _times(pids: list[int], php: list[int]) -> tuple[float, float, float]:
    """CPU seconds of the server, of its PHP processes, and of wrk."""
    ours = os.times()
    return processes.cpu_seconds(pids), processes.cpu_seconds(php), ours.children_user + ours.children_system
