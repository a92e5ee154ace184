"""What does the server add to PHP's own time? One worker, one connection.

PHP's own time is the CPU time that the process that runs PHP has used for a request: its request startup, script and
shutdown, and the two system calls that bring the request and take the answer. What remains of wrk's round trip is the
front, both hand-overs with their wake-ups, the loopback, and wrk. How much of that no server can spare shows a C program that does
nothing else: conf/bare.c.
"""

from dataclasses import dataclass
from typing import Callable

from contestants import Contestant
from load import Load, load
from pages import Page
from server import Server, Unanswered

HELLO = Page("hello", "Hello-world JSON", "/hello.php")
STATIC = Page("tiny", "A static file of the same size", "/hello.json", static=True)
TRIES = 10
BARE = Contestant(
    name="A C program, without HTTP and PHP",
    commands=("sh -c 'cc -O2 -o @dir@/bare @dir@/bare.c && exec @dir@/bare @port@'",),
    conf=("bare.c",),
    php_process="bare worker",
)


@dataclass(frozen=True)
class RoundTrip:
    hello: list[Load]
    static: list[Load]
    """The same without PHP and hand-over, to see what client, loopback and HTTP take."""

    def added(self, what: str) -> list[float]:
        """Of each round: `what` of the round trip less PHP's own time."""
        return [getattr(load, what) - load.php_cpu_us for load in self.hello]


def measure(servers: list[Server], rounds: int, seconds: int, say: Callable[[str], None]) -> dict[str, RoundTrip]:
    """Servers take turns, each round beginning with another."""
    for server in servers:
        _load(server, HELLO, min(2, seconds))  # warm-up
    results = {server.contestant.name: RoundTrip([], []) for server in servers}
    for turn in range(rounds):
        for at in range(len(servers)):
            server = servers[(turn + at) % len(servers)]
            result = results[server.contestant.name]
            result.hello.append(_load(server, HELLO, seconds))
            result.static.append(_load(server, STATIC, seconds))
            say(
                f"round trip {turn + 1}/{rounds} {server.contestant.name}: mean {result.hello[-1].mean_us:.1f} us, "
                f"PHP {result.hello[-1].php_cpu_us:.1f} us, static {result.static[-1].mean_us:.1f} us"
            )
    return results


def _load(server: Server, page: Page, seconds: int) -> Load:
    """Where a process of nginx keeps the only child for itself, requests to another process wait until another connection comes to the first."""
    for _ in range(TRIES - 1):
        try:
            return load(server, page, 1, seconds)
        except Unanswered:
            pass
    return load(server, page, 1, seconds)
