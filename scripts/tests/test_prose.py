"""Tests scripts/prose and scripts/wrap: what they find, and what they leave alone."""

import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
import sys


def load(name):
    path = str(Path(__file__).parents[1] / name)
    spec = spec_from_loader(f"script_{name}", SourceFileLoader(f"script_{name}", path))
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parents[1]))
prose, wrap = load("prose"), load("wrap")


def found(path, source):
    return [(line, name) for line, name, _ in prose.idioms(prose.prose(path, source))]


def said(text):
    return [name for _, name in found("page.md", text)]


class Idioms(unittest.TestCase):
    def test_each_pattern_finds_its_example(self):
        examples = set()
        for text, name in {
            "Who asks first is served.": "a sentence without a subject",
            "It is sent. Whose turn it is, waits.": "a sentence without a subject",
            "Whoever reads it copies it.": "a component that is a person",
            "A ring that nobody reads.": "a component that is a person",
            "The bits of who sleeps.": "a component that is a person",
            "Boots the application anew.": "anew",
            "It looked in vain.": "in vain",
            "This is wholly wrong.": "wholly",
            "PHP heeds the setting.": "heed",
            "It ends amid the answer.": "amid",
            "A file beside the other.": "beside",
            "A thread of ours.": "of ours",
            "It runs all the same.": "all the same",
            "All files but for the first.": "but for",
            "Which is to be sent.": "is to be",
            "Has it ended, nothing follows.": "an inversion",
            "The request in our hands.": "in our hands",
            "A letter waits in the ring.": "a private picture",
            "Rings the bell.": "a private picture",
            "Surus has the master process look.": "has somebody do",
            "The job comes again.": "comes again",
            "What becomes of it.": "becomes of",
            "What became of it.": "becomes of",
            "The jobs in hand.": "in hand",
            "A buffer is given back.": "given back",
            "It gives PHP its own tags back.": "given back",
            "After giving them\nall back.": "given back",
            "Late jobs are made up for.": "made up for",
            "A queue makes up for that.": "made up for",
            "In so many minutes.": "so many",
            "A worker that dies.": "a process that dies",
            "The server is already dead.": "a process that dies",
            "The client has gone.": "gone",
            "Pages hear of it.": "hear of",
            "A worker retires.": "retire",
            "It polls again and again.": "again and again",
        }.items():
            self.assertEqual(said(text), [name], text)
            examples.add(name)
        self.assertEqual(examples, set(prose.PATTERNS))

    def test_plain_words_are_not_idioms(self):
        for text in [
            "Users who run it choose a port.",
            "The file has besides two headers.",
            "The doorbell is an eventfd.",
            "Letters, digits and hyphens are allowed, in lower-case letters.",
            "The queue's dead letters and a guestbook.",
            "`nobody` is a user and `beside` is a variable.",
            "See [the page](beside.md).",
            "```\nWho am I, beside nobody?\n```",
            "The house style.",
            "They give the back-end its address. PHP gets back what it gave.",
            "Made up for the tests.",
            "RabbitMQ's address amqp://guest:guest@127.0.0.1 and its user 'guest'.",
            "Dead letters go to another queue, before the deadline.",
        ]:
            self.assertEqual(said(text), [], text)

    def test_sentences_go_over_lines(self):
        self.assertEqual(found("a.rs", "fn a() {}\n// It looked in\n// vain.\n"), [(2, "in vain")])
        self.assertEqual(found("a.rs", "// It looked in\n\n// vain.\n"), [])

    def test_only_comments_and_messages_of_rust_are_read(self):
        self.assertEqual(found("src/a.rs", 'fn beside() { let anew = r#"// anew"#; }\n'), [])
        self.assertEqual(
            found("src/a.rs", "let c = '\"'; // anew\nlet x = '\\''; /// anew"),
            [(1, "anew"), (2, "anew")],
        )
        self.assertEqual(found("src/a.rs", '\nerror!("the file is opened anew");'), [(2, "anew")])
        self.assertEqual(
            found("tests/a.rs", '\nassert!(is_open, "the file is opened anew");'), [(2, "anew")]
        )
        self.assertEqual(found("tests/a.rs", 'get("/guest?who=nobody");'), [])
        self.assertEqual(found("src/a.rs", 'run("<?php echo $anew;"); get("anew");'), [])
        self.assertEqual(found("src/a.rs", 'error!("opened anew");'), [(1, "anew")])
        for text in ("failed; opened anew", "a=b < 1 | $2: opened anew", r"\"a\"\n opened anew"):
            self.assertEqual(found("src/a.rs", f'error!("{text}");'), [(1, "anew")], text)
            self.assertEqual(found("sapi/a.c", f'surus_log("{text}");'), [(1, "anew")], text)
        self.assertEqual(found("src/a.rs", 'bail!("`{letter}` is unknown; {bell:?}");'), [])

    def test_names_of_tests_are_read(self):
        self.assertEqual(
            found("tests/a.rs", "\nfn job_comes_again_later() {}"), [(2, "comes again")]
        )
        self.assertEqual(found("tests/a.rs", "fn comes_again(a: u8) {}"), [])

    def test_comments_of_other_languages_are_read(self):
        self.assertEqual(
            found("a.c", 'int a; /* one\n * anew */\nchar *x = "/* anew */";'), [(2, "anew")]
        )
        self.assertEqual(
            found("a.php", "<?php\n# anew\n/** anew */ $a = '// anew';\n"),
            [(2, "anew"), (3, "anew")],
        )
        self.assertEqual(found("a.php", '<?php\nfail("$file opened anew");'), [(2, "anew")])
        self.assertEqual(
            found("a.py", '"""Begins\nanew."""\nx = "anew"  # anew\n'), [(3, "anew"), (2, "anew")]
        )
        self.assertEqual(found("run", "#!/bin/sh\n# anew\necho anew\n"), [(2, "anew")])
        for path in ("a.toml", "a.toml.example"):
            self.assertEqual(found(path, "# anew\na = 1\n"), [(1, "anew")], path)

    def test_comments_and_texts_of_yaml_are_read(self):
        for source, lines in [
            ("# anew\na: anew # b anew\nc: '# anew'\n", [1, 2]),
            ("a: 1\n{{- /* one\n   anew */ -}}\nb: {{ anew }}\n", [3]),
            ("- name: Opened anew\n  label: anew\n", [1]),
            ("description: >\n  It is\n  opened anew.\nother: opened anew\n", [3]),
            ('summary: "{{ anew }} is anew"\n', [1]),
            ("run: |\n  # anew\n  anew a b\n", [2]),
        ]:
            for path in ("a.yml", "a.yaml", "a.tpl"):
                self.assertEqual(found(path, source), [(n, "anew") for n in lines], source)

    def test_comments_and_texts_of_templates_are_read(self):
        for source, lines in [
            ("<!-- anew -->\n{# anew #}\n{{-- anew --}}\n", [1, 2, 3]),
            ("{{ anew }}{% anew %}{!! anew !!}", []),
            ("<p>\n  It is <b>opened</b>\n  anew.</p>\n<p class=anew>\n", [3]),
            ('<img alt="Opened anew"><input name="opened anew">\n', [1]),
            ("<code>anew</code> <pre>anew</pre> <?= $anew ?> <?php anew(); ?>\n", []),
            ("<script>\n// anew\na('anew'); b('opened anew');\n</script>", [2, 3]),
            ("<script>a(`${anew} anew`);</script>\n", [1]),
            ("<style>\n/* anew */\n.anew { a: 'an anew' }\n</style>\n", [2]),
            ("@foreach ($anew as $a)\nan&nbsp;d anew\n", [2]),
        ]:
            for path in ("a.html", "a.html.twig", "a.blade.php"):
                expected = sorted((n, "anew") for n in lines)
                self.assertEqual(sorted(found(path, source)), expected, source)
        self.assertEqual(found("a.php", "<?php a(); ?>\n<p>Anew it\nis anew</p>\n"), [(3, "anew")])
        self.assertEqual(found("a.php", "<?php\na(); // anew\n"), [(2, "anew")])
        self.assertEqual(found("a.css", "/* anew */\n.anew { b: url(//anew) }"), [(1, "anew")])
        self.assertEqual(found("a.js", "a('http://anew it', 1); // anew\n"), [(1, "anew")] * 2)

    def test_comments_in_code_of_pages_and_of_other_configuration_are_read(self):
        for language in ("yaml", "toml", "sh", "nginx", "caddyfile", "dockerfile"):
            page = f"Text\n\n```{language}\na\n# anew\n```\n"
            self.assertEqual(found("a.md", page), [(5, "anew")], language)
        page = "```php\na(); // anew\n```\n```text\n# anew\n```\n"
        self.assertEqual(found("a.md", page), [(2, "anew")])
        for path in ("a.conf", "a.service", "a.socket", "a.sysusers", "packaging/Dockerfile"):
            self.assertEqual(found(path, "# anew\nanew=1\n"), [(1, "anew")], path)

    def test_words_are_counted_once(self):
        self.assertEqual(
            prose.words(prose.prose("a.md", "Two words\nand three more `code not`.\n")), 6
        )


