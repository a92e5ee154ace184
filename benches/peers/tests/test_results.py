"""Is what is read what was written?"""

import json
import tempfile
import unittest
from pathlib import Path

from results import Results, read
from server import Refused
from slow import Beside
from tests import made_up


class TheFile(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = Path(scratch.name) / "below" / "peers.json"

    def test_has_everything(self):
        results = made_up.everything()
        results.write(self.path)
        back = read(self.path)
        # JSON has no tuples.
        self.assertEqual([cell.loads for cell in back.cells], [cell.loads for cell in results.cells])
        self.assertEqual([cell.page.name for cell in back.cells], [cell.page.name for cell in results.cells])
        self.assertEqual((back.about, back.round_trips, back.slow_scripts, back.sizes, back.replacements, back.alone, back.spared),
                         (results.about, results.round_trips, results.slow_scripts, results.sizes, results.replacements, results.alone, results.spared))

    def test_has_rounds_without_an_answer(self):
        beside = Beside([], [None, made_up.load(1)], [None])
        Results({}, slow_scripts={"nginx": beside}).write(self.path)
        self.assertEqual(read(self.path).slow_scripts, {"nginx": beside})

    def test_may_lack_parts_and_have_other_fields(self):
        made_up.everything().write(self.path)
        raw = json.loads(self.path.read_text())
        raw["pages"][0]["page"]["symfony"] = False
        del raw["pages"][0]["page"]["booted_least"]
        del raw["memory"]
        del raw["replacement"]
        self.path.write_text(json.dumps(raw))
        back = read(self.path)
        self.assertEqual(back.cells[0].page.name, "hello")
        self.assertEqual((back.sizes, back.replacements), ({}, {}))

    def test_forgets_who_has_no_round(self):
        made_up.everything().write(self.path)
        raw = json.loads(self.path.read_text())
        raw["pages"][0]["loads"]["Apache mod_php"] = []
        self.path.write_text(json.dumps(raw))
        self.assertNotIn("Apache mod_php", read(self.path).cells[0].loads)

    def test_is_refused_by_name_when_it_is_missing_or_something_else(self):
        with self.assertRaisesRegex(Refused, "peers.json does not exist; make bench"):
            read(self.path)
        self.path.parent.mkdir()
        for text in ("", "[]", '{"pages": []}', '{"about": {}, "pages": [{"page": {}}]}'):
            self.path.write_text(text)
            with self.assertRaisesRegex(Refused, "peers.json is not what make bench writes"):
                read(self.path)
