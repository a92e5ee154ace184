"""How much of WordPress's front page could an engine spare that boots? All up to `wp_loaded`, at which WordPress has loaded itself, its
plugins and its theme; what follows answers the request.

A must-use plugin says in a comment behind the page how long both took, at one connection and without an engine that boots.
"""

import re
from dataclasses import dataclass
from statistics import median
from typing import Callable

from pages import PAGES
from server import Refused, Server

PAGE = next(page for page in PAGES if page.app == "wordpress")
PLUGIN = """<?php
add_action('wp_loaded', function () { define('SPARED_LOADED', microtime(true)); }, PHP_INT_MAX);
register_shutdown_function(function () {
    printf('<!-- spared %.0f %.0f -->', 1e6 * (SPARED_LOADED - $_SERVER['REQUEST_TIME_FLOAT']), 1e6 * (microtime(true) - SPARED_LOADED));
});
"""
WARM_UPS = 50
REQUESTS = 100


@dataclass(frozen=True)
class Spared:
    before_us: list[float]
    """From the beginning of the request to `wp_loaded`, the median of each round."""
    after_us: list[float]
    """From there to the end."""

    def at_most(self) -> list[float]:
        """How many times as fast a page of each round is without what comes before."""
        return [(before + after) / after for before, after in zip(self.before_us, self.after_us)]


def install(server: Server) -> None:
    directory = server.root / "wp-content/mu-plugins"
    directory.mkdir(exist_ok=True)
    (directory / "spared.php").write_text(PLUGIN)


def measure(server: Server, rounds: int, say: Callable[[str], None]) -> Spared:
    _round(server, WARM_UPS)
    result = Spared([], [])
    for turn in range(rounds):
        before, after = _round(server, REQUESTS)
        result.before_us.append(before)
        result.after_us.append(after)
        say(f"spared {turn + 1}/{rounds}: {before:.0f} us until wp_loaded, {after:.0f} us after it")
    return result


def _round(server: Server, requests: int) -> tuple[float, float]:
    times = [_times(server.get(PAGE.target)) for _ in range(requests)]
    return median(before for before, _ in times), median(after for _, after in times)


def _times(page: bytes) -> tuple[int, int]:
    found = re.search(rb"<!-- spared (\d+) (\d+) -->$", page)
    if not found:
        raise Refused(f"{PAGE.target} does not end with the times that the plugin writes: {page[-200:]!r}")
    return int(found[1]), int(found[2])
