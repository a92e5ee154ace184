"""Measures what an application's .htaccess file costs a request: `python3 benches/htaccess`.

Serves the same files with none (twice: the difference is the noise), with WordPress's and with
Drupal's. The servers take turns with wrk, and each round is compared with that of the first.
"""

import argparse
import contextlib
import os
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITES = {"none": None, "WordPress": "wordpress", "Drupal": "drupal10", "none again": None}
PATHS = ("/a.txt", "/hello.php")


def processes(pid):
    """A process and all below it."""
    yield pid
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from processes(child)


def cpu(pid):
    """Microseconds of CPU that a server has used."""
    stats = (stat for one in processes(pid)
             for stat in pathlib.Path(f"/proc/{one}/task").glob("*/schedstat"))
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1000


def serve(stack, surus, name, site):
    """Starts a server, and returns its process id and its address."""
    directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    directory.chmod(0o755)
    (directory / "a.txt").write_text("hello, world\n")
    for script in ("hello.php", "index.php"):
        (directory / script).write_text('<?php echo "hello, world\\n";')
    if site:
        text = (ROOT / f"tests/http/htaccess/sites/{site}.toml").read_text()
        (directory / ".htaccess").write_text(tomllib.loads(text)["files"][".htaccess"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:%d" % free.getsockname()[1]
    command = [surus, "serve", directory, "--listen", address, "--workers", "2"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    host, port = address.split(":")
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
            return server.pid, address
        time.sleep(0.1)
    raise SystemExit(f"the server of {name} does not answer")


def measure(pid, url, seconds):
    """Requests per second and microseconds of CPU per request."""
    before = cpu(pid)
    command = ["wrk", "-t1", "-c8", f"-d{seconds}s", url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = cpu(pid) - before
    if "Non-2xx" in said:
        raise SystemExit(f"{url}: {said}")
    count = int(re.search(r"(\d+) requests in", said)[1])
    return float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]), used / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--surus", default=os.environ.get("SURUS", ROOT / "target/release/surus"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=int, default=1)
    asked = parser.parse_args()
    found = {}
    with contextlib.ExitStack() as stack:
        servers = {name: serve(stack, asked.surus, name, site) for name, site in SITES.items()}
        names = list(servers)
        for at in range(asked.rounds):
            turn = at % len(names)
            for path in PATHS:
                for name in names[turn:] + names[:turn]:
                    pid, address = servers[name]
                    one = measure(pid, f"http://{address}{path}", asked.seconds)
                    found.setdefault((path, name), []).append(one)
    for (path, name), rounds in found.items():
        first = found[path, "none"]
        rate, used = (statistics.median(column) for column in zip(*rounds))
        more = statistics.median(mine[1] / other[1] for mine, other in zip(rounds, first))
        least = min(used for _, used in rounds)
        print(f"{path:12} {name:12} {rate:8.0f}/s {used:6.1f} us, at least {least:5.1f}, "
              f"{more:.3f} of none")


if __name__ == "__main__":
    main()
