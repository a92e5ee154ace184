"""Draws grouped bars as a self-contained SVG: no script, no font, light or dark as the reader prefers."""

from dataclasses import dataclass
from html import escape
from statistics import median
from textwrap import wrap

WIDTH = 840
MARGIN = 20
TEXT, SMALL, TITLE = 12, 11, 16
BAR, PITCH = 13, 19
HEADING = 26
BETWEEN = 18
LONGEST_NAME = 30
FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
LIGHT = {"back": "#ffffff", "text": "#1f2328", "soft": "#59636e", "grid": "#d1d9e0", "one": "#59636e"}
DARK = {"back": "#0d1117", "text": "#f0f6fc", "soft": "#9198a1", "grid": "#2f353d", "one": "#9198a1"}
COLOURS = (
    ("#57606a", "#9aa3ad"),
    ("#89929b", "#666e78"),
    ("#b98500", "#bb8a1e"),
    ("#0969da", "#388bfd"),
    ("#1b8a94", "#2bb5c0"),
    ("#8250df", "#a371f7"),
    ("#c2458f", "#db61a2"),
    ("#1f883d", "#3fb950"),
    ("#cf4a00", "#f0883e"),
    ("#a3262e", "#f85149"),
    ("#6b4a2b", "#b08a62"),
)
"""For light and for dark; each has three times the contrast of its background."""


@dataclass(frozen=True)
class Bar:
    name: str
    values: list[float]
    """One of each round, as multiples of what is compared with."""
    note: str = ""
    """Stands behind the value."""

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def label(self) -> str:
        return f"{self.value:.2f}×" + (f"  {self.note}" if self.note else "")


@dataclass(frozen=True)
class Group:
    title: str
    bars: list[Bar]


def svg(title: str, explanation: str, groups: list[Group], names: list[str]) -> str:
    """`names` are all that have a colour, so that each has the same one in every chart."""
    bars = [bar for group in groups for bar in group.bars]
    left = MARGIN + max(_width(_shown(bar.name), TEXT) for bar in bars) + 8
    # The longest bar has room for its label behind it.
    right = WIDTH - MARGIN - 8 - max(_width(bar.label, TEXT) for bar in bars)
    most = max(1.0, *(max(bar.values) for bar in bars))
    scale = (right - left) / most

    lines = wrap(explanation, int((WIDTH - 2 * MARGIN) / (0.56 * SMALL)))
    y = MARGIN + TITLE
    body = [_text(MARGIN, y, title, "title")]
    y += 4
    for line in lines:
        y += SMALL + 5
        body.append(_text(MARGIN, y, line, "soft"))
    y += 12
    ticks = _ticks(most, (right - left) / 60)
    for group in groups:
        y += BETWEEN + TEXT
        body.append(_text(MARGIN, y, group.title, "heading"))
        y += HEADING - TEXT
        bottom = y + PITCH * len(group.bars)
        for tick in ticks:
            x = left + tick * scale
            body.append(f'<path class="{"one" if tick == 1 else "grid"}" d="M{x:.1f} {y}V{bottom}"/>')
        for bar in group.bars:
            body += _bar(bar, left, y + (PITCH - BAR) / 2, scale, names.index(bar.name) % len(COLOURS))
            y += PITCH
        # The scale is repeated under each group.
        y += SMALL + 3
        for tick in ticks:
            body.append(_text(left + tick * scale, y, f"{tick:g}×", "soft middle"))
    height = y + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            'role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(described(groups))}</desc>',
            f"<style>\n{_style({names.index(bar.name) % len(COLOURS) for bar in bars})}\n</style>",
            f'<rect class="back" width="{WIDTH}" height="{height}"/>',
            *body,
            "</svg>\n",
        ]
    )


def described(groups: list[Group]) -> str:
    """The chart in words, for screen readers."""
    return " ".join(f"{group.title}: {', '.join(f'{bar.name} {bar.value:.2f}' for bar in group.bars)}." for group in groups)


def _bar(bar: Bar, left: float, top: float, scale: float, colour: int) -> list[str]:
    end = left + bar.value * scale
    low, high = (left + value * scale for value in (min(bar.values), max(bar.values)))
    middle = top + BAR / 2
    baseline = middle + 0.36 * TEXT
    out = [
        _text(left - 8, baseline, _shown(bar.name), "end"),
        f'<rect class="c{colour}" x="{left:.1f}" y="{top:.1f}" width="{end - left:.1f}" height="{BAR}"/>',
    ]
    if high > low:
        out.append(
            f'<path class="spread" d="M{low:.1f} {middle:.1f}H{high:.1f}'
            f'M{low:.1f} {middle - 3:.1f}v6M{high:.1f} {middle - 3:.1f}v6"/>'
        )
    out.append(_text(max(end, high) + 8, baseline, bar.label, "value"))
    return out


def _style(used: set[int]) -> str:
    def colours(dark: bool) -> str:
        base = DARK if dark else LIGHT
        rules = [
            f".back{{fill:{base['back']}}}",
            f"text{{fill:{base['text']}}}",
            f".soft{{fill:{base['soft']}}}",
            # The lines of the scale stop around it.
            f".value{{stroke:{base['back']};stroke-width:4px;paint-order:stroke}}",
            f".grid{{stroke:{base['grid']}}}",
            f".one{{stroke:{base['one']}}}",
            f".spread{{stroke:{base['text']}}}",
            *(f".c{number}{{fill:{COLOURS[number][dark]}}}" for number in sorted(used)),
        ]
        return "\n".join(rules)

    return "\n".join(
        [
            f"text{{font:{TEXT}px {FONT};white-space:pre}}",
            f".title{{font-size:{TITLE}px;font-weight:600}}",
            ".heading{font-weight:600}",
            f".soft{{font-size:{SMALL}px}}",
            ".end{text-anchor:end}",
            ".middle{text-anchor:middle}",
            ".grid,.one,.spread{fill:none}",
            colours(dark=False),
            "@media (prefers-color-scheme:dark){",
            colours(dark=True),
            "}",
        ]
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _ticks(most: float, at_most: float) -> list[float]:
    """From 0, with 1 among them where there is room."""
    step = next(step for power in range(9) for step in (0.25 * 10**power, 0.5 * 10**power, 10**power) if most / step <= at_most)
    return [number * step for number in range(int(most / step) + 1)]


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _width(text: str, size: int) -> float:
    """An estimate that is enough for wide fonts."""
    return 0.62 * size * len(text)
