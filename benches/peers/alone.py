"""What do HTTP and PHP cost, each without the other? Together they are the least that a server of PHP with this HTTP server could use.

HTTP: nginx gives the hello page's bytes by itself. PHP: `php_alone.py`.
"""

from dataclasses import dataclass
from typing import Callable

import php_alone
from contestants import NGINX, Contestant
from load import Load, load
from round_trip import HELLO
from server import Server

NGINX_ALONE = Contestant(
    name="nginx without PHP",
    commands=(NGINX,),
    conf=("nginx.conf",),
    values={"upstream": "", "keep": "", "answer": """return 200 '{"hello":"world"}';"""},
)


@dataclass(frozen=True)
class Alone:
    http: list[Load]
    """One of each round."""
    php_us: list[float]
    """CPU time of one request in each round."""


def measure(server: Server, connections: int, rounds: int, seconds: int, say: Callable[[str], None]) -> Alone:
    load(server, HELLO, connections, min(2, seconds))  # warm-up
    result = Alone([], [])
    for turn in range(rounds):
        result.http.append(load(server, HELLO, connections, seconds))
        result.php_us.append(php_alone.cpu_us(server, HELLO))
        say(f"alone {turn + 1}/{rounds}: nginx {result.http[-1].cpu_us:.1f} us, PHP {result.php_us[-1]:.1f} us")
    return result
