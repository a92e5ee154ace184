"""Tests scripts/test-programs: which programs it finds, and what it says about those that fail."""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

sys.dont_write_bytecode = True
PATH = str(Path(__file__).parents[1] / "test-programs")
SPEC = spec_from_loader("test_programs", SourceFileLoader("test_programs", PATH))
test_programs = module_from_spec(SPEC)
sys.modules[SPEC.name] = test_programs
SPEC.loader.exec_module(test_programs)


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def run_script(self, script):
        """Runs a shell script as a test program; returns its outcome and what was printed."""
        file = self.directory / "program"
        file.write_text("#!/bin/sh\n" + script)
        file.chmod(0o755)
        program = test_programs.Program("name", str(file), self.directory)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            outcome = test_programs.run(program)
        return outcome, printed.getvalue()

    def test_only_test_programs_are_found(self):
        def message(name, test, executable):
            return json.dumps(
                {
                    "reason": "compiler-artifact",
                    "profile": {"test": test},
                    "executable": executable,
                    "manifest_path": "/project/Cargo.toml",
                    "target": {"name": name},
                }
            )

        messages = [
            message("http", True, "/target/http"),
            message("surus", False, "/target/surus"),
            message("library", True, None),
            json.dumps({"reason": "build-finished"}),
        ]
        found = list(test_programs.programs(messages))
        self.assertEqual(
            found, [test_programs.Program("http", "/target/http", Path("/project"))]
        )

    def test_program_that_passes_is_printed_with_its_name(self):
        outcome, printed = self.run_script("echo; echo one; printf two")
        self.assertTrue(outcome.passed)
        self.assertEqual(printed, "name: one\nname: two\n")

    def test_failures_are_kept_for_the_end(self):
        outcome, printed = self.run_script("echo test; echo failures:; echo why; exit 101")
        self.assertFalse(outcome.passed)
        self.assertEqual(outcome.failures, ["failures:", "why"])
        self.assertEqual(printed, "name: test\n")

    def test_crash_is_a_failure(self):
        outcome, _ = self.run_script("kill -SEGV $$")
        self.assertFalse(outcome.passed)

    def test_process_left_behind_does_not_hold_the_end(self):
        outcome, printed = self.run_script("sleep 1000 & echo $!")
        subprocess.run(["kill", printed.split()[1]], check=True)
        self.assertTrue(outcome.passed)


if __name__ == "__main__":
    unittest.main()
