"""What is asked of every contestant, and from which directory."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

WWW = Path(__file__).parent / "www"


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    target: str
    static: bool = False
    symfony: bool = False
    length: tuple[int, int] | None = None
    """Allowed length of the body, where the title promises one."""


PAGES = (
    Page("hello", "Hello-world JSON", "/hello.php"),
    Page("html", "10 KB HTML", "/html.php", length=(9_500, 10_500)),
    Page("symfony-json", "Symfony JSON route", "/api/hello", symfony=True),
    Page("symfony-twig", "Symfony Twig page", "/hello/World", symfony=True),
    Page("static-100k", "100 KB static file", "/100k.bin", static=True, length=(100_000, 100_000)),
    Page("static-1m", "1 MB static file", "/1m.bin", static=True, length=(1 << 20, 1 << 20)),
)


def make_project(directory: Path, symfony: Path | None) -> Path:
    """One project for all: the Symfony example when it is measured, and our own pages in its document root."""
    project = directory / "project"
    if symfony:
        shutil.copytree(symfony, project, ignore=shutil.ignore_patterns("var"))
        (project / "var").mkdir()
        shutil.chown(project / "var", "www-data", "www-data")
    public = project / "public"
    public.mkdir(parents=True, exist_ok=True)
    for script in WWW.iterdir():
        shutil.copy(script, public)
    for page in PAGES:
        if page.static:
            (public / urlsplit(page.target).path.lstrip("/")).write_bytes(os.urandom(page.length[0]))
    return project
