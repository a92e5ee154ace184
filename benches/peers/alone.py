"""What do HTTP and PHP cost, each without the other? Together they are the least that a server of PHP with this HTTP server could use.

HTTP: nginx gives the hello page's bytes by itself. PHP: php-cgi runs the hello page's script again and again in one process (`-T`),
request startup and shutdown included, and prints into nothing.
"""

import os
import resource
import subprocess
from dataclasses import dataclass
from typing import Callable

from contestants import NGINX, Contestant
from load import Load, load
from round_trip import HELLO
from server import ENVIRONMENT, Refused, Server

NGINX_ALONE = Contestant(
    name="nginx without PHP",
    commands=(NGINX,),
    conf=("nginx.conf",),
    values={"upstream": "", "keep": "", "answer": """return 200 '{"hello":"world"}';"""},
)
PHP_CGI = "php-cgi8.2"
TIMES = 100_000


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
        result.php_us.append(_php(server))
        say(f"alone {turn + 1}/{rounds}: nginx {result.http[-1].cpu_us:.1f} us, PHP {result.php_us[-1]:.1f} us")
    return result


def _php(server: Server) -> float:
    script = f"{server.root}{HELLO.target}"
    environment = ENVIRONMENT | {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET", "REDIRECT_STATUS": "1"}
    before = _children()
    command = [PHP_CGI, "-c", str(server.directory / "php.ini"), "-q", "-T", str(TIMES), script]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        raise Refused(f"{PHP_CGI} ended with {done.returncode}: {done.stderr}")
    return (_children() - before) * 1e6 / TIMES


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
