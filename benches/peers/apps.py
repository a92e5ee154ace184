"""The applications that are measured, each in a directory of its own, as production has them."""

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable
from urllib.parse import urlsplit

import database
from pages import PAGES

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
WORDPRESS = Path("/usr/share/wordpress")


@dataclass(frozen=True)
class App:
    name: str
    make: Callable[[Path, Path, contextlib.ExitStack], None]
    """Fills a directory; may start in the stack what the application needs, with its files in another directory."""
    ready: str
    """A page that tells that a server answers."""
    warmup: tuple[str, ...]
    """What is asked once ahead of the requests, where an engine boots; what production would say in engine.warmup."""
    public: str = "public"
    """The document root in it."""
    host: str | None = None
    """What visitors call it, where it asks."""
    needs: tuple[tuple[str, str], ...] = ()
    """Files, and the package that has each."""


def _plain(project: Path, _: Path, __: contextlib.ExitStack) -> None:
    shutil.copytree(HERE / "www", project / "public")
    (project / "public/worker.php").rename(project / "worker.php")
    for page in PAGES:
        if page.static:
            (project / "public" / urlsplit(page.target).path.lstrip("/")).write_bytes(os.urandom(page.length[0]))


def _example(name: str, *writable: str) -> Callable[[Path, Path, contextlib.ExitStack], None]:
    def make(project: Path, _: Path, __: contextlib.ExitStack) -> None:
        shutil.copytree(REPOSITORY / "examples" / name, project, ignore=shutil.ignore_patterns("var", "vendor", "storage", "surus.toml"))
        subprocess.run(["php8.2", REPOSITORY / "examples/vendor.php", project], check=True, stdout=subprocess.DEVNULL)
        for directory in writable:
            (project / directory).mkdir(exist_ok=True)
            shutil.chown(project / directory, "www-data", "www-data")

    return make


def _wordpress(project: Path, scratch: Path, stack: contextlib.ExitStack) -> None:
    root = project / "wordpress"
    # Debian's package is full of links, some of which lead to packages that are only recommended.
    shutil.copytree(WORDPRESS, root, ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns("wp-config.php"))
    shutil.copytree(REPOSITORY / "tests/apps/theme", root / "wp-content/themes/alps")
    shutil.copy(REPOSITORY / "php/boot/wordpress.php", project / "worker.php")
    socket = database.start(scratch, "wordpress", stack)
    (root / "wp-config.php").write_text((HERE / "conf/wp-config.php").read_text().replace("@socket@", str(socket)))
    subprocess.run(["php8.2", "-d", "sendmail_path=/bin/true", HERE / "install_wordpress.php", root, APPS["wordpress"].host], check=True)


FRAMEWORK = "/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php"
APPS = {
    app.name: app
    for app in (
        App("plain", _plain, "/hello.php", ("/hello.php",)),
        App("symfony", _example("symfony", "var"), "/api/hello", ("/api/hello", "/hello/you"), needs=((FRAMEWORK, "php-symfony-framework-bundle"),)),
        App(
            "laravel",
            _example("laravel", "storage", "bootstrap/cache"),
            "/api/hello",
            ("/api/hello",),
            needs=(("/usr/share/php/Illuminate/autoload.php", "php-laravel-framework"),),
        ),
        App(
            "wordpress",
            _wordpress,
            "/",
            (),
            public="wordpress",
            host="blog.example",
            needs=((str(WORDPRESS), "wordpress"), ("/usr/sbin/mariadbd", "mariadb-server")),
        ),
    )
}
