"""Are the page, its charts and the table of the README whole, whatever was measured?"""

import re
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import publish
from results import Results
from server import Refused
from tests.made_up import ABOUT, cell, everything, loads


class ThePage(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.docs = Path(scratch.name) / "docs"

    def publish(self, results: Results) -> tuple[str, list[str]]:
        publish.publish(results, self.docs)
        charts = sorted(path.name for path in (self.docs / "performance").iterdir())
        for name in charts:
            ElementTree.parse(self.docs / "performance" / name)
        return (self.docs / "performance.md").read_text(), charts

    def test_shows_every_chart_that_there_is(self):
        page, charts = self.publish(everything())
        self.assertEqual(sorted(re.findall(r"\]\(performance/([^)]+)\)", page)), charts)
        self.assertEqual(
            charts,
            [f"{group}-{connections}.svg" for group in ("applications", "php-pages", "static-files") for connections in (1, 64)],
        )

    def test_keeps_no_chart_of_an_earlier_run(self):
        self.publish(everything())
        _, charts = self.publish(Results(ABOUT, [cell("hello", 64, nginx=loads(1), classic=loads(2))]))
        self.assertEqual(charts, ["php-pages-64.svg"])

    def test_draws_no_chart_without_a_reference(self):
        page, charts = self.publish(Results(ABOUT, [cell("hello", 64, classic=loads(2))]))
        self.assertEqual(charts, [])
        self.assertIn("| Surus classic | 2 |", page)

    def test_is_whole_when_nothing_was_measured(self):
        page, charts = self.publish(Results(ABOUT))
        self.assertEqual(charts, [])
        self.assertIn("| Date | 2000-01-01 |", page)


class TheReadme(unittest.TestCase):
    def test_changes_between_the_marks_alone(self):
        before = "above\n<!-- benchmark -->\nold\n<!-- /benchmark -->\nbelow\n"
        after = publish.with_short_table(before, everything())
        self.assertTrue(after.startswith("above\n<!-- benchmark -->\nRequests/s"))
        self.assertTrue(after.endswith("|\n<!-- /benchmark -->\nbelow\n"))
        self.assertNotIn("old", after)
        self.assertEqual(publish.with_short_table(after, everything()), after)

    def test_without_marks_is_refused(self):
        with self.assertRaisesRegex(Refused, "benchmark"):
            publish.with_short_table("no marks", everything())

    def test_keeps_its_table_when_no_page_was_measured(self):
        with self.assertRaisesRegex(Refused, "no page was measured"):
            publish.with_short_table("<!-- benchmark -->\nold\n<!-- /benchmark -->\n", Results(ABOUT))

    def test_of_the_project_has_the_marks(self):
        publish.with_short_table((publish.REPOSITORY / "README.md").read_text(), everything())
