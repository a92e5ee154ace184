"""Invented results for tests."""

from alone import Alone
from contestants import CONTESTANTS
from load import Load
from memory import Memory
from replacement import Replacement
from pages import PAGES, Page
from results import Results
from round_trip import RoundTrip
from rounds import Cell
from slow import Beside
from spared import Spared

PAGE = {page.name: page for page in PAGES}
ABOUT = {
    "date": "2000-01-01",
    "machine": "3 CPUs (made up), 5 GiB",
    "kernel": "Linux 0",
    "versions": "nginx 0; PHP 0",
    "revision": "abc",
    "command": "python3 benches/peers",
    "workers": 6,
    "rounds": 3,
    "seconds": 5,
    "slow_seconds": 10,
}


def load(per_second: float, cpu_us: float = 50.0, p99_us: float = 900.0, wrk_busy: float = 0.3) -> Load:
    return Load(1000, per_second, 100.0, 90.0, p99_us, cpu_us, cpu_us / 2, wrk_busy)


def loads(*per_second: float, **more: float) -> list[Load]:
    return [load(one, **more) for one in per_second]


def cell(page: str | Page, connections: int, **who: list[Load]) -> Cell:
    """Names of contestants are those of their keys here: nginx, kept, classic, rewind and so on."""
    names = {"nginx": "nginx + php-fpm", "kept": "nginx + php-fpm, kept", "apache": "Apache mod_php"}
    return Cell(
        PAGE[page] if isinstance(page, str) else page,
        connections,
        {names.get(name, f"Surus {name}"): result for name, result in who.items()},
    )


def everything() -> Results:
    """All pages of all who can serve them, at 1 and 64 connections, and all other parts."""
    cells = [
        Cell(
            page,
            connections,
            {
                contestant.name: loads(900 + 100 * place, 1000 + 150 * place, 1100 + 300 * place)
                for place, contestant in enumerate(CONTESTANTS)
                if page.app not in contestant.not_apps and (contestant.sends_files or not page.static)
            },
        )
        for page in PAGES
        for connections in (1, 64)
    ]
    three = loads(1000, 1100, 1200)
    return Results(
        ABOUT,
        cells,
        {"Surus classic": RoundTrip(three, three, [12.0, 13.0, 14.0])},
        {"Surus classic": Beside(three, three, three)},
        {"Surus rewind": Memory(20.0, 34.0)},
        {"Surus rewind": Replacement([0.2, 0.5, 0.3], [2.3, 3.0, 2.2], 1)},
        {"nginx without PHP": Alone(loads(3000, cpu_us=6.0), [8.5])},
        {"nginx + php-fpm": Spared([12000.0, 10000.0, 11000.0], [10000.0, 10000.0, 10000.0])},
    )
