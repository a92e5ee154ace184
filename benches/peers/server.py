"""The life of one contestant: started with a configuration of its own, ended by pid whatever happens."""

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import processes
from apps import App
from contestants import Contestant
from pages import Page

CONF = Path(__file__).parent / "conf"
# By itself each would load the extensions that Debian has switched on for it.
ENVIRONMENT = {"PATH": os.environ["PATH"], "PHP_INI_SCAN_DIR": "/etc/php/8.2/fpm/conf.d"}
START_SECONDS = 20
STOP_SECONDS = 10


class Refused(Exception):
    """This cannot be measured, and why."""


class Unanswered(Refused):
    """Not one request had an answer."""


class Changed(Refused):
    """Its processes are not those that there were."""


class Server:
    def __init__(self, contestant: Contestant, directory: Path, app: App, project: Path, surus: Path, workers: int):
        self.contestant = contestant
        self.app = app
        self.directory = directory
        self.root = project / app.public
        self.port = _free_port()
        self._running: list[subprocess.Popen] = []
        self._words = {
            **contestant.values,
            "dir": str(directory),
            "port": str(self.port),
            "project": str(project),
            "root": str(self.root),
            "script": str(project / "worker.php"),
            "surus": str(surus),
            "warmup": json.dumps(app.warmup),
            "host": app.host or "localhost",
            "workers": str(workers),
            "kept": str(max(1, workers // os.cpu_count())),
        }

    def __enter__(self) -> "Server":
        self.directory.mkdir()
        for name in ("php.ini", *self.contestant.conf):
            (self.directory / name).write_text(self._fill((CONF / name).read_text()))
        try:
            with open(self.directory / "output.log", "wb") as log:
                for command in self.contestant.commands:
                    argv = shlex.split(self._fill(command))
                    # In a session of its own, so that Ctrl-C reaches only us, and we end it in order.
                    self._running.append(
                        subprocess.Popen(argv, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
                    )
            self._wait_until_it_answers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        everyone = self.pids()
        for process in reversed(self._running):
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        # What did not end when asked, and what it left behind.
        for pid in everyone:
            if _session(pid) in {process.pid for process in self._running}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._running:
            process.wait()

    def pids(self) -> list[int]:
        return processes.tree([process.pid for process in self._running])

    def url(self, page: Page) -> str:
        return f"http://127.0.0.1:{self.port}{page.target}"

    def get(self, target: str, timeout: float = 10) -> bytes:
        """The body of an answer with status 200; any other answer is an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("GET", target, headers={"Host": self.app.host} if self.app.host else {})
            response = connection.getresponse()
            body = response.read()
        if response.status != 200:
            raise Refused(f"{self.contestant.name} answered {target} with {response.status}: {body[:300]!r}")
        return body

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            for process in self._running:
                if process.poll() is not None:
                    raise Refused(f"{self.contestant.name} ended with {process.returncode}:\n{self._said()}")
            try:
                self.get(self.app.ready)
                return
            except (OSError, http.client.HTTPException, Refused) as error:
                if time.monotonic() > deadline:
                    raise Refused(f"{self.contestant.name} does not answer: {error}\n{self._said()}") from error
                time.sleep(0.05)

    def _said(self) -> str:
        return "".join(log.read_text(errors="replace")[-2000:] for log in sorted(self.directory.glob("*.log")))

    def _fill(self, text: str) -> str:
        # Twice, because a value may hold a word.
        for _ in range(2):
            for word, value in self._words.items():
                text = text.replace(f"@{word}@", value)
        return text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _session(pid: int) -> int | None:
    """The session of a process, none if it has exited; a reused pid is in another session."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
