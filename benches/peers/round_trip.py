"""Measures what the server adds to PHP's own time: one worker, one connection.

PHP's own time is what php-cgi needs for the script without a web server (`php_alone.py`): its request startup, script and shutdown. The
rest of wrk's round trip is the front end, both handovers with their wake-ups, the loopback, and wrk. A C program that does nothing else
shows how much of that any server needs that blocks while it waits: conf/bare.c.
"""

from dataclasses import dataclass
from typing import Callable

import php_alone
from contestants import Contestant
from load import Load, load_again
from pages import Page
from server import Server

HELLO = Page("hello", "Hello-world JSON", "/hello.php")
STATIC = Page("tiny", "A static file of the same size", "/hello.json", static=True)
PHP_TIMES = 20_000
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
    php_us: list[float]
    """PHP's own time in each round; none, where there is no PHP."""

    def added(self, what: str) -> list[float]:
        """Of each round: `what` of the round trip less PHP's own time."""
        return [getattr(load, what) - php_us for load, php_us in zip(self.hello, self.php_us)]


def measure(servers: list[Server], rounds: int, seconds: int, say: Callable[[str], None]) -> dict[str, RoundTrip]:
    """Servers take turns, each round beginning with another."""
    for server in servers:
        load_again(server, HELLO, 1, min(2, seconds))  # warm-up
    results = {server.contestant.name: RoundTrip([], [], []) for server in servers}
    for turn in range(rounds):
        for at in range(len(servers)):
            server = servers[(turn + at) % len(servers)]
            result = results[server.contestant.name]
            result.hello.append(load_again(server, HELLO, 1, seconds))
            result.static.append(load_again(server, STATIC, 1, seconds))
            result.php_us.append(0.0 if server.contestant is BARE else php_alone.cpu_us(server, HELLO, PHP_TIMES))
            say(
                f"round trip {turn + 1}/{rounds} {server.contestant.name}: mean {result.hello[-1].mean_us:.1f} us, "
                f"PHP {result.php_us[-1]:.1f} us, static {result.static[-1].mean_us:.1f} us"
            )
    return results