class Columns(unittest.TestCase):
    LONG = "word " * 30

    def long(self, path, source):
        return [number for number, _ in prose.long_lines(path, source)]

    def test_prose_and_every_line_of_rust_and_c_are_checked(self):
        self.assertEqual(self.long("a.md", f"short\n{self.LONG}"), [2])
        self.assertEqual(self.long("a.rs", f"// {self.LONG}\n    /// {self.LONG}\n"), [1, 2])
        self.assertEqual(
            self.long("a.c", f"int a; /* {self.LONG} */\nint {'b' * 99} = 1;\n"), [1, 2]
        )
        self.assertEqual(
            self.long("a.rs", f'let a = "{self.LONG}";\nlet b = r"\n{self.LONG}";\n'), [1, 3]
        )
        self.assertEqual(
            self.long("a.rs", f'call("{"x" * 100}");\nlet a = "`{self.LONG}`";\n'), [1, 2]
        )

    def test_lines_of_scripts_are_checked(self):
        for path in ["a.py", "Makefile"]:
            self.assertEqual(self.long(path, f"# {self.LONG}\nrun {self.LONG}\n"), [1, 2], path)
            self.assertEqual(self.long(path, f"# https://{'x' * 100}\n"), [], path)
        self.assertEqual(self.long("a.php", f"<?php\n// {self.LONG}\nrun({'1, ' * 40});\n"), [2, 3])
        self.assertEqual(
            self.long("a.php", f"{self.LONG}\n<?php\nrun('{self.LONG}');\n?>\n{self.LONG}"), []
        )
        self.assertEqual(self.long("tests/a.php", f"<?php // {self.LONG}\n"), [])
        for path in ["a.toml", "a.toml.example"]:
            source = f'# {self.LONG}\na = "{self.LONG}"\n#a = "{self.LONG}"\n'
            self.assertEqual(self.long(path, source), [1, 3], path)

    def test_comments_of_configuration_and_lines_of_templates_are_checked(self):
        source = f'# {self.LONG}\na: "{self.LONG}"\n'
        for path in ["a.yml", "a.yaml", "a.service", "Dockerfile"]:
            self.assertEqual(self.long(path, source), [1], path)
            self.assertEqual(self.long(f"tests/{path}", source), [], path)
        for path in ["a.html", "a.html.twig", "a.blade.php", "a.js"]:
            self.assertEqual(self.long(path, f"{self.LONG}\na\n"), [1], path)

    def test_what_cannot_be_wrapped_is_allowed(self):
        self.assertEqual(
            self.long("a.md", f"| {self.LONG} |\n\n```\n{self.LONG}\n```\n# {self.LONG}\n"), []
        )
        self.assertEqual(self.long("a.md", f"- `{self.LONG}`\nhttps://{'x' * 100}\n"), [])
        self.assertEqual(self.long("a.md", f"<!-- table -->\n{self.LONG}\n<!-- /table -->\n"), [])
        self.assertEqual(self.long("a.rs", f"/// <https://{'x' * 100}>\n// `{self.LONG}`\n"), [])


