"""On what, and with which versions, was it measured?"""

import os
import platform
import re
import shlex
import subprocess
from datetime import date
from pathlib import Path

from contestants import Contestant


def describe(contestants: list[Contestant], surus: Path) -> dict[str, str]:
    commands = {"wrk -v": None}
    for contestant in contestants:
        commands |= dict.fromkeys(contestant.version)
    cpu = _first(r"^model name\s*: (.*)$", "/proc/cpuinfo")
    gib = int(_first(r"^MemTotal:\s*(\d+)", "/proc/meminfo")) / (1 << 20)
    return {
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} CPUs ({cpu}), {gib:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "versions": "; ".join(_version(command, surus) for command in commands),
        "revision": _output(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]),
    }


def _version(command: str, surus: Path) -> str:
    line = _output(shlex.split(command.replace("@surus@", str(surus)))).splitlines()[0]
    return re.sub(r"^(nginx version:|Server version:)\s*|\s*(\(built|Copyright|\[).*$", "", line)


def _output(command: list[str]) -> str:
    # `nginx -v` writes to stderr, and `wrk -v` ends with 1.
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout.strip()


def _first(pattern: str, path: str) -> str:
    return re.search(pattern, Path(path).read_text(), re.MULTILINE).group(1)
