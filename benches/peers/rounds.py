"""Which contestant is faster? All take turns at the same page, and are compared round by round."""

from dataclasses import dataclass
from statistics import median
from typing import Callable

import processes
from load import Load, load_again
from pages import Page
from server import Changed, Refused, Server

WARM_UPS = 5
SETTLE_SECONDS = 20


@dataclass(frozen=True)
class Cell:
    """One page at one number of connections."""

    page: Page
    connections: int
    loads: dict[str, list[Load]]
    """By contestant, one of each round."""

    def median(self, who: str, what: str) -> float:
        return median(getattr(load, what) for load in self.loads[who])

    def ratios(self, who: str, to: str, what: str) -> list[float]:
        """Of each round, so that what slows the machine down for a while slows both down."""
        return [getattr(a, what) / getattr(b, what) for a, b in zip(self.loads[who], self.loads[to])]

    def best(self, candidates: list[str], what: str, best: Callable) -> str:
        return best((who for who in candidates if who in self.loads), key=lambda who: self.median(who, what))


def measure(servers: list[Server], page: Page, connections: int, rounds: int, seconds: int, say: Callable[[str], None]) -> Cell:
    able = [server for server in servers if server.contestant.sends_files or not page.static]
    for server in able:
        _warm_up(server, page, connections, min(2, seconds))
    loads: dict[str, list[Load]] = {server.contestant.name: [] for server in able}
    for turn in range(rounds):
        # Each has every place in the order about equally often.
        first = turn % len(able)
        for server in able[first:] + able[:first]:
            _settle(servers)
            result = load_again(server, page, connections, seconds)
            loads[server.contestant.name].append(result)
            say(
                f"{page.name} c={connections} round {turn + 1}/{rounds} {server.contestant.name}: "
                f"{result.per_second:,.0f}/s, p99 {result.p99_us:,.0f} us, {result.cpu_us:.1f} us CPU, "
                f"wrk {result.wrk_busy:.0%}"
            )
    return Cell(page, connections, loads)


def _settle(servers: list[Server]) -> None:
    """Waits until all servers are idle, so that no measurement includes another server's work."""
    if not processes.settle([pid for server in servers for pid in server.pids()], SETTLE_SECONDS):
        raise Refused(f"after {SETTLE_SECONDS} s without a request the servers are still busy")


def _warm_up(server: Server, page: Page, connections: int, seconds: int) -> None:
    """`rewind` renews its workers when they have learnt from the first requests."""
    for rest in reversed(range(WARM_UPS)):
        try:
            load_again(server, page, connections, seconds)
            return
        except Changed:
            if not rest:
                raise