class Sentences(unittest.TestCase):
    LONG = "word " * 31

    def wrong(self, source, language="md"):
        return [line for line, _ in prose.wrong_sentences(language, source)]

    def test_sentence_of_31_words_is_long_wherever_it_begins(self):
        self.assertEqual(self.wrong(f"{'word ' * 30}."), [])
        self.assertEqual(self.wrong(f"One.\nTwo. {self.LONG}"), [2])
        self.assertEqual(self.wrong(f"Text\n- {'word ' * 16}\n  {'word ' * 16}"), [2])

    def test_tables_headings_and_code_are_not_sentences(self):
        self.assertEqual(
            self.wrong(f"# {self.LONG}\n| {self.LONG} |\n\n```\n{self.LONG}\n```\n"), []
        )
        self.assertEqual(self.wrong(f"`{self.LONG}` is one word."), [])

    def test_long_sentences_of_comments_are_found(self):
        half = "word " * 16
        for language, source, lines in [
            ("rs", f"a();\n/// One.\n/// {half}\n/// {half}\nfn b() {{}}\n", [3]),
            ("rs", f"// {half}\nlet a = 1;\n// {half}\n", []),
            ("rs", f"a, // {half}\nb, // {half}\n", []),
            ("rs", f"// {half}\n//\n// {half}\n", []),
            ("rs", f"// One.\n// SAFETY: {self.LONG}\n", []),
            ("rs", f"/// One:\n/// - {self.LONG}\n", []),
            ("rs", f'let a = "{self.LONG}";\n', []),
            ("c", f"/* One.\n * {half}\n * {half} */\n", [2]),
            ("c", f"int a; /* {half} */\nint b; /* {half} */\n", []),
            ("php", f"<?php\n/**\n * {half}\n * {half}\n */\n", [3]),
            ("php", f"<?php\n/**\n * {half}\n * @param int $a {half}\n */\n", []),
        ]:
            self.assertEqual(self.wrong(source, language), lines, source)

    def test_long_sentences_of_templates_and_configuration_are_found(self):
        half = "word " * 16
        for language, source, lines in [
            ("toml", f"# One.\n# {half}\n# {half}\na = 1\n", [2]),
            ("toml", f"#a = 1\n# {half}\n#[b]\n# {half}\n#c = 1\n", []),
            ("toml", f"# One:\n# - {half}\n#   {half}\n", []),
            ("yaml", f"# {half}\n# {half}\na: 1 # {self.LONG}\n", [1]),
            ("yaml", f"description: >\n  {half}\n  {half}\n", [2]),
            ("conf", f"# {self.LONG}\n", [1]),
            ("py", f"# {self.LONG}\n", [1]),
            ("sh", f"# {self.LONG}\n", [1]),
            ("html", f"<p>{half}</p><p>{half}</p>\n<p>One. {half}\n<b>{half}</b></p>", [2]),
            ("html", f"<!-- {self.LONG} -->\n", [1]),
            ("js", f"// {half}\n// {half}\n", [1]),
            ("css", f"/* {self.LONG} */\n", [1]),
            ("php", f"<?php a(); ?>\n<p>{self.LONG}</p>\n", [2]),
            ("md", f"```yaml\n# {self.LONG}\n```\n", [2]),
        ]:
            self.assertEqual(self.wrong(source, language), lines, source)

    def test_only_descriptions_of_items_begin_with_what(self):
        for language, source, lines in [
            ("rs", "    /// What is wrong.\n    why: String,\n", []),
            ("rs", "    /// The reason. What is\n    /// wrong stays.\n", [1]),
            ("rs", "    // What is wrong stays.\n", [1]),
            ("c", "/* What is wrong. */\nchar *why;\n", []),
            ("c", "\tchar *why; /* What is wrong. */\n", []),
            ("c", "\t/* What is wrong stays. */\n", [1]),
            ("php", "<?php\n    /** What is wrong. */\n", []),
            ("php", "<?php\n    // What is wrong stays.\n", [2]),
            ("toml", "# What is wrong.\n#a = 1\n# One. What is left stays.\n#b = 1\n", [3]),
            ("yaml", "# What is wrong.\na: 1\n", []),
            ("html", "<p>What is wrong stays.</p>", [1]),
        ]:
            self.assertEqual(self.wrong(source, language), lines, source)

    def test_statement_that_begins_with_what_is_found(self):
        self.assertEqual(self.wrong("One. What is\nleft stays.\n\n- What is old goes.\n"), [1, 4])
        for text in [
            "What is left?",
            "What is left:\n\n- one\n",
            "# What is left\n\nA line.",
            "| What is left. |",
            "Say what is left.",
        ]:
            self.assertEqual(self.wrong(text), [], text)


