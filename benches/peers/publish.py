"""Makes docs/performance.md, its charts and the short table of README.md from what `make bench` has written."""

import argparse
import re
import sys
from pathlib import Path

import chart
import report
from results import Results, read
from rounds import Cell
from server import Refused

REPOSITORY = Path(__file__).resolve().parents[2]
CHARTS = "performance"
HEAD = """# Performance

<!-- `make bench-docs` writes this page. -->
For readers who want numbers: Surus next to other ways of serving PHP, as `make bench` has measured them; [benches/peers](../benches/peers/README.md) says what is
compared, and how each is tuned. *Kept* is nginx with FastCGI connections that stay open.
"""
MARKS = ("<!-- benchmark -->\n", "<!-- /benchmark -->")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benches/peers/publish.py", description=__doc__)
    parser.add_argument("json", type=Path, nargs="?", default=REPOSITORY / "target/peers.json", help="what make bench has written")
    parser.add_argument("docs", type=Path, nargs="?", default=REPOSITORY / "docs", help="where performance.md and performance/ go")
    parser.add_argument("--readme", type=Path, help="where the short table goes, between its marks")
    options = parser.parse_args()
    results = read(options.json)
    # What is refused is refused before anything is written.
    readme = with_short_table(options.readme.read_text(), results) if options.readme else ""
    publish(results, options.docs)
    if options.readme:
        options.readme.write_text(readme)


def publish(results: Results, docs: Path) -> None:
    directory = docs / CHARTS
    directory.mkdir(parents=True, exist_ok=True)
    # One of an earlier run, with a page that is not in this one, would pass for a result.
    for old in directory.glob("*.svg"):
        old.unlink()
    names = list(dict.fromkeys(who for cell in results.cells for who in [*report.REFERENCES, *cell.loads]))
    images: dict[str, list[str]] = {}
    for (group, connections), cells in _charts(results.cells).items():
        title = f"{group}, {report.connections(cells[0])}"
        bars = [chart.Group(cell.page.title, _bars(cell)) for cell in cells]
        name = f"{group.lower().replace(' ', '-')}-{connections}.svg"
        (directory / name).write_text(chart.svg(title, _explanation(cells), bars, names))
        alt = f"Requests/s to nginx + php-fpm's: {title}. The tables below have the numbers."
        images.setdefault(group, []).append(f"![{alt}]({CHARTS}/{name})\n")
    (docs / "performance.md").write_text(HEAD + "\n" + report.markdown(results, images))


def with_short_table(readme: str, results: Results) -> str:
    if not any(report.references(cell) for cell in results.cells):
        raise Refused("no page was measured beside nginx + php-fpm, so that there is no table for the README")
    begin, end = MARKS
    if not re.search(f"{begin}.*{end}", readme, re.DOTALL):
        raise Refused(f"the README has no {begin.strip()} … {end}, where the table goes")
    return re.sub(f"({begin}).*({end})", lambda match: match[1] + report.short(results) + match[2], readme, count=1, flags=re.DOTALL)


def _charts(cells: list[Cell]) -> dict[tuple[str, int], list[Cell]]:
    """By group and connections, most connections first. Without a reference's result, a page has no chart."""
    charts: dict[tuple[str, int], list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: -cell.connections):
        if report.references(cell):
            charts.setdefault((cell.page.group, cell.connections), []).append(cell)
    return charts


def _bars(cell: Cell) -> list[chart.Bar]:
    fastest = cell.best(report.REFERENCES, "per_second", max)
    return [
        chart.Bar(
            who,
            cell.ratios(who, fastest, "per_second"),
            f"{cell.median(who, 'per_second'):,.0f}/s{' *' * report.wrk_limits(cell, who)}",
        )
        for who in cell.loads
    ]


def _explanation(cells: list[Cell]) -> str:
    text = (
        "Requests/s. 1× is the better of the nginx + php-fpm entries, compared round by round. "
        "Bars are medians, thin lines go from the smallest to the largest round."
    )
    if any(report.wrk_limits(cell, who) for cell in cells for who in cell.loads):
        text += " * wrk itself was the limit: the server could do more."
    return text


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"nothing written: {refused}")
