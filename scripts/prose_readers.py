"""Finds the prose of a file for scripts/prose: comments, messages, names of tests, pages, and the
texts of templates and of YAML.
"""

import io
import re
import tokenize
from bisect import bisect_right
from dataclasses import dataclass
from html import unescape
from itertools import takewhile

WORD = re.compile(r"[A-Za-z][A-Za-z']*")


@dataclass
class Text:
    """Prose of a file: what a reader reads in one go, with the line of each of its lines."""

    lines: list[tuple[int, str]]

    def joined(self) -> str:
        """With single spaces: a sentence may go over lines."""
        return " ".join(" ".join(text.split()) for _, text in self.lines)

    def line_at(self, offset: int) -> int:
        starts, at = [], 0
        for _, text in self.lines:
            starts.append(at)
            at += len(" ".join(text.split())) + 1
        return self.lines[bisect_right(starts, offset) - 1][0]


def blocks(lines: list[tuple[int, str]]) -> list[Text]:
    """Lines that follow each other are one text; an empty one ends it."""
    found: list[Text] = []
    before = None
    for number, text in lines:
        if not text.strip():
            before = None
            continue
        if before is not None and number <= before + 1:
            found[-1].lines.append((number, text))
        else:
            found.append(Text([(number, text)]))
        before = number
    return found


# Comments and string literals of Rust, C and PHP. The first in the text wins.
CURLY = re.compile(
    r"""(?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<raw>\bb?r(?P<hashes>\#*)".*?"(?P=hashes))
      | (?P<text>"(?:\\.|[^"\\])*")
      | (?P<char>'(?:\\.[^']{0,8}|[^'\\\n])')
    """,
    re.VERBOSE | re.DOTALL,
)
PHP = re.compile(
    r"""(?P<line>(?://|\#(?!\[))[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<raw><<<(?P<quote>['"]?)(?P<end>\w+)(?P=quote)\n.*?\n\s*(?P=end)\b)
      | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    """,
    re.VERBOSE | re.DOTALL,
)
# The fewest words of a message. A text without spaces is none: a path, a name.
MESSAGE_WORDS = 2
# What PHP puts into a string.
VALUE = re.compile(r"\{?\$\w+(?:->\w+|\[\w+\])*\}?")
# Names of tests are sentences: subject, condition, result.
TEST_NAME = re.compile(r"\bfn ([a-z0-9]+(?:_[a-z0-9]+){3,})\(")
# Anything but markup and PHP. Messages may have all signs, such as `;` and `=`.
MESSAGE = re.compile(r"[^<\s].*", re.DOTALL)
# An escape, and what Rust puts into a string.
ESCAPE = re.compile(r"\\.|(?<!\{)\{\w*(?::[^{}]*)?\}", re.DOTALL)


def curly(source: str, pattern: re.Pattern[str], messages: bool) -> tuple[list[Text], set[int]]:
    """The comments (and messages), and the numbers of the lines that are comments."""
    comments: list[tuple[int, str]] = []
    spoken: list[Text] = []
    covered: set[int] = set()
    for match in pattern.finditer(source):
        number = source.count("\n", 0, match.start()) + 1
        if match["line"] is not None:
            covered.add(number)
            comments.append((number, re.sub(r"^(?://[/!]?|#)", "", match["line"])))
        elif match["block"] is not None:
            for index, text in enumerate(match["block"][2:-2].split("\n")):
                covered.add(number + index)
                comments.append((number + index, re.sub(r"^\s*\*+\s?", "", text)))
        elif messages and match["text"] is not None:
            text = re.sub(r"\\\n\s*", "", match["text"][1:-1])
            if pattern is PHP:
                text = VALUE.sub("VALUE", text)
            elif pattern is JS:
                text = re.sub(r"\$\{[^{}]*\}", "VALUE", text)
            text = ESCAPE.sub(lambda it: " " if it[0][0] == "\\" else "VALUE", text).strip()
            is_prose = " " in text and len(WORD.findall(text)) >= MESSAGE_WORDS
            if is_prose and MESSAGE.fullmatch(text):
                spoken.append(Text([(number, text.replace("\n", " "))]))
    return blocks(comments) + spoken, covered


def test_names(source: str) -> list[Text]:
    """Names of functions that have at least four words, as sentences."""
    return [
        Text([(source.count("\n", 0, match.start()) + 1, match[1].replace("_", " "))])
        for match in TEST_NAME.finditer(source)
    ]


