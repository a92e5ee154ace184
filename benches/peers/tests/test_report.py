"""Does the Markdown say what was measured, and no more?"""

import unittest
from dataclasses import replace

import report
from results import Results
from slow import Beside
from tests.made_up import ABOUT, PAGE, cell, everything, load, loads


def plain(text: str) -> str:
    return text.replace(report.SPACE, " ").replace(report.TO, "–")


def rows(text: str) -> list[list[str]]:
    text = plain(text)
    return [[value.strip() for value in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")]


class Tables(unittest.TestCase):
    def test_compare_with_the_better_reference_of_the_same_round(self):
        measured = cell(
            "hello", 64,
            nginx=loads(1000, 500, 1000, cpu_us=40.0),
            kept=loads(1200, 600, 1200, cpu_us=50.0),
            classic=loads(2400, 1800, 1200, cpu_us=20.0),
        )  # fmt: skip
        _, _, _, nginx, kept, classic = rows(report._table([measured]))
        self.assertEqual(nginx[1:5], ["1,000", "0.83 (0.83–0.83)", "40.0 µs", "1"])
        self.assertEqual(kept[1:5], ["1,200", "1", "50.0 µs", "1.25 (1.25–1.25)"])
        self.assertEqual(classic[1:5], ["1,800", "2.00 (1.00–3.00)", "20.0 µs", "0.50 (0.50–0.50)"])

    def test_show_how_far_p99_went(self):
        measured = cell("hello", 1, nginx=[load(1, p99_us=99), load(1, p99_us=200), load(1, p99_us=28_680)])
        self.assertEqual(rows(report._table([measured]))[3][-1], "200 µs (99 µs–28.7 ms)")

    def test_of_one_round_have_no_spread(self):
        measured = cell("hello", 1, nginx=loads(1000), classic=loads(2000))
        self.assertEqual(rows(report._table([measured]))[4][2:], ["2.00", "50.0 µs", "1.00", "90 µs", "900 µs"])

    def test_have_no_ratio_where_no_reference_was_measured(self):
        measured = cell("hello", 1, classic=loads(2000, 2100, 2200))
        self.assertEqual(rows(report._table([measured]))[3][1:5], ["2,100", "", "50.0 µs", ""])

    def test_say_where_wrk_was_the_limit(self):
        measured = cell("hello", 1, nginx=loads(1000), classic=loads(2000, wrk_busy=0.97))
        text = plain(report._table([measured]))
        self.assertIn("| 2,000 * |", text)
        self.assertNotIn("| 1,000 * |", text)
        self.assertIn("\\* wrk itself was at least 95%", text)

    def test_survive_a_name_with_a_bar(self):
        self.assertEqual(report._escaped("a | b"), "a \\| b")


class Alone(unittest.TestCase):
    def test_is_added_up(self):
        text = plain(report.markdown(Results(ABOUT, alone=everything().alone)))
        self.assertIn("| nginx without PHP | 6.0 µs | 8.5 µs | 14.5 µs |", text)


class Spared(unittest.TestCase):
    def test_says_how_much_faster_it_can_get(self):
        text = plain(report.markdown(Results(ABOUT, spared=everything().spared)))
        self.assertIn("| nginx + php-fpm | 11.0 ms (10.0–12.0 ms) | 10.0 ms (10.0–10.0 ms) | 2.10 (2.00–2.20) |", text)


class ASlowScript(unittest.TestCase):
    def test_may_leave_the_fast_one_without_an_answer(self):
        three = loads(1, 1, 1)
        text = plain(report.markdown(Results(ABOUT, slow_scripts={"nginx": Beside(three, [None, *three], [None, None])})))
        same = "900 µs (900–900 µs)"
        self.assertIn(f"| nginx | {same} | {same}; no answer in 1 of 4 rounds | no answer in 2 of 2 rounds |", text)


class AllOfIt(unittest.TestCase):
    def test_has_a_table_for_each_page_and_part(self):
        text = report.markdown(everything())
        for page in PAGE.values():
            self.assertEqual(text.count(f"### {page.title}\n"), 1)
        for heading in ("PHP pages", "Applications", "Static files", "What a server adds", "Beside a slow script", "Memory", "When a worker ends"):
            self.assertEqual(text.count(f"\n## {heading}\n"), 1)
        self.assertIn("| Rounds | 3 of 5 s,", text)
        self.assertIn("Rounds are of 10 s.", text)
        self.assertIn("| Surus rewind | 0.3 ms (0.2–0.5 ms) | 2.3 ms (2.2–3.0 ms) | 2.0 ms | 1 of 4 |", plain(text))
        self.assertIn("| Surus rewind | 20.0 MiB | 34.0 MiB | 3.5 MiB |", text)

    def test_leaves_the_goals_out(self):
        self.assertNotIn("goal", report.markdown(everything()))
        self.assertIn("- met: Surus rewind: 3.5 MiB for one more worker; goal below 5", report.goals(everything()))
        self.assertIn("- met: Surus rewind: another worker is ready after 2.0 ms; goal at most 5", report.goals(everything()))

    def test_leaves_out_what_was_not_measured(self):
        text = report.markdown(Results({}))
        self.assertNotIn("##", text)
        self.assertIn("| Machine | not recorded; not recorded |", text)
        self.assertEqual(report.goals(Results({})), "")

    def test_keeps_pages_that_the_table_of_pages_does_not_have(self):
        page = replace(PAGE["hello"], name="own", title="A page of our own")
        text = report.markdown(Results(ABOUT, [cell(page, 64, nginx=loads(1))]))
        self.assertIn("### A page of our own\n", text)


class TheShortTable(unittest.TestCase):
    def test_has_the_most_connections_and_marks_the_fastest(self):
        cells = [
            cell("hello", connections, nginx=loads(1000), standby=loads(9000), classic=loads(2000 + connections))
            for connections in (1, 64)
        ]
        text = report.short(Results(ABOUT, cells))
        self.assertEqual(
            rows(text),
            [
                ["", "nginx + php-fpm", "Surus classic"],
                ["---|---:|---:"],
                ["Hello-world JSON", "1,000 · 50 µs", "**2,064 · 50 µs**"],
            ],
        )
        self.assertIn("with 64 connections", text)

    def test_leaves_a_place_empty_where_somebody_is_missing(self):
        cells = [
            cell("hello", 64, nginx=loads(1000), kept=loads(1100)),
            cell("wordpress", 64, nginx=loads(1000)),
            cell("symfony-json", 64, classic=loads(1000)),
        ]
        self.assertEqual(rows(report.short(Results(ABOUT, cells)))[3:], [["WordPress front page", "**1,000 · 50 µs**", ""]])

    def test_has_three_pages_or_else_all(self):
        pages = [cell(page, 64, nginx=loads(1000)) for page in ("hello", "html", "symfony-json", "wordpress")]
        self.assertEqual(len(rows(report.short(Results(ABOUT, pages)))), 2 + 3)
        self.assertEqual(len(rows(report.short(Results(ABOUT, [pages[1]])))), 2 + 1)
