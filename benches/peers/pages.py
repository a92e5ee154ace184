"""What is asked of every contestant."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    target: str
    app: str = "plain"
    """Which application of apps.py has it."""
    static: bool = False
    length: tuple[int, int] | None = None
    """Allowed length of the body, where the title promises one."""
    least: float = 1.0
    """Goal for `classic`: requests/s to nginx's."""
    booted_least: float | None = None
    """Goal for `rewind` at 64 connections."""

    @property
    def group(self) -> str:
        """Under which heading it is reported."""
        if self.static:
            return "Static files"
        return "PHP pages" if self.app == "plain" else "Applications"


PAGES = (
    Page("hello", "Hello-world JSON", "/hello.php", booted_least=3.0),
    Page("html", "10 KB HTML", "/html.php", length=(9_500, 10_500)),
    Page("static-100k", "100 KB static file", "/100k.bin", static=True, length=(100_000, 100_000), least=0.8),
    Page("static-1m", "1 MB static file", "/1m.bin", static=True, length=(1 << 20, 1 << 20), least=0.8),
    Page("symfony-json", "Symfony JSON route", "/api/hello", app="symfony", booted_least=3.0),
    Page("symfony-twig", "Symfony Twig page", "/hello/World", app="symfony", booted_least=3.0),
    Page("laravel-json", "Laravel JSON route", "/api/hello", app="laravel", booted_least=4.0),
    Page("wordpress", "WordPress front page", "/", app="wordpress", booted_least=3.0),
)
