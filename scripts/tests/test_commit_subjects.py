"""Tests scripts/commit-subjects: which subjects and bodies it rejects, and its use as a hook."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(ROOT / "scripts/commit-subjects")
sys.dont_write_bytecode = True
loader = SourceFileLoader("commit_subjects", SCRIPT)
script = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(script)


def wrong(subject: str) -> str | None:
    return script.wrong(subject, {"http", "engines"})


class Subjects(unittest.TestCase):
    def test_subject_with_area_in_72_columns_is_accepted(self):
        for subject in (
            "http: answer 431 for too many headers",
            "engines, http: end requests at their deadlines",
            "http: " + 66 * "x",
            "Merge branch 'a' into b, which git writes and whose names may be as long as they like",
        ):
            self.assertIsNone(wrong(subject), subject)

    def test_long_subject_and_one_without_area_are_rejected(self):
        self.assertIn("73 columns", wrong("http: " + 67 * "x"))
        self.assertIn("no area", wrong("answer 431 for too many headers"))

    def test_subject_with_unknown_area_is_rejected(self):
        self.assertIn("unknown area httpd:", wrong("httpd: answer 431"))
        self.assertIn("unknown area site:", wrong("http, site: answer 431"))

    def test_areas_are_those_of_contributing_and_include_those_of_dependabot(self):
        known = script.areas()
        self.assertGreater(len(known), 30)
        self.assertIn("release", known)
        dependabot = (ROOT / ".github/dependabot.yml").read_text()
        prefixes = re.findall(r'prefix: "(.*):"', dependabot)
        self.assertEqual([], [prefix for prefix in prefixes if prefix not in known])
        self.assertTrue(prefixes)

    def test_repository_that_git_refuses_to_read_fails_and_one_without_git_passes(self):
        # A hook of git tells its children which repository they are in.
        outside = {name: it for name, it in os.environ.items() if not name.startswith("GIT_")}
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory)
            (copy / "scripts").mkdir()
            shutil.copy(SCRIPT, copy / "scripts")
            shutil.copy(ROOT / "CONTRIBUTING.md", copy)

            def run():
                return subprocess.run(
                    [copy / "scripts/commit-subjects"], capture_output=True, text=True, env=outside
                )

            self.assertEqual(run().returncode, 0)
            (copy / ".git").mkdir()
            ran = run()
            self.assertEqual(ran.returncode, 1)
            self.assertIn("no subject was checked", ran.stderr)

    def test_hook_reads_the_first_line_that_is_no_comment(self):
        long = "word " * 15
        for message, status in (
            ("\n# a\nhttp: answer 431\n\nBody.\n", 0),
            ("Answer 431\n", 1),
            ("\n", 0),
            (f"http: answer 431\n\n{'x' * 70} x\n", 0),
            (f"http: answer 431\n\n{'x' * 71} x\n", 1),
            (f"http: answer 431\n\nhttps://{'x' * 80}\n", 0),
            (f"http: answer 431\n\nCo-authored-by: {long}\n", 0),
            (f"http: answer 431\n\n# {long}\n", 0),
            (f"http: answer 431\n\n# {'-' * 24} >8 {'-' * 24}\n# git\ndiff {long}\n", 0),
        ):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(message)
                file.flush()
                ran = subprocess.run([SCRIPT, "--hook", file.name], capture_output=True)
            self.assertEqual(ran.returncode, status, message)


if __name__ == "__main__":
    unittest.main()