class Cells(unittest.TestCase):
    def test_cell_of_251_characters_is_long_unless_a_program_writes_it(self):
        for source, found in [
            (f"| {'x' * 250} | a |\n", []),
            (f"| a |\n| {'x' * 251} |\n", [(2, 251)]),
            (f"| {'x' * 125} \\| {'x' * 125} |\n", [(1, 254)]),
            (f"<!-- table -->\n| {'x' * 251} |\n<!-- /table -->\n", []),
            (f"```\n| {'x' * 251} |\n```\n", []),
        ]:
            self.assertEqual(list(prose.long_cells(source)), found, source)


class Wrap(unittest.TestCase):
    def test_long_paragraphs_are_wrapped_and_others_stay(self):
        long = "word " * 30
        text = f"Two\nlines.\n\n- {long.strip()}\n- short\n\n| {long} |\n"
        lines = wrap.markdown(text).split("\n")
        self.assertEqual(lines[:3], ["Two", "lines.", ""])
        self.assertTrue(lines[3].startswith("- word") and lines[4].startswith("  word"))
        self.assertIn("- short", lines)
        self.assertIn(f"| {long} |", lines)
        self.assertEqual("".join(wrap.markdown(text).split()), "".join(text.split()))

    def test_wrapped_files_have_no_long_lines(self):
        long = "word " * 30
        for path, source, by in [
            ("a.md", f"{long}\n", wrap.markdown),
            ("a.rs", f"    /// {long}\n", wrap.rust),
            ("a.c", f"\t/* {long}*/\n", wrap.c),
            ("a.c", f"\tint a; /* {long}*/\n", wrap.c),
            ("a.py", f"    # {long}\n", wrap.hashes),
            ("a.php", f"<?php\n    // {long}\n", wrap.php),
            (
                "a.php",
                f"<?php\n    /** {long} */\n/**\n * {long}\n * @param {long}\n */\n",
                wrap.php,
            ),
        ]:
            self.assertEqual(list(prose.long_lines(path, by(source))), [], source)

    def test_no_word_becomes_a_list(self):
        text = "x" * 97 + " - and + one 1. two # three " + "word " * 10
        for line in wrap.markdown(text).split("\n"):
            self.assertIsNone(wrap.START.match(line), line)


if __name__ == "__main__":
    unittest.main()
