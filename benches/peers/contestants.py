"""The measured servers: a table of plain data. To add one, add an entry, and its files in conf/."""

import shlex
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Contestant:
    name: str
    """As it is called in the report."""
    commands: tuple[str, ...]
    """Its servers, which stay in the foreground. `@word@` stands for a value of this run, here and in `conf`."""
    conf: tuple[str, ...]
    """Files of conf/ that are filled in and put into `@dir@`."""
    values: dict[str, str] = field(default_factory=dict)
    """More words for `conf`."""
    needs: dict[str, str] = field(default_factory=dict)
    """Programs, and the package that has each."""
    version: tuple[str, ...] = ()
    """Commands whose first line is the version."""
    php_process: str = ""
    """How the processes that run PHP are called; empty where they are the web server itself."""
    ours: bool = False
    """Held to the goals."""
    reference: bool = False
    """The others are compared to the best of those that are."""
    sends_files: bool = True
    """Not when another entry has the same server in front for static files."""
    engine: str = ""
    """Of Surus."""
    not_apps: tuple[str, ...] = ()
    """Applications that it cannot run."""
    one_event: bool = False
    """Its PHP processes end with what they have served."""
    learns: bool = False
    """It has others take the place of its PHP processes when it has learnt from requests."""
    own_php: bool = False
    """It brings a PHP along, whose settings are its own."""

    @property
    def boots(self) -> bool:
        return self.engine not in ("", "classic")


    @property
    def renews(self) -> bool:
        """Its PHP processes may change during the measurement; their CPU time is counted anyway."""
        return self.one_event or self.learns


PHP_FPM = "php-fpm8.2 -F -y @dir@/php-fpm.conf -c @dir@/php.ini"
NGINX = "nginx -c @dir@/nginx.conf -e @dir@/nginx.log"
NGINX_PHP_FPM = {
    "commands": (PHP_FPM, NGINX),
    "conf": ("nginx.conf", "php-fpm.conf"),
    "needs": {"nginx": "nginx", "php-fpm8.2": "php8.2-fpm"},
    "version": ("nginx -v", "php-fpm8.2 -v"),
    "php_process": "php-fpm8.2",
    "reference": True,
}

def _surus(engine: str, **more) -> Contestant:
    script = "" if engine == "classic" else " --script @script@"
    return Contestant(
        name=f"Surus {engine}",
        commands=(f"@surus@ serve @project@ --config @dir@/surus.toml --engine {engine}{script}",),
        conf=("surus.toml",),
        version=("@surus@ --version",),
        php_process="surus worker",
        ours=True,
        engine=engine,
        **more,
    )


CONTESTANTS = (
    Contestant(
        name="nginx + php-fpm",
        values={"upstream": "", "keep": "", "answer": ""},
        **NGINX_PHP_FPM,
    ),
    Contestant(
        name="nginx + php-fpm, kept",
        # An idle kept connection occupies a child. So that nginx's workers cannot hold all children idle between them, they
        # keep no more than there are.
        values={"upstream": "keepalive @kept@;", "keep": "fastcgi_keep_conn on;", "answer": ""},
        sends_files=False,
        **NGINX_PHP_FPM,
    ),
    Contestant(
        name="Apache mod_php",
        commands=("apache2 -f @dir@/apache.conf -DFOREGROUND",),
        conf=("apache.conf",),
        needs={"apache2": "apache2, libapache2-mod-php8.2"},
        version=("apache2 -v",),
    ),
    _surus("classic"),
    # WordPress keeps the visitor in constants and globals.
    _surus("worker", not_apps=("wordpress",)),
    _surus("standby", one_event=True),
    _surus("fork", one_event=True),
    _surus("rewind", learns=True),
)


def another(line: str) -> Contestant:
    """One that a user adds: `NAME = COMMAND`, with the words of server.py."""
    name, separator, command = (part.strip() for part in line.partition("="))
    if not (name and separator and command):
        raise ValueError(f"{line!r} is not of the form NAME = COMMAND")
    program = shlex.split(command)[0]
    return Contestant(name=name, commands=(command,), conf=(), needs={program: program}, own_php=True)
