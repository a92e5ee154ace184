"""Can a chart be read by everybody: with any names, in light and dark, and without seeing it?"""

import re
import unittest
from xml.etree import ElementTree

import chart
from chart import Bar, Group

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*groups: Group) -> ElementTree.Element:
    names = list(dict.fromkeys(bar.name for group in groups for bar in group.bars))
    return ElementTree.fromstring(chart.svg("A title", "An explanation " * 20, list(groups), names))


def bars(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") != "back"]


class AChart(unittest.TestCase):
    def test_draws_bars_as_long_as_medians_and_lines_from_least_to_most(self):
        root = drawn(Group("page", [Bar("a", [1.0]), Bar("b", [1.0, 2.0, 4.0])]))
        one, two = (float(rect.get("width")) for rect in bars(root))
        self.assertAlmostEqual(two, 2 * one, delta=0.2)
        (spread,) = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "spread"]
        low, high = map(float, re.match(r"M([\d.]+) [\d.]+H([\d.]+)M", spread).groups())
        self.assertAlmostEqual(high - low, 3 * one, delta=0.2)

    def test_has_no_line_where_there_is_no_spread(self):
        root = drawn(Group("page", [Bar("a", [1.0, 1.0]), Bar("b", [3.0])]))
        self.assertEqual([path for path in root.iter(f"{SVG}path") if path.get("class") == "spread"], [])

    def test_keeps_all_text_inside_and_apart(self):
        long = "A server with a name that is much too long for any chart <&> of it"
        root = drawn(*(Group(f"page {page}", [Bar("a", [1.0]), Bar(long, [0.1, 30.0, 71.5], "1,234,567/s *")]) for page in range(3)))
        height = float(root.get("height"))
        taken = []
        for text in root.iter(f"{SVG}text"):
            kind, size = text.get("class"), chart.SMALL if "soft" in text.get("class") else chart.TEXT
            # What a font needs, without what chart.py adds for wide ones.
            width = 0.55 * size * len(text.text)
            x, y = float(text.get("x")), float(text.get("y"))
            x -= {"end": width, "soft middle": width / 2}.get(kind, 0)
            self.assertTrue(0 <= x and x + width <= chart.WIDTH and size <= y <= height - 4, (text.text, x, y))
            for other, left, right, baseline in taken:
                apart = x >= right or x + width <= left or abs(baseline - y) >= size
                self.assertTrue(apart, (text.text, other))
            taken.append((text.text, x, x + width, y))

    def test_says_the_same_in_words(self):
        root = drawn(Group("Hello & page", [Bar("a", [1.0]), Bar("<b>", [1.0, 2.0, 4.0])]))
        self.assertEqual(root.get("role"), "img")
        names = {element.get("id"): element.text for element in root if element.get("id")}
        self.assertEqual(root.get("aria-labelledby").split(), list(names))
        self.assertEqual(names, {"title": "A title", "desc": "Hello & page: a 1.00, <b> 2.00."})

    def test_loads_nothing(self):
        text = chart.svg("t", "e", [Group("page", [Bar("a", [1.0])])], ["a"])
        self.assertEqual(re.findall(r"https?://[^\"]*|url\(|@import|@font-face|<script|href", text), ["http://www.w3.org/2000/svg"])

    def test_has_a_scale_for_small_and_large_values(self):
        for most in (0.2, 1.0, 3.7, 40.0, 5000.0):
            root = drawn(Group("page", [Bar("a", [most])]))
            ticks = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "soft middle"]
            self.assertTrue(2 <= len(ticks) <= 16, ticks)
            self.assertEqual(ticks[0], "0×")

    def test_gives_a_name_the_same_colour_whoever_else_is_in_it(self):
        alone = chart.svg("t", "e", [Group("page", [Bar("b", [1.0])])], ["a", "b"])
        self.assertIn('<rect class="c1"', alone)

    def test_survives_more_names_than_there_are_colours(self):
        self.assertEqual(len(bars(drawn(Group("page", [Bar(str(number), [1.0]) for number in range(30)])))), 30)


class Colours(unittest.TestCase):
    def test_stand_out_from_their_background(self):
        for light, dark in chart.COLOURS:
            self.assertGreaterEqual(contrast(light, chart.LIGHT["back"]), 3, light)
            self.assertGreaterEqual(contrast(dark, chart.DARK["back"]), 3, dark)

    def test_of_text_can_be_read(self):
        for base in (chart.LIGHT, chart.DARK):
            for what in ("text", "soft"):
                self.assertGreaterEqual(contrast(base[what], base["back"]), 4.5, base[what])


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
