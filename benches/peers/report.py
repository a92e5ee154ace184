"""What came out, in Markdown."""

from statistics import median

from contestants import Contestant
from load import Load
from memory import FEW, MORE, Memory
from round_trip import RoundTrip
from rounds import Cell
from slow import Beside

WRK_LIMITS_FROM = 0.95


def head(machine: dict[str, str], command: str, workers: int, rounds: int, seconds: int) -> str:
    return (
        f"{machine['machine']}; {machine['kernel']}; {machine['date']}; Surus at {machine['revision']}; {machine['versions']}. "
        f"wrk runs on the same CPUs. {workers} PHP processes; Apache has one for each connection. "
        f"Medians of {rounds} interleaved rounds of {seconds} s; ratios are of the same round, median (smallest–largest).\n\n"
        f"    {command}\n"
    )


def table(cells: list[Cell], contestants: list[Contestant]) -> str:
    references = [contestant.name for contestant in contestants if contestant.reference]
    lines = [
        "| Page | Connections | | requests/s | p50 | p99 | CPU per request | requests/s to nginx's | CPU to nginx's |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for cell in cells:
        fastest, thriftiest = _best(cell, references)
        for who, loads in cell.loads.items():
            limit = " *" if median(load.wrk_busy for load in loads) >= WRK_LIMITS_FROM else ""
            lines.append(
                f"| {cell.page.title} | {cell.connections} | {who} | {cell.median(who, 'per_second'):,.0f}{limit} "
                f"| {_time(cell.median(who, 'p50_us'))} | {_time(cell.median(who, 'p99_us'))} "
                f"| {cell.median(who, 'cpu_us'):.1f} µs "
                f"| {_ratio(cell, who, fastest, 'per_second')} | {_ratio(cell, who, thriftiest, 'cpu_us')} |"
            )
    if any(line.find(" * |") > 0 for line in lines):
        lines += ["", f"\\* wrk itself was at least {WRK_LIMITS_FROM:.0%} of one CPU: the server could do more."]
    return "\n".join(lines) + "\n"


def goals(cells: list[Cell], contestants: list[Contestant]) -> str:
    """Reported, not asserted."""
    references = [contestant.name for contestant in contestants if contestant.reference]
    lines = []
    for cell in cells:
        fastest, thriftiest = _best(cell, references)
        where = f"{cell.page.title}, {cell.connections} connections"
        for contestant in contestants:
            if contestant.name not in cell.loads:
                continue
            who = contestant.name
            least = _least(contestant, cell)
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
            rewind, worker = (_of_each_round(cell, f"Surus {engine}", "cpu_us") for engine in ("rewind", "worker"))
            more = median(a - b for a, b in zip(rewind, worker))
            lines.append(f"- {_met(more <= 15)}: Surus rewind, {where}: {more:.1f} µs of CPU more than Surus worker; goal at most 15")
    return "\n".join(lines) + "\n"


def _least(contestant: Contestant, cell: Cell) -> float | None:
    """How many times the requests/s of nginx a contestant of ours shall have."""
    hello64 = (cell.page.name, cell.connections) == ("hello", 64)
    if contestant.engine == "classic":
        return 2.5 if hello64 else cell.page.least
    if cell.connections == 64 and (contestant.engine == "rewind" or contestant.engine == "worker" and hello64):
        return cell.page.booted_least
    return None


def memory(sizes: dict[str, Memory]) -> str:
    lines = [
        f"Memory of all processes (PSS) with the Symfony example, after 64 connections have asked for 2 s: {FEW} and {MORE} workers.",
        "",
        f"| | {FEW} workers | {MORE} workers | one more worker |",
        "|---|---:|---:|---:|",
    ]
    for who, size in sizes.items():
        lines.append(f"| {who} | {size.few:.1f} MiB | {size.more:.1f} MiB | {size.worker:.1f} MiB |")
    if size := sizes.get("Surus rewind"):
        lines += ["", f"- {_met(size.worker < 5)}: Surus rewind: {size.worker:.1f} MiB for one more worker; goal below 5"]
    return "\n".join(lines) + "\n"


def round_trips(results: dict[str, RoundTrip]) -> str:
    lines = [
        "One worker, one connection. PHP's own time is the CPU time of its process; added is the round trip less that.",
        "",
        "| | hello, mean | p50 | PHP's own | added to the mean | added to the p50 | a static file of its size |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for who, result in results.items():
        mean, p50 = result.added("mean_us"), result.added("p50_us")
        lines.append(
            f"| {who} | {_median(result.hello, 'mean_us'):.1f} µs | {_median(result.hello, 'p50_us'):.0f} µs "
            f"| {_median(result.hello, 'php_cpu_us'):.1f} µs | {_spread(mean)} µs | {_spread(p50)} µs "
            f"| {_median(result.static, 'mean_us'):.1f} µs |"
        )
    return "\n".join(lines) + "\n"


def slow_scripts(results: dict[str, Beside]) -> str:
    lines = [
        "Two workers, one connection to a fast page, while a slow script has the other worker for as long.",
        "",
        "| p99 of the fast page | alone | beside a sleeping script | beside a busy one, with a CPU less |",
        "|---|---:|---:|---:|",
    ]
    for who, result in results.items():
        p99 = " | ".join(_time(_median(loads, "p99_us")) for loads in (result.alone, result.asleep, result.busy))
        lines.append(f"| {who} | {p99} |")
    return "\n".join(lines) + "\n"


def _best(cell: Cell, references: list[str]) -> tuple[str, str]:
    """The reference that answers most, and the one that uses least: the better one of each is quoted."""
    return cell.best(references, "per_second", max), cell.best(references, "cpu_us", min)


def _of_each_round(cell: Cell, who: str, what: str) -> list[float]:
    return [getattr(load, what) for load in cell.loads[who]]


def _ratio(cell: Cell, who: str, to: str, what: str) -> str:
    if who == to:
        return "1"
    return _spread(cell.ratios(who, to, what), digits=2)


def _spread(values: list[float], digits: int = 1) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def _median(loads: list[Load], what: str) -> float:
    return median(getattr(load, what) for load in loads)


def _time(us: float) -> str:
    return f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.1f} ms"


def _met(met: bool) -> str:
    return "met" if met else "NOT met"
