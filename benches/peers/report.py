"""What came out, in Markdown."""

from statistics import median
from typing import Callable

from alone import Alone
from contestants import CONTESTANTS
from load import Load
from memory import FEW, MORE, Memory
from replacement import Replacement
from results import Results
from round_trip import RoundTrip
from rounds import Cell
from slow import Beside
from spared import Spared

REFERENCES = [contestant.name for contestant in CONTESTANTS if contestant.reference]
WRK_LIMITS_FROM = 0.95
SPACE = "\N{NO-BREAK SPACE}"
TO = "–\N{WORD JOINER}"
"""Narrow columns would part numbers from their units, and ranges in two."""
SHORT = (*REFERENCES, "Apache mod_php", "Surus classic", "Surus rewind")
"""The servers of the short table; docs/performance.md has all."""
SHORT_PAGES = ("hello", "symfony-json", "wordpress")
"""Its pages, from nearly nothing to do for PHP to nearly nothing but PHP. If none was measured, all that were."""


def markdown(results: Results, charts: dict[str, list[str]] | None = None) -> str:
    """All but the goals. `charts` are images for groups of pages."""
    parts = [_about(results)]
    for group, pages in _groups(results.cells).items():
        parts += [f"## {group}\n", *(charts or {}).get(group, [])]
        for cells in pages.values():
            parts += [f"### {cells[0].page.title}\n", _table(cells)]
    if results.alone:
        parts += ["## HTTP and PHP alone\n", _alone(results.alone)]
    if results.spared:
        parts += ["## What a boot can spare WordPress\n", _spared(results.spared)]
    if results.round_trips:
        parts += ["## What a server adds\n", _round_trips(results.round_trips)]
    if results.slow_scripts:
        parts += ["## Beside a slow script\n", _slow_scripts(results.slow_scripts, _get(results.about, "slow_seconds"))]
    if results.sizes:
        parts += ["## Memory\n", _memory(results.sizes)]
    if results.replacements:
        parts += ["## When a worker ends\n", _replacements(results.replacements)]
    return "\n".join(parts)


