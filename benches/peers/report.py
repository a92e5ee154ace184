"""What came out, in Markdown."""

from statistics import median

from contestants import Contestant
from load import Load
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
        for contestant in contestants:
            if not contestant.ours:
                continue
            least = 0.8 if cell.page.static else 2.5 if (cell.page.name, cell.connections) == ("hello", 64) else 1.0
            where = f"{contestant.name}, {cell.page.title}, {cell.connections} connections"
            speed = median(cell.ratios(contestant.name, fastest, "per_second"))
            lines.append(f"- {_met(speed >= least)}: {where}: {speed:.2f} times {fastest}; goal at least {least}")
            if least == 2.5:
                cpu = median(cell.ratios(contestant.name, thriftiest, "cpu_us"))
                lines.append(f"- {_met(cpu <= 0.4)}: {where}: {cpu:.2f} of the CPU of {thriftiest}; goal at most 0.4")
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
