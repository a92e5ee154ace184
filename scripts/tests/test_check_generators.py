"""Tests scripts/check-generators: its verdicts, its table, and when it writes a document."""

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


def generator(title, group, rates, cpu, thread=()):
    """A generator whose program is everywhere, with its samples."""
    one = script.Generator(title, ["true", ""], None, ["true"], group, "")
    one.rates, one.cpu, one.thread = rates, cpu, list(thread)
    return one


class Verdicts(unittest.TestCase):
    def test_goal_is_met_only_if_the_whole_interval_keeps_it(self):
        for interval, bounds, word in (
            ((0.9, 1.1), script.RATES, "met"),
            ((0.68, 1.23), script.RATES, "open"),
            ((0.5, 0.84), script.RATES, "not met"),
            ((1.16, 1.3), script.RATES, "not met"),
            ((1.0, 1.25), script.CPU, "met"),
            ((1.2, 1.3), script.CPU, "open"),
            ((1.51, 1.77), script.CPU, "not met"),
        ):
            found = script.verdict(interval, bounds).split(",")[0]
            self.assertEqual(found, word, interval)

    def test_table_judges_both_protocols_and_the_thread_alone(self):
        wide, one = [100, 1000, 100, 1000], [500] * 4
        absent = script.Generator("oha --http2", ["no-such-program"], None, ["true"], "HTTP/2", "")
        text = script.table([
            generator("ours", "HTTP/1.1", one, [30] * 4, [12] * 4),
            generator("wrk", "HTTP/1.1", one, [10] * 4),
            generator("ours --http2", "HTTP/2", wide, [30] * 4, [30] * 4),
            generator("h2load", "HTTP/2", one, [30] * 4),
            absent,
        ], 4, 10, 0.1)
        for line in (
            "- HTTP/1.1, requests/s within 15 % of wrk: 1.00 (1.00 to 1.00), met.",
            "- at most 1.25 × wrk's CPU per request: 3.00 (3.00 to 3.00), not met.",
            "- the same of its thread alone, at most 1.25 × wrk's: 1.20 (1.20 to 1.20), met.",
            "- HTTP/2, requests/s within 15 % of h2load: 1.10 (0.20 to 2.00), open, because",
            "- HTTP/2, requests/s within 15 % of oha --http2: –, not measured.",
        ):
            self.assertIn(line, text)
        columns = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        self.assertEqual(columns, {8}, text)


class Writing(unittest.TestCase):
    def test_document_of_a_busy_machine_is_refused_unless_forced(self):
        with tempfile.TemporaryDirectory() as directory:
            arguments = ["check-generators", "surus", directory, "--write", "page.md"]
            for load, more, is_refused in ((1.1, [], True), (1.1, ["--force"], False),
                                           (0.9, [], False)):
                with (
                    mock.patch.object(sys, "argv", arguments + more),
                    mock.patch.object(script.os, "getloadavg", return_value=(load, 0, 0)),
                    mock.patch.object(script, "serve", side_effect=RuntimeError("measures")),
                    contextlib.redirect_stderr(io.StringIO()),
                    self.assertRaises(SystemExit if is_refused else RuntimeError) as refused,
                ):
                    script.main()
                self.assertEqual("load average is 1.1" in str(refused.exception), is_refused)