def python(source: str) -> list[Text]:
    comments, texts = [], []
    before = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            comments.append((token.start[0], token.string.lstrip("#")))
        elif token.type == tokenize.STRING and before in (None, tokenize.NEWLINE, tokenize.INDENT):
            for index, text in enumerate(token.string.strip("\"'").split("\n")):
                texts.append((token.start[0] + index, text))
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.DEDENT):
            before = token.type
    return blocks(comments) + blocks(texts)


def hashes(source: str) -> list[Text]:
    """Shell, TOML, make and files of configuration: comments that have lines of their own."""
    lines = enumerate(source.split("\n"), 1)
    stripped = ((number, line.strip()) for number, line in lines)
    return blocks(
        [
            (n, line.lstrip("#@ "))
            for n, line in stripped
            if line.startswith("#") and not line.startswith("#!")
        ]
    )


def toml(source: str) -> list[Text]:
    """Comments, without settings that a `#` turns off: `#key = 1`."""
    lines = re.sub(r"(?m)^#(?=[\w\[])", "", source)
    return hashes(lines)


# Comments of Helm's templates.
HELM = re.compile(r"\{\{-?\s*/\*(.*?)\*/\s*-?\}\}", re.DOTALL)
# Values that people read: of forms for issues, of charts, of alerts.
SPOKEN = re.compile(
    r"(?P<indent>\s*(?:- )?)(?:about|description|label|name|summary|title|value):\s+(?P<value>.*)"
)


def yaml(source: str) -> list[Text]:
    comments, spoken = [], []
    lines = source.split("\n")
    for match in HELM.finditer(source):
        begin = source.count("\n", 0, match.start(1)) + 1
        comments += enumerate(match[1].split("\n"), begin)
    for number, line in enumerate(lines, 1):
        comment = re.search(r"(?:^|\s)#+ ?(?!!)(.*)", line)
        if comment and line.count('"', 0, comment.start()) % 2 == 0:
            comments.append((number, comment[1]))
            line = line[: comment.start()]
        match = SPOKEN.fullmatch(line)
        if match is None:
            continue
        value = [(number, match["value"].strip("\"'"))]
        if re.fullmatch(r"[>|]-?", match["value"]):
            rest = enumerate(lines[number:], number + 1)
            inside = " " * (len(match["indent"]) + 1)
            value = list(takewhile(lambda it: it[1].startswith(inside), rest))
        value = [(at, re.sub(r"\{\{.*?\}\}", "VALUE", text)) for at, text in value]
        joined = " ".join(text.strip() for _, text in value)
        if " " in joined and len(WORD.findall(joined)) >= MESSAGE_WORDS:
            spoken.append(Text(value))
    return blocks(sorted(comments)) + spoken


JS = re.compile(
    r"""(?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)
    """,
    re.VERBOSE | re.DOTALL,
)
# Only block comments.
CSS = re.compile(r"(?P<line>(?!))|(?P<block>/\*.*?\*/)|(?P<text>(?!))", re.DOTALL)
# HTML, with what Twig, Blade, PHP and Surus put into it. Anything else is text.
MARKUP = re.compile(
    r"""<!--(?P<html>.*?)-->|\{\#(?P<twig>.*?)\#\}|\{\{--(?P<blade>.*?)--\}\}
      | <script\b[^>]*>(?P<script>.*?)</script>
      | <style\b[^>]*>(?P<style>.*?)</style>
      | (?P<value><\?=.*?\?>|\{\{.*?\}\}|\{!!.*?!!\}|<(?P<raw>code|kbd)\b[^>]*>.*?</(?P=raw)>)
      | (?P<code><\?.*?(?:\?>|\Z)|\{%.*?%\}|(?m:^)[ ]*@\w[^\n]*|<pre\b.*?</pre>)
      | <!?/?(?P<tag>[a-zA-Z][\w-]*)(?P<attributes>(?:[^>"']|"[^"]*"|'[^']*')*)>
    """,
    re.VERBOSE | re.DOTALL,
)
ATTRIBUTE = re.compile(r"\b(?:alt|aria-label|placeholder|title)=\"([^\"]*)\"")
INLINE = ("a", "abbr", "b", "em", "i", "small", "span", "strong", "wbr")


