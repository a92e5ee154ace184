"""All that a run has measured, and the file that keeps it."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from alone import Alone
from load import Load
from memory import Memory
from pages import Page
from replacement import Replacement
from round_trip import RoundTrip
from rounds import Cell
from server import Refused
from slow import Beside
from spared import Spared


@dataclass(frozen=True)
class Results:
    about: dict
    """Of machine.py, and how it was measured."""
    cells: list[Cell] = field(default_factory=list)
    round_trips: dict[str, RoundTrip] = field(default_factory=dict)
    slow_scripts: dict[str, Beside] = field(default_factory=dict)
    sizes: dict[str, Memory] = field(default_factory=dict)
    replacements: dict[str, Replacement] = field(default_factory=dict)
    alone: dict[str, Alone] = field(default_factory=dict)
    spared: dict[str, Spared] = field(default_factory=dict)
    """All after the pages by contestant."""

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = {
            "about": self.about,
            "pages": [asdict(cell) for cell in self.cells],
            "round_trip": {who: asdict(result) for who, result in self.round_trips.items()},
            "slow": {who: asdict(result) for who, result in self.slow_scripts.items()},
            "memory": {who: asdict(result) for who, result in self.sizes.items()},
            "alone": {who: asdict(result) for who, result in self.alone.items()},
            "spared": {who: asdict(result) for who, result in self.spared.items()},
            "replacement": {who: asdict(result) for who, result in self.replacements.items()},
        }
        path.write_text(json.dumps(raw, indent=1) + "\n")


def read(path: Path) -> Results:
    try:
        raw = json.loads(path.read_text())
        return Results(
            raw["about"],
            [_cell(cell) for cell in raw.get("pages", [])],
            {who: RoundTrip(**_loads({what: result[what] for what in ("hello", "static")}), php_us=result["php_us"]) for who, result in raw.get("round_trip", {}).items()},
            {who: Beside(**_loads(result)) for who, result in raw.get("slow", {}).items()},
            {who: _known(Memory, result) for who, result in raw.get("memory", {}).items()},
            {who: _known(Replacement, result) for who, result in raw.get("replacement", {}).items()},
            {who: Alone(_loads({"http": result["http"]})["http"], result["php_us"]) for who, result in raw.get("alone", {}).items()},
            {who: _known(Spared, result) for who, result in raw.get("spared", {}).items()},
        )
    except FileNotFoundError:
        raise Refused(f"{path} does not exist; make bench writes it") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"{path} is not what make bench writes: {error!r}") from error


def _cell(raw: dict) -> Cell:
    # A server without a round has no numbers.
    loads = {who: loads for who, loads in _loads(raw["loads"]).items() if loads}
    return Cell(_known(Page, raw["page"]), raw["connections"], loads)


def _loads(raw: dict) -> dict[str, list[Load | None]]:
    return {what: [load and _known(Load, load) for load in loads] for what, loads in raw.items()}


def _known(kind: type, raw: dict):
    """A file is read as long as it has what is reported; pages have had other fields before."""
    names = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in raw.items() if name in names})
