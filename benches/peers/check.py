"""Do all contestants do the same work? What does not answer right is not measured."""

import json
import os

from pages import Page
from server import Refused, Server


def same_settings(servers: list[Server]) -> None:
    """The same PHP with the same extensions and settings, OPcache on, as the same user."""
    servers = [server for server in servers if not server.contestant.own_php]
    first = json.loads(servers[0].get("/settings.php"))
    if not first["opcache"]:
        raise Refused(f"{servers[0].contestant.name} runs without OPcache")
    for server in servers[1:]:
        other = json.loads(server.get("/settings.php"))
        flat, wanted = _flat(other), _flat(first)
        if differing := sorted(key for key in flat | wanted if flat.get(key) != wanted.get(key)):
            what = ", ".join(f"{key}: {flat.get(key)} instead of {wanted.get(key)}" for key in differing)
            raise Refused(f"{server.contestant.name} has other settings than {servers[0].contestant.name}: {what}")


def same_answer(servers: list[Server], page: Page) -> None:
    bodies = {server.contestant.name: server.get(page.target, timeout=60) for server in servers}
    (first, body), *others = bodies.items()
    if page.length and not page.length[0] <= len(body) <= page.length[1]:
        raise Refused(f"{first} answered {page.target} with {len(body)} bytes; expected {page.length[0]} to {page.length[1]}")
    for who, other in others:
        if other != body:
            at = len(os.path.commonprefix([other, body]))
            raise Refused(
                f"{who} and {first} answered {page.target} differently from byte {at} of {len(other)} and {len(body)} on: "
                f"{other[at : at + 60]!r} and {body[at : at + 60]!r}"
            )


def _flat(settings: dict) -> dict[str, object]:
    others = {name: value for name, value in settings.items() if name != "ini"}
    return others | {f"ini {name}": value for name, value in settings["ini"].items()}