def short(results: Results) -> str:
    """A few lines for a page that is about more than speed."""
    most = max((cell.connections for cell in results.cells), default=0)
    # A page without a reference's result has nothing to compare with.
    cells = [cell for cell in results.cells if cell.connections == most and references(cell)]
    cells = [cell for cell in cells if cell.page.name in SHORT_PAGES] or cells
    names = [who for who in SHORT if any(who in cell.loads for cell in cells)]
    about = results.about
    lines = [
        f"Requests/s and CPU of all server processes per request, with {most} connections. {_get(about, 'machine')}; "
        f"{_get(about, 'kernel')}; {_get(about, 'date')}; {_get(about, 'versions')}; {_get(about, 'workers')} PHP processes; wrk on the "
        f"same CPUs; medians of {_get(about, 'rounds')} rounds of {_get(about, 'seconds')} s, in which all take turns. `sudo make bench`, here: "
        f"`{_get(about, 'command')}`",
        "",
        f"| | {' | '.join(map(_escaped, names))} |",
        f"|---|{'---:|' * len(names)}",
    ]
    for cell in cells:
        fastest = cell.best(names, "per_second", max)
        values = []
        for who in names:
            text = f"{cell.median(who, 'per_second'):,.0f} · {cell.median(who, 'cpu_us'):.0f} µs" if who in cell.loads else ""
            values.append(f"**{text}**" if who == fastest else text)
        lines.append(f"| {_escaped(cell.page.title)} | {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


def goals(results: Results) -> str:
    """Reported, not asserted."""
    lines = []
    for cell in (cell for cell in results.cells if references(cell)):
        fastest, thriftiest = _best(cell)
        where = f"{cell.page.title}, {connections(cell)}"
        for contestant in CONTESTANTS:
            if contestant.name not in cell.loads:
                continue
            who = contestant.name
            least = _least(contestant.engine, cell)
            if least:
                speed = median(cell.ratios(who, fastest, "per_second"))
                lines.append(f"- {_met(speed >= least)}: {who}, {where}: {speed:.2f} times {fastest}; goal at least {least}")
            if (cell.page.name, cell.connections) != ("hello", 64):
                continue
            if contestant.engine == "classic":
                cpu = median(cell.ratios(who, thriftiest, "cpu_us"))
                lines.append(f"- {_met(cpu <= 0.4)}: {who}, {where}: {cpu:.2f} of the CPU of {thriftiest}; goal at most 0.4")
            if contestant.engine in ("worker", "rewind"):
                cpu = cell.median(who, "cpu_us")
                lines.append(f"- {_met(cpu <= 16)}: {who}, {where}: {cpu:.1f} µs of CPU; goal at most 16")
        if cell.page.name == "symfony-json" and cell.connections == 64 and {"Surus worker", "Surus rewind"} <= cell.loads.keys():
            rewind, worker = (_values(cell.loads[f"Surus {engine}"], "cpu_us") for engine in ("rewind", "worker"))
            more = median(a - b for a, b in zip(rewind, worker))
            lines.append(f"- {_met(more <= 15)}: Surus rewind, {where}: {more:.1f} µs of CPU more than Surus worker; goal at most 15")
    if trip := results.round_trips.get("Surus classic"):
        added = median(trip.added("mean_us"))
        lines.append(f"- {_met(added <= 40)}: Surus classic, one worker, one connection: {added:.1f} µs more than PHP's own time; goal at most 40")
    if size := results.sizes.get("Surus rewind"):
        lines.append(f"- {_met(size.worker < 5)}: Surus rewind: {size.worker:.1f} MiB for one more worker; goal below 5")
    if replaced := results.replacements.get("Surus rewind"):
        lines.append(f"- {_met(replaced.missed_ms <= 5)}: Surus rewind: another worker is ready after {replaced.missed_ms:.1f} ms; goal at most 5")
    return "## Goals\n\n" + "\n".join(lines) + "\n" if lines else ""


def connections(cell: Cell) -> str:
    return f"{cell.connections} connection{'s' * (cell.connections != 1)}"


def references(cell: Cell) -> list[str]:
    return [who for who in REFERENCES if who in cell.loads]


def wrk_limits(cell: Cell, who: str) -> bool:
    return cell.median(who, "wrk_busy") >= WRK_LIMITS_FROM


def _about(results: Results) -> str:
    about = results.about
    rows = {
        "Date": _get(about, "date"),
        "Machine": f"{_get(about, 'machine')}; {_get(about, 'kernel')}",
        "Versions": _get(about, "versions"),
        "Revision of Surus": _get(about, "revision"),
        "Command": f"`{_get(about, 'command')}`",
        "PHP processes": f"{_get(about, 'workers')}; Apache has one for each connection",
        "Rounds": f"{_get(about, 'rounds')} of {_get(about, 'seconds')} s, in which all take turns",
    }
    lines = ["| | |", "|---|---|", *(f"| {name} | {_escaped(value)} |" for name, value in rows.items()), ""]
    lines.append(
        "wrk runs on the same CPUs. Values are medians over the rounds; brackets have the smallest and the largest. Ratios are of "
        f"the same round, to the better of {' and '.join(f'`{who}`' for who in REFERENCES)}: for speed the faster, for CPU the one "
        "that uses less. CPU is that of all server processes."
    )
    return "\n".join(lines) + "\n"


def _groups(cells: list[Cell]) -> dict[str, dict[str, list[Cell]]]:
    """By group and page, in the order in which they were measured."""
    groups: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault(cell.page.group, {}).setdefault(cell.page.name, []).append(cell)
    return groups


def _table(cells: list[Cell]) -> str:
    lines = [
        "| | requests/s | to nginx's | CPU per request | to nginx's | p50 | p99 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    limited = False
    for cell in cells:
        fastest, thriftiest = _best(cell)
        # A column less leaves the others the room not to break their values.
        lines.append(f"| **{connections(cell).replace(' ', SPACE)}** | | | | | | |")
        for who, loads in cell.loads.items():
            limited |= wrk_limits(cell, who)
            lines.append(
                f"| {_escaped(who)} | {cell.median(who, 'per_second'):,.0f}{f'{SPACE}*' * wrk_limits(cell, who)} "
                f"| {_ratio(cell, who, fastest, 'per_second')} "
                f"| {cell.median(who, 'cpu_us'):.1f}{SPACE}µs | {_ratio(cell, who, thriftiest, 'cpu_us')} "
                f"| {_time(cell.median(who, 'p50_us'))} | {_spread(_values(loads, 'p99_us'), _time)} |"
            )
    if limited:
        lines += ["", f"\\* wrk itself was at least {WRK_LIMITS_FROM:.0%} of one CPU: the server could do more."]
    return "\n".join(lines) + "\n"


def _least(engine: str, cell: Cell) -> float | None:
    """The goal of an engine of Surus, as a multiple of nginx's requests/s."""
    hello64 = (cell.page.name, cell.connections) == ("hello", 64)
    if engine == "classic":
        return 2.5 if hello64 else cell.page.least
    if cell.connections == 64 and (engine == "rewind" or engine == "worker" and hello64):
        return cell.page.booted_least
    return None


def _alone(results: dict[str, Alone]) -> str:
    lines = [
        "What the hello-world page costs without the other half: nginx gives its bytes by itself; php-cgi runs its script again and again in "
        "one process, request startup and shutdown included, and prints into nothing. The sum is what nobody can fall below who uses this "
        "PHP and this HTTP server; bringing the two together comes on top.",
        "",
        "| | HTTP | PHP | sum |",
        "|---|---:|---:|---:|",
    ]
    for who, result in results.items():
        http, php = _values(result.http, "cpu_us"), result.php_us
        halves = " | ".join(_spread(values, f"{{:.1f}}{SPACE}µs".format) for values in (http, php))
        lines.append(f"| {_escaped(who)} | {halves} | {median(http) + median(php):.1f}{SPACE}µs |")
    return "\n".join(lines) + "\n"


def _spared(results: dict[str, Spared]) -> str:
    lines = [
        "The front page at one connection, by WordPress's own clock: until `wp_loaded` it loads itself, plugins and theme, which an engine may do "
        "ahead; what follows answers the request. Without all of the first, and for nothing, the page would be so many times as fast:",
        "",
        "| | until `wp_loaded` | after it | at most |",
        "|---|---:|---:|---:|",
    ]
    for who, result in results.items():
        halves = " | ".join(_spread([value / 1000 for value in values], f"{{:.1f}}{SPACE}ms".format) for values in (result.before_us, result.after_us))
        lines.append(f"| {_escaped(who)} | {halves} | {_spread(result.at_most(), '{:.2f}'.format)} |")
    return "\n".join(lines) + "\n"


def _memory(sizes: dict[str, Memory]) -> str:
    lines = [
        f"Memory of all processes (PSS) with the Symfony example, after 64 connections have asked for 2 s: {FEW} and {MORE} workers.",
        "",
        f"| | {FEW} workers | {MORE} workers | one more worker |",
        "|---|---:|---:|---:|",
    ]
    for who, size in sizes.items():
        lines.append(f"| {_escaped(who)} | {size.few:.1f} MiB | {size.more:.1f} MiB | {size.worker:.1f} MiB |")
    return "\n".join(lines) + "\n"


def _replacements(results: dict[str, Replacement]) -> str:
    lines = [
        "One worker with the Symfony example is killed, and the JSON route asked for at the moment at which it is gone. What the answer "
        "takes longer than the one before is the time until another worker is ready, and what that does at first.",
        "",
        "| | usual answer | answer after the end | until another is ready | without an answer |",
        "|---|---:|---:|---:|---:|",
    ]
    for who, result in results.items():
        usual, replaced = (_spread(values, f"{{:.1f}}{SPACE}ms".format) for values in (result.usual_ms, result.replaced_ms))
        asked = len(result.replaced_ms) + result.lost
        lines.append(f"| {_escaped(who)} | {usual} | {replaced} | {result.missed_ms:.1f}{SPACE}ms | {result.lost} of {asked} |")
    return "\n".join(lines) + "\n"


def _round_trips(results: dict[str, RoundTrip]) -> str:
    lines = [
        "One worker, one connection; all take turns. PHP's own time is what php-cgi needs for the script by itself, again and again in one process; added is "
        "the round trip less that. The C program answers with fixed bytes, after it has handed the request to another process and back, each of which "
        "sleeps until then: what machine, kernel and wrk take by themselves. Surus looks for a moment before it sleeps, where that has paid lately. "
        "The mean is a second by the requests in it; the p50 is wrk's, which counts those that would have been asked for while an answer is late.",
        "",
        "| | hello, mean | p50 | PHP's own | added to the mean | added to the p50 | CPU per request | a static file of its size |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for who, result in results.items():
        if not (result.hello and result.static):
            continue
        mean, p50 = (_spread(result.added(what), f"{{:.1f}}{SPACE}µs".format) for what in ("mean_us", "p50_us"))
        lines.append(
            f"| {_escaped(who)} | {_median(result.hello, 'mean_us'):.1f}{SPACE}µs | {_median(result.hello, 'p50_us'):.0f}{SPACE}µs "
            f"| {median(result.php_us):.1f}{SPACE}µs | {mean} | {p50} | {_median(result.hello, 'cpu_us'):.1f}{SPACE}µs | {_median(result.static, 'mean_us'):.1f}{SPACE}µs |"
        )
    return "\n".join(lines) + "\n"


def _slow_scripts(results: dict[str, Beside], seconds: str) -> str:
    lines = [
        f"Two workers, one connection to a fast page, while a slow script has the other worker for as long. Rounds are of {seconds} s.",
        "",
        "| p99 of the fast page | alone | beside a sleeping script | beside a busy one, with a CPU less |",
        "|---|---:|---:|---:|",
    ]
    for who, result in results.items():
        p99 = " | ".join(_p99(loads) for loads in (result.alone, result.asleep, result.busy))
        lines.append(f"| {_escaped(who)} | {p99} |")
    return "\n".join(lines) + "\n"


def _p99(loads: list[Load | None]) -> str:
    answered = [load for load in loads if load]
    said = [_spread(_values(answered, "p99_us"), _time)] if answered else []
    if len(answered) < len(loads):
        said.append(f"no answer in {len(loads) - len(answered)} of {len(loads)} rounds")
    return "; ".join(said)


def _best(cell: Cell) -> tuple[str | None, str | None]:
    """The reference that answers most, and the one that uses least: the better one of each is quoted."""
    if not references(cell):
        return None, None
    return cell.best(REFERENCES, "per_second", max), cell.best(REFERENCES, "cpu_us", min)


def _ratio(cell: Cell, who: str, to: str | None, what: str) -> str:
    if to is None:
        return ""
    if who == to:
        return "1"
    return _spread(cell.ratios(who, to, what), "{:.2f}".format)


def _spread(values: list[float], text: Callable[[float], str]) -> str:
    middle, low, high = (text(value) for value in (median(values), min(values), max(values)))
    if len(values) == 1:
        return middle
    number, _, unit = low.partition(SPACE)
    # A unit that both have stands once.
    return f"{middle} ({number if high.endswith(SPACE + unit) else low}{TO}{high})"


def _values(loads: list, what: str) -> list[float]:
    return [getattr(load, what) for load in loads]


def _median(loads: list, what: str) -> float:
    return median(_values(loads, what))


def _time(us: float) -> str:
    return f"{us:.0f}{SPACE}µs" if us < 1000 else f"{us / 1000:.1f}{SPACE}ms"


def _get(about: dict, what: str) -> str:
    return str(about.get(what, "not recorded"))


def _escaped(text: str) -> str:
    """As a cell of a table."""
    return text.replace("|", "\\|")


def _met(met: bool) -> str:
    return "met" if met else "NOT met"
