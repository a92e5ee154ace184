"""Tests scripts/commit-subjects: which subjects and bodies it rejects, and its use as a hook."""

import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

SCRIPT = str(Path(__file__).parents[1] / "commit-subjects")
sys.dont_write_bytecode = True
loader = SourceFileLoader("commit_subjects", SCRIPT)
script = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(script)


class Subjects(unittest.TestCase):
    def test_subject_with_area_in_72_columns_is_accepted(self):
        for subject in (
            "http: answer 431 for too many headers",
            "a: " + 69 * "x",
            "Merge branch 'a' into b, which git writes and whose names may be as long as they like",
        ):
            self.assertIsNone(script.wrong(subject), subject)

    def test_long_subject_and_one_without_area_are_rejected(self):
        self.assertIn("73 columns", script.wrong("a: " + 70 * "x"))
        self.assertIn("no area", script.wrong("answer 431 for too many headers"))

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
