"""How much memory does one more worker take? The proportional set size of all processes, with few workers and with more."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from load import load
from pages import Page
from server import Server

FEW, MORE = 2, 6


@dataclass(frozen=True)
class Memory:
    few: float
    more: float
    """MiB of all server processes with FEW and MORE workers, after each has served."""

    @property
    def worker(self) -> float:
        return (self.more - self.few) / (MORE - FEW)


def measure(start: Callable[[int], Server], page: Page, say: Callable[[str], None]) -> Memory:
    sizes = []
    for workers in (FEW, MORE):
        with start(workers) as server:
            load(server, page, 64, 2)
            sizes.append(sum(_pss(pid) for pid in server.pids()) / 1024)
    result = Memory(*sizes)
    say(f"memory {server.contestant.name}: {result.worker:.1f} MiB for one more worker")
    return result


def _pss(pid: int) -> int:
    """In KiB. What several processes share is divided among them."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has just ended
    return int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE).group(1))
