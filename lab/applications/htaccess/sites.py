"""Writes the sites: sites.py DIRECTORY-OF-TESTS DIRECTORY"""

import pathlib
import sys
import tomllib

tests, to = map(pathlib.Path, sys.argv[1:])
for name in ("none", "wordpress", "drupal10", "firewall-6g"):
    site = to / name
    site.mkdir()
    (site / "a.txt").write_text("hello, world\n")
    for script in ("hello.php", "index.php"):
        (site / script).write_text('<?php echo "hello, world\\n";')
    if name != "none":
        test = tomllib.loads((tests / f"{name}.toml").read_text())
        (site / ".htaccess").write_text(test["files"][".htaccess"])
