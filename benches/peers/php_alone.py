"""What PHP needs for a page by itself: php-cgi runs its script again and again in one process (`-T`), request startup and shutdown
included, and prints into nothing.
"""

import os
import resource
import subprocess

from pages import Page
from server import ENVIRONMENT, Refused, Server

PHP_CGI = "php-cgi8.2"
TIMES = 100_000


def cpu_us(server: Server, page: Page, times: int = TIMES) -> float:
    """CPU time of one request, with the settings of this server."""
    script = f"{server.root}{page.target}"
    environment = ENVIRONMENT | {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET", "REDIRECT_STATUS": "1"}
    before = _children()
    command = [PHP_CGI, "-c", str(server.directory / "php.ini"), "-q", "-T", str(times), script]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        raise Refused(f"{PHP_CGI} ended with {done.returncode}: {done.stderr}")
    return (_children() - before) * 1e6 / times


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
