"""How much CPU time have some processes and all their descendants used?"""

import os
import time
from pathlib import Path
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def tree(roots: list[int]) -> list[int]:
    """The processes `roots` and all that descend from them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat.fields[1]), []).append(int(entry.name))
    found, todo = [], list(roots)
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def named(pids: list[int], name: str) -> list[int]:
    """Those of them that are called so."""
    return [pid for pid in pids if (stat := _stat(pid)) and stat.name == name]


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of these processes, and of the children that they have reaped."""
    # A child's time moves to its parent's when it is reaped, so nothing is lost or counted twice.
    return sum(sum(map(int, stat.fields[11:15])) for pid in pids if (stat := _stat(pid))) / TICKS_PER_SECOND


def settle(roots: list[int], seconds: float) -> bool:
    """Waits until none of them does anything any more: what was asked for by a client that has left is still done. False: they go on."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = cpu_seconds(tree(roots))
        time.sleep(0.1)
        # A tick is what a timer of an idle server may take.
        if cpu_seconds(tree(roots)) - before <= 1 / TICKS_PER_SECOND:
            return True
    return False


class _Stat(NamedTuple):
    name: str
    fields: list[str]
    """From `state` on: proc(5) counts it as 3, so field n is at n - 3."""


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses and may hold some itself.
    name, _, fields = text.partition("(")[2].rpartition(") ")
    return _Stat(name, fields.split())
