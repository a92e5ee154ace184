"""Compares Surus with nginx + php-fpm and Apache mod_php, as README.md says."""

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import alone
import check
import machine
import memory
import replacement
import report
import php_alone
import round_trip
import rounds
import slow
import spared
from apps import APPS
from contestants import CONTESTANTS, Contestant, another
from pages import PAGES
from results import Results
from server import Refused, Server

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = ("pages", "alone", "round-trip", "slow", "memory", "replacement", "spared")


def main() -> None:
    options = _options()
    contestants = [contestant for contestant in CONTESTANTS if contestant.name in options.contestants] + options.also
    pages = [page for page in PAGES if page.name in options.pages]
    _check_machine(contestants, pages, options)
    # SIGTERM ends the servers as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    about = machine.describe(contestants, options.surus) | {
        "command": shlex.join(["python3", *sys.argv]),
        "workers": options.workers,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "slow_seconds": options.slow_seconds,
    }
    results = Results(about)
    # An interrupted run keeps its results, and does not replace those of a complete run.
    unfinished = options.json.with_suffix(".unfinished.json")

    with tempfile.TemporaryDirectory(prefix="surus-peers-") as scratch, contextlib.ExitStack() as everything:
        os.chmod(scratch, 0o755)  # for www-data
        projects = {}

        def start(contestant: Contestant, app: str, workers: int, what: str) -> Server:
            directory = Path(scratch) / f"{what}-{contestants.index(contestant)}"
            return Server(contestant, directory, APPS[app], projects[app], options.surus, workers)

        for app in _apps(pages, options.parts):
            _say(f"making {app}")
            projects[app] = Path(scratch) / app
            APPS[app].make(projects[app], Path(scratch) / f"{app}-data", everything)
        for app in projects if "pages" in options.parts else []:
            with contextlib.ExitStack() as stack:
                able = [contestant for contestant in contestants if app not in contestant.not_apps]
                servers = [stack.enter_context(start(contestant, app, options.workers, app)) for contestant in able]
                if app == "plain":
                    check.same_settings(servers)
                for page in (page for page in pages if page.app == app):
                    check.same_answer(servers, page)
                    for connections in options.connections:
                        results.cells.append(rounds.measure(servers, page, connections, options.rounds, options.seconds, _say))
                        results.write(unfinished)
                    # wrk does not look at bodies, so that one that goes wrong under load would show only here.
                    check.same_answer(servers, page)
        if "alone" in options.parts:
            with Server(alone.NGINX_ALONE, Path(scratch) / "alone", APPS["plain"], projects["plain"], options.surus, 1) as server:
                results.alone[server.contestant.name] = alone.measure(server, max(options.connections), options.rounds, options.seconds, _say)
        if "spared" in options.parts:
            contestant = next(contestant for contestant in contestants if contestant.php_process and not contestant.boots)
            with start(contestant, "wordpress", 1, "spared") as server:
                spared.install(server)
                results.spared[contestant.name] = spared.measure(server, options.rounds, _say)
        # Where PHP runs inside the web server there are no workers to count.
        pools = [contestant for contestant in contestants if contestant.php_process and not contestant.one_event]
        if "round-trip" in options.parts:
            with contextlib.ExitStack() as stack:
                bare = Server(round_trip.BARE, Path(scratch) / "bare", APPS["plain"], projects["plain"], options.surus, 1)
                servers = [stack.enter_context(bare)]
                servers += [stack.enter_context(start(contestant, "plain", 1, "round-trip")) for contestant in pools]
                results.round_trips.update(round_trip.measure(servers, options.rounds, options.seconds, _say))
        for contestant in pools:
            if "slow" in options.parts:
                with start(contestant, "plain", 2, "slow") as server:
                    results.slow_scripts[contestant.name] = slow.measure(server, options.rounds, options.slow_seconds, _say)
            page = next(page for page in PAGES if page.app == "symfony")
            if "memory" in options.parts:
                results.sizes[contestant.name] = memory.measure(
                    lambda workers: start(contestant, "symfony", workers, f"memory-{workers}"), page, _say
                )
            # Kept connections of two nginx processes want two children.
            if "replacement" in options.parts and contestant.sends_files:
                with start(contestant, "symfony", 1, "replacement") as server:
                    results.replacements[contestant.name] = replacement.measure(server, page, _say)
            results.write(unfinished)

    unfinished.replace(options.json)
    _say(f"all rounds: {options.json}")
    print(report.markdown(results))
    print(report.goals(results))


def _apps(pages: list, parts: list[str]) -> list[str]:
    """Those that are asked for, each once."""
    names = [page.app for page in pages if "pages" in parts]
    names += ["plain"] * bool({"alone", "round-trip", "slow"} & set(parts)) + ["symfony"] * bool({"memory", "replacement"} & set(parts))
    names += ["wordpress"] * ("spared" in parts)
    return list(dict.fromkeys(names))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 2 s instead of 5 of 5 s")
    parser.add_argument("--rounds", type=int, help="how often each contestant has its turn")
    parser.add_argument("--seconds", type=int, help="how long each turn is")
    parser.add_argument("--slow-seconds", type=int, help="how long a slow script runs beside a fast one")
    parser.add_argument("--workers", type=int, default=2 * os.cpu_count(), help="PHP processes; two for each CPU")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 64], choices=range(1, 65), metavar="N")
    parser.add_argument("--surus", type=Path, default=REPOSITORY / "target/release/surus", help="the program to measure")
    parser.add_argument("--json", type=Path, default=REPOSITORY / "target/peers.json", help="where all rounds are written to")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    names = [page.name for page in PAGES]
    parser.add_argument("--pages", nargs="+", default=names, choices=names)
    names = [contestant.name for contestant in CONTESTANTS]
    parser.add_argument("--contestants", nargs="+", default=names, choices=names)
    parser.add_argument(
        "--also", type=another, action="append", default=[], metavar="'NAME = COMMAND'", help="another server; README.md has examples"
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.slow_seconds = options.slow_seconds or (2 if options.quick else 10)
    options.seconds = options.seconds or (2 if options.quick else 5)
    options.surus = options.surus.resolve()
    return options


def _check_machine(contestants: list[Contestant], pages: list, options: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise Refused("servers change to www-data, which needs root: sudo make bench")
    if not any(contestant.reference for contestant in contestants):
        raise Refused("without nginx + php-fpm there is nothing to compare with")
    if not options.surus.is_file():
        raise Refused(f"{options.surus} does not exist; cargo build --release, or name it with --surus")
    for app in _apps(pages, options.parts):
        for path, package in APPS[app].needs:
            if not Path(path).exists():
                raise Refused(f"{path} does not exist: apt-get install {package}; or choose --pages and --parts without it")
    ours = {"wrk": "wrk", "php8.2": "php8.2-cli"} | ({php_alone.PHP_CGI: "php8.2-cgi", "nginx": "nginx"} if {"alone", "round-trip"} & set(options.parts) else {})
    ours |= {"cc": "gcc"} if "round-trip" in options.parts else {}
    for program, package in (ours | {k: v for one in contestants for k, v in one.needs.items()}).items():
        if not shutil.which(program):
            raise Refused(f"{program} is not installed: apt-get install {package}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


try:
    main()
except Refused as refused:
    sys.exit(f"not measured: {refused}")
except KeyboardInterrupt:
    sys.exit(130)