def markup(source: str, is_page: bool = True) -> list[Text]:
    """The texts of a template, and if it is no PHP also its comments, scripts and styles."""
    found: list[Text] = []
    comments: list[tuple[int, str]] = []
    # Lines of the paragraph so far.
    text: dict[int, str] = {}

    def end():
        if any(WORD.search(line) for line in text.values()):
            found.append(Text(list(text.items())))
        text.clear()

    def add(piece: str, offset: int):
        number = source.count("\n", 0, offset) + 1
        for index, line in enumerate(unescape(piece).split("\n")):
            text[number + index] = text.get(number + index, "") + line

    at = 0
    for match in MARKUP.finditer(source):
        add(source[at : match.start()], at)
        at = match.end()
        number = source.count("\n", 0, match.start()) + 1
        for name in ("html", "twig", "blade"):
            if match[name] is not None:
                comments += enumerate(match[name].split("\n"), number)
        for name, pattern in (("script", JS), ("style", CSS)):
            if match[name] is not None and is_page:
                before = "\n" * source.count("\n", 0, match.start(name))
                found += curly(before + match[name], pattern, True)[0]
        if match["value"] is not None:
            add("VALUE", match.start())
        for said in ATTRIBUTE.finditer(match["attributes"] or ""):
            if len(WORD.findall(said[1])) >= MESSAGE_WORDS:
                found.append(Text([(number, unescape(said[1]))]))
        if match["tag"] is not None and match["tag"].lower() not in INLINE:
            end()
    add(source[at:], at)
    end()
    return found + (blocks(comments) if is_page else [])


def markdown_lines(source: str):
    """The lines outside code blocks, whether each is of a table or otherwise cannot be wrapped, and
    whether a program writes it."""
    fenced = made = False
    for number, line in enumerate(source.split("\n"), 1):
        # Between such marks, a program writes.
        made = not line.startswith("<!-- /") and (made or line.startswith("<!-- "))
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        elif not fenced and not re.match(r"(    |\t)(?!([-*+]|\d+[.)]) )", line):
            fixed = (
                made
                or re.match(r"\s*(\||#|<|!?\[[^\]]*\](:|\([^)]*\)$)|https?://)", line) is not None
            )
            yield number, line, fixed, made


def markdown(source: str) -> list[Text]:
    lines = []
    for number, line, _, _ in markdown_lines(source):
        text = re.sub(r"`[^`]*`", "CODE", re.sub(r"\]\([^)]*\)", "]", line))
        # An item, a cell and a heading begin a sentence.
        text = re.sub(r"^\s*(?:[-*>#]+|\d+\.)\s+", "", text)
        lines += (
            [(number, cell) for cell in text.split("|")]
            if line.lstrip().startswith("|")
            else [(number, text)]
        )
    return blocks(lines)


# Languages of blocks in Markdown that have comments, and their readers.
FENCED = {
    "caddyfile": hashes,
    "dockerfile": hashes,
    "nginx": hashes,
    "php": lambda source: curly(source, PHP, False)[0],
    "sh": hashes,
    "toml": toml,
    "yaml": yaml,
}


def fenced(source: str) -> list[Text]:
    """What is said in the blocks of code of a Markdown file."""
    found = []
    for match in re.finditer(r"(?ms)^ *```(\w+)\n(.*?)^ *```$", source):
        if reader := FENCED.get(match[1]):
            found += reader("\n" * source.count("\n", 0, match.start(2)) + match[2])
    return found


@dataclass
class Comment:
    line: int
    text: str
    describes: bool  # the code next to it, such as a field


def comments(language: str, source: str) -> list[Comment]:
    """Those of Rust, C or PHP. Lines with the same mark are one, if nothing is between them."""
    found: list[Comment] = []
    last = ""
    for match in (PHP if language == "php" else CURLY).finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        code = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
        if match["line"] is not None:
            mark, text = re.fullmatch(r"(//[/!]?|#) ?(.*)", match["line"]).groups()
            follows = found and line == found[-1].line + found[-1].text.count("\n") + 1
            if follows and mark == last and not code.strip():
                found[-1].text += f"\n{text}"
            else:
                found.append(Comment(line, text, mark in ("///", "//!")))
            last = mark
        elif match["block"] is not None:
            text = re.sub(r"(?m)^[ \t]*(?:\*+ ?)?", "", match["block"][2:-2])
            inside = language == "c" and code and not code.strip()
            describes = match["block"].startswith("/**") if language == "php" else not inside
            found.append(Comment(line, text, describes))
            last = ""
    return found


