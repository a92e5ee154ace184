"""Tests scripts/check-generators: its numbers, its server, and on which machine it measures."""

import contextlib
import io
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from unittest import mock

SCRIPT = str(Path(__file__).parents[1] / "check-generators")
sys.dont_write_bytecode = True
loader = SourceFileLoader("check_generators", SCRIPT)
script = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(script)


class Numbers(unittest.TestCase):
    def test_absent_generator_says_why_and_others_have_all_samples(self):
        one = script.Generator("wrk", ["true", ""], None, ["echo", "wrk 4"], "HTTP/1.1", "")
        one.rates, one.cpu = [500.0, 501.0], [10.0, 11.0]
        self.assertEqual(one.numbers(), {
            "title": "wrk", "group": "HTTP/1.1", "version": "wrk 4", "is_least": False,
            "rate": [500.0, 501.0], "cpu_us": [10.0, 11.0], "thread_cpu_us": [],
        })
        absent = script.Generator("oha", ["no-such-program"], None, ["true"], "HTTP/2", "buy it")
        self.assertEqual(absent.numbers(), {
            "title": "oha", "group": "HTTP/2", "absent": "no-such-program is not on PATH: buy it",
        })

    def test_server_writes_no_access_log(self):
        self.assertEqual(script.SERVER["SURUS_ACCESS_LOG_FORMAT"], "off")


class Quiet(unittest.TestCase):
    def run_with(self, loads, *more):
        """Runs with these load averages, the last one for ever. Returns what ends it, and for how
        many seconds it has waited."""
        loads, clock = list(loads), [0]

        def load():
            return (loads.pop(0) if len(loads) > 1 else loads[0], 0, 0)

        def sleep(seconds):
            clock[0] += seconds

        with (
            tempfile.TemporaryDirectory() as directory,
            mock.patch.object(sys, "argv", ["check-generators", "surus", directory, *more]),
            mock.patch.object(script.os, "getloadavg", side_effect=load),
            mock.patch.object(script.time, "sleep", side_effect=sleep),
            mock.patch.object(script.time, "monotonic", side_effect=lambda: clock[0]),
            mock.patch.object(script, "serve", side_effect=RuntimeError("measures")),
            contextlib.redirect_stderr(io.StringIO()) as said,
            self.assertRaises((SystemExit, RuntimeError)) as ended,
        ):
            script.main()
        if clock[0]:
            self.assertIn("waiting until the load average has fallen to 1", said.getvalue())
        return str(ended.exception), clock[0]

    def test_busy_machine_is_waited_for_and_given_up(self):
        write = ("--write", "generators.json")
        self.assertEqual(self.run_with([0.9], *write), ("measures", 0))
        self.assertEqual(self.run_with([3, 2, 1.1, 0.9], *write), ("measures", 30))
        said, waited = self.run_with([3], *write)
        self.assertIn("still 3.0 after 15 minutes", said)
        self.assertEqual(waited, script.LONGEST_WAIT)
        self.assertEqual(self.run_with([3], *write, "--force"), ("measures", 0))
        self.assertEqual(self.run_with([3]), ("measures", 0))
