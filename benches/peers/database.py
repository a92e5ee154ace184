"""Starts a MariaDB for one application: on a unix socket, with its data in a temporary directory."""

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

START_SECONDS = 60


def start(directory: Path, name: str, stack: contextlib.ExitStack) -> Path:
    """Starts it until the stack ends, with a database and a user of this name without a password, and returns its socket."""
    directory.mkdir()
    shutil.chown(directory, "mysql", "mysql")
    common = ["--no-defaults", f"--datadir={directory / 'data'}", "--user=mysql"]
    install = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    socket = directory / "socket"
    with open(directory / "log", "wb") as log:
        server = subprocess.Popen(
            ["mariadbd", *common, "--skip-networking", f"--socket={socket}", f"--pid-file={directory / 'pid'}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    # Its data is thrown away, so that it need not finish.
    stack.callback(server.wait)
    stack.callback(server.kill)
    client = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "-e"]
    sql = f"CREATE DATABASE {name} CHARACTER SET utf8mb4; CREATE USER {name}@localhost; GRANT ALL ON {name}.* TO {name}@localhost"
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run([*client, "SELECT 1"], capture_output=True, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"mariadbd did not start:\n{(directory / 'log').read_text(errors='replace')}")
        time.sleep(0.1)
    subprocess.run([*client, sql], check=True)
    return socket
