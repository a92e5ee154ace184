"""Compares `php` with src/engines/external/cli.php to php-cgi.

    python3 -m unittest tests/php/external/cli_driver.py

sends the same requests to both: to the driver over descriptors, to php-cgi in its environment. It compares status, headers
and body. A case with a permanent difference gives the reason and the driver's own value.
"""

import fcntl
import http
import os
import re
import subprocess
import tempfile
import textwrap
import unittest
from dataclasses import dataclass, field
from pathlib import Path

EXTERNAL = Path(__file__).resolve().parents[3] / "src/engines/external"
VERSION = subprocess.check_output(["php-config", "--version"], text=True).rpartition(".")[0]
PHP, PHP_CGI = f"/usr/bin/php{VERSION}", f"/usr/bin/php-cgi{VERSION}"
# Both use the settings of a web server.
INI, CONF = f"/etc/php/{VERSION}/cgi/php.ini", f"/etc/php/{VERSION}/cgi/conf.d"
DISABLED = ",".join((EXTERNAL / "cli.functions").read_text().split())
# The parts that cli.rs joins to one file.
PARTS = re.findall(r'include_str!\("(.+\.php)"\)', (EXTERNAL / "cli.rs").read_text())
BUILT = tempfile.TemporaryDirectory(prefix="driver")
DRIVER = Path(BUILT.name) / "cli.php"
DRIVER.write_text("<?php\n" + "".join((EXTERNAL / part).read_text().removeprefix("<?php\n") for part in PARTS))
ARGUMENTS = ["-d", "auto_prepend_file=", "-d", "auto_append_file=", "-d", "session.auto_start=0"]


@dataclass
class Case:
    """A request of `script`. `php` is its text unless `files` has it; text that `mask` matches may differ."""

    name: str
    php: str = ""
    query: str = ""
    method: str = ""
    type: str = "application/x-www-form-urlencoded"
    body: bytes | None = None
    variables: dict = field(default_factory=dict)
    path_info: str = ""
    script: str = "index.php"
    files: dict = field(default_factory=dict)
    ini: str = ""
    mask: str = ""
    # The reason for a difference, and the driver's expected value.
    differs: str = ""
    instead: str = ""


@dataclass
class Answer:
    status: str
    headers: dict
    body: str

    @staticmethod
    def of(head: bytes, body: bytes, mask: str) -> "Answer":
        hide = (lambda text: re.sub(mask, "<masked>", text)) if mask else (lambda text: text)
        status, headers = "200", {}
        for line in hide(head.decode("latin-1")).split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "status":
                # Only a script's own reason phrase must arrive; the server adds the standard ones.
                status, _, reason = value.strip().partition(" ")
                if reason not in ("", *(known.phrase for known in http.HTTPStatus if known == int(status))):
                    status += f" {reason}"
            elif line:
                headers.setdefault(name.lower(), []).append(value.strip())
        return Answer(status, headers, hide(body.decode("latin-1")))


def ask_cgi(variables: dict, body: bytes, scan_dir: str) -> tuple[bytes, bytes]:
    environment = {os.fsencode(name): value for name, value in variables.items()}
    environment[b"PHP_INI_SCAN_DIR"] = scan_dir.encode()
    answer = subprocess.run([PHP_CGI, "-c", INI], env=environment, input=body, capture_output=True, timeout=60).stdout
    if answer.startswith(b"\r\n"):
        return b"", answer[2:]
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def ask_driver(variables: dict, body: bytes, scan_dir: str) -> tuple[bytes, bytes]:
    given = b"".join(os.fsencode(name) + b"=" + value + b"\0" for name, value in variables.items())
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
        tempfile.TemporaryFile() as cgi,
        tempfile.TemporaryFile() as head,
    ):
        for file, content in (stdin, body), (cgi, given):
            file.write(content)
            file.seek(0)
        # Above 4, so that no descriptor is overwritten before it is copied.
        copies = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 5) for file in (stdin, stdout, stderr, cgi, head)]
        pid = os.posix_spawn(
            PHP,
            ["php", "-c", INI, *ARGUMENTS, "-d", f"disable_functions={DISABLED}", "-f", str(DRIVER)],
            {"PHP_INI_SCAN_DIR": scan_dir},
            file_actions=[(os.POSIX_SPAWN_DUP2, copy, number) for number, copy in enumerate(copies)],
        )
        os.waitpid(pid, 0)
        for copy in copies:
            os.close(copy)
        for file in stdout, stderr, head:
            file.seek(0)
        ended = head.read()
        if not ended.endswith(b"\r\n"):
            raise AssertionError(f"no head: {ended!r}, {stdout.read()!r}, {stderr.read()!r}")
        return ended, stdout.read()


def multipart(*parts: tuple[str, str]) -> bytes:
    """Each part is what follows `Content-Disposition: `, and its content."""
    text = "".join(f"--xx\r\nContent-Disposition: {head}\r\n\r\n{content}\r\n" for head, content in parts)
    return (text + "--xx--\r\n").encode()


MULTIPART = "multipart/form-data; boundary=xx"
DUMP = "<?php echo json_encode([$_GET, $_POST, $_COOKIE, $_REQUEST, $_FILES]);"
FILES = """<?php
array_walk_recursive($_FILES, function (&$value, $key) {
    if (is_string($value) && is_file($value)) {
        $value = [strlen($value) > 4, is_uploaded_file($value), substr(sprintf('%o', fileperms($value)), -4), md5_file($value)];
    }
});
var_export([$_POST, $_FILES, strlen(file_get_contents('php://input'))]);
"""
DATES = r"(?i)[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} (?!1970|1981)\d{4} \d\d:\d\d:\d\d GMT|Max-Age=[1-9]\d+"
THROWS = """<?php
foreach ([%s] as $do) {
    try {
        var_dump($do());
    } catch (Throwable $e) {
        echo get_class($e), ': ', $e->getMessage(), PHP_EOL;
    }
}
print_r(headers_list());
"""

CASES = [
    Case("an empty script", " "),
    Case("the default type and charset", "<?php ini_set('default_charset', 'ISO-8859-1'); echo 'x';"),
    Case("no default type", "<?php ini_set('default_mimetype', ''); echo 'x';"),
    Case("a type of text gets a charset", "<?php header('Content-Type: text/css');"),
    Case("another type does not", "<?php header('content-type: application/json'); echo '{}';"),
    Case("a type that is removed", "<?php header('Content-Type: text/x'); header_remove('Content-Type');"),
    Case(
        "headers replace and add",
        "<?php header('X-A: 1'); header('x-a: 2'); header('X-A: 3', false); header('B: 1'); header_remove('b'); "
        "print_r(headers_list());",
    ),
    Case("all headers removed", "<?php header('X-A: 1'); header_remove(); print_r(headers_list());"),
    Case("X-Powered-By", "<?php print_r(headers_list());", ini="expose_php = 1"),
    Case(
        "white space and empty values",
        "<?php header(\"X-A:  a  \\t\"); header('X-B:'); header('X-C: '); header(''); print_r(headers_list());",
    ),
    Case("a status line", "<?php header('HTTP/1.1 404 Gone Fishing'); var_dump(http_response_code());"),
    Case("a status line without a reason", "<?php header('HTTP/1.0 403');  echo http_response_code();"),
    Case("a Status header", "<?php header('Status: 410 Away'); var_dump(http_response_code());"),
    Case("http_response_code()", "<?php var_dump(http_response_code(201), http_response_code());"),
    Case("a code with a header", "<?php header('X-A: 1', true, 418); var_dump(http_response_code());"),
    Case("Location is 302", "<?php header('Location: /x');"),
    Case("Location after 201", "<?php http_response_code(201); header('Location: /x');"),
    Case("Location with a code", "<?php header('Location: /x', true, 307);"),
    Case("WWW-Authenticate is 401", "<?php header('WWW-Authenticate: Basic realm=\"x\"');"),
    Case("304 has no type", "<?php http_response_code(304); header('ETag: \"x\"');"),
    Case(
        "a header callback",
        "<?php header_register_callback(function () { header('X-Late: 1'); header_remove('X-Early'); }); "
        "header('X-Early: 1'); echo 'x';",
    ),
    Case("a header callback without a body", "<?php header_register_callback(function () { header('X-Late: 1'); });"),
    Case(
        "the second of two header callbacks",
        "<?php header_register_callback(fn () => header('X-A: 1')); "
        "header_register_callback(fn () => header('X-B: 1')); echo 'x';",
    ),
    Case(
        "headers from shutdown, destructors and buffers",
        """<?php
        class Late { function __destruct() { header('X-Destructor: 1'); } }
        $late = new Late;
        register_shutdown_function(function () { header('X-Shutdown: 1');
            register_shutdown_function(fn () => header('X-Last: 1')); });
        ob_start(function ($text) { header('X-Length: ' . strlen($text)); return strtoupper($text); });
        echo 'body';""",
    ),
    Case(
        "headers_sent()",
        "<?php var_dump(headers_sent()); ob_flush(); flush(); "
        "var_dump(headers_sent($file, $line), basename($file), $line); echo ob_get_level();",
    ),
    Case(
        "no buffer",
        "<?php var_dump(ob_get_level(), headers_sent()); echo 'x'; var_dump(headers_sent());",
        ini="output_buffering = 0",
    ),
    Case(
        "exit with a text",
        "<?php http_response_code(403); register_shutdown_function(function () { echo ' end'; }); exit('stop');",
    ),
    Case(
        "exit in a shutdown function",
        "<?php register_shutdown_function(function () { header('X-A: 1'); exit('bye'); }); echo 'x';",
    ),
    Case("an exception", "<?php echo 'before'; throw new Exception('x');"),
    Case("an exception after a status", "<?php http_response_code(404); throw new Exception('x');"),
    Case("a missing function", "<?php no_such_function();"),
    Case("a syntax error", "<?php this is not PHP"),
    Case("too much memory", "<?php header('X-A: 1'); ini_set('memory_limit', '4M'); str_repeat('x', 1 << 28);"),
    Case("too much time", "<?php set_time_limit(1); while (true);"),
    Case("max_execution_time of the ini", "<?php echo ini_get('max_execution_time');", ini="max_execution_time = 7"),
    Case("a warning as HTML", "<?php echo $undefined; echo http_response_code();", ini="display_errors = 1"),
    Case("a warning as text", "<?php echo $undefined;", ini="display_errors = 1\nhtml_errors = 0"),
    Case(
        "cookies set",
        """<?php
        setcookie('a', 'b c;d'); setrawcookie('r', 'x%20y'); setcookie('gone'); setcookie('null', null);
        setcookie('n', 'v', 100, '/p', 'd.example', true, true);
        setcookie('o', 'v', ['expires' => 0, 'path' => '/', 'Domain' => 'd',
            'secure' => 1, 'httponly' => true, 'samesite' => 'Lax']);
        setcookie(name: 'named', value: 'x', httponly: true);
        setcookie('later', 'x', time() + 1000);""",
        mask=DATES,
    ),
    Case(
        "cookies refused",
        THROWS % """
        fn () => setcookie(''), fn () => setcookie('a=b'), fn () => setcookie('a;b'), fn () => setrawcookie('a', 'b c'),
        fn () => setcookie('a', 'b', ['x' => 1]), fn () => setcookie('a', 'b', ['x']),
        fn () => setcookie('a', 'b', ['path' => '/'], '/'),
        fn () => setcookie('a', 'b', 0, 'a;b'), fn () => setcookie('a', 'b', ['domain' => "a\\n"]),
        fn () => setcookie('a', 'b', 300000000000)""",
    ),
    Case("a session", "<?php session_start(); $_SESSION['a'] = 1; echo session_status();", mask="PHPSESSID=\\w+"),
    Case(
        "a session of the client",
        "<?php session_start(); echo session_id();",
        variables={"HTTP_COOKIE": b"PHPSESSID=abcdefghijklmnopqrstuvwxyz"},
    ),
    Case(
        "a session's cookie",
        "<?php session_name('S'); "
        "session_set_cookie_params(['lifetime' => 60, 'path' => '/p', 'secure' => true, 'httponly' => true, "
        "'samesite' => 'Strict']); session_start();",
        mask=DATES + "|\\bS=\\w+",
    ),
    Case(
        "a session regenerated",
        "<?php session_start(); session_regenerate_id(true); echo count(preg_grep('/^Set-Cookie/', headers_list()));",
        mask="PHPSESSID=\\w+",
    ),
    Case(
        "a session's cache headers overwritten",
        "<?php session_start(); header('Cache-Control: public'); header_remove('Pragma');",
        mask="PHPSESSID=\\w+",
    ),
    *(
        Case(
            f"cache limiter {limiter}",
            f"<?php session_cache_limiter('{limiter}'); session_cache_expire(5); session_start();",
            mask=DATES + "|PHPSESSID=\\w+",
        )
        for limiter in ("public", "private", "private_no_expire", "")
    ),
    Case(
        "session.auto_start",
        "<?php echo session_status(), $_SESSION['x'] ?? '-';",
        ini="session.auto_start = 1",
        mask="PHPSESSID=\\w+",
    ),
    Case("a query", DUMP, "a=1&b[]=2&b[]=3&c[x][y]=%41+b&d.e=1&f&=g&a=2"),
    Case("another separator", DUMP, "a=1;b=2&c=3", ini='arg_separator.input = ";"'),
    Case("cookies received", DUMP, variables={"HTTP_COOKIE": b"a=1; a=2;b = x+y%20z;c[]=1; c[]=2; d.e=3; =no; flag; f=a=b"}),
    Case("request_order", DUMP, "a=g&g=1", body=b"a=p&p=1", variables={"HTTP_COOKIE": b"a=c; c=1"}, ini='request_order = "CPG"'),
    Case(
        "variables_order",
        "<?php echo json_encode([$_GET, $_POST, isset($_SERVER['SCRIPT_NAME']), $_ENV['QUERY_STRING'] ?? null]);",
        "a=g",
        body=b"a=p",
        ini='variables_order = "EPS"',
    ),
    Case("a form", DUMP, body=b"a=1&b[x]=%C3%A9&c=+&d"),
    Case(
        "a form as php://input",
        "<?php $in = fopen('php://input', 'r'); echo fread($in, 3); fseek($in, 1); "
        "echo fgets($in), file_get_contents('php://input'), json_encode($_POST);",
        body=b"a=1&b=2",
    ),
    Case(
        "JSON as php://input",
        "<?php echo json_encode([$_POST, file_get_contents('php://input')]);",
        type="application/json",
        body=b'{"a": 1}',
    ),
    Case(
        "a large body of PUT",
        "<?php echo md5_file('php://input'), ' ', strlen(file_get_contents('php://input'));",
        method="PUT",
        type="image/x",
        body=bytes(range(256)) * 4000,
    ),
    Case(
        "a form too large",
        "<?php echo count($_POST), strlen(file_get_contents('php://input'));",
        body=b"a=" + b"x" * 2000,
        ini="post_max_size = 1K\ndisplay_errors = 0",
    ),
    Case(
        "too many variables of a query",
        "<?php echo count($_GET);",
        "&".join(f"a{n}=1" for n in range(9)),
        ini="max_input_vars = 5\ndisplay_errors = 0",
    ),
    Case(
        "no reading of the body",
        FILES,
        type=MULTIPART,
        body=multipart(('form-data; name="a"', "1")),
        ini="enable_post_data_reading = 0",
    ),
    Case(
        "multipart fields",
        FILES,
        type=MULTIPART,
        body=multipart(
            ('form-data; name="a"', "1"), ("form-data; name=b[x]", "2\r\n3"), ('form-data; name="c d"', ""), ("form-data", "lost")
        ),
    ),
    Case(
        "a quoted boundary and lines that end in LF",
        FILES,
        type='multipart/form-data; charset=x; boundary="xx"',
        body=multipart(('form-data; name="a"', "1"), ('form-data; name="f"; filename="g"', "2\n")).replace(b"\r\n", b"\n"),
    ),
    Case(
        "files",
        FILES,
        type=MULTIPART,
        body=multipart(
            ('form-data; name="a"; filename="C:\\dir\\a.txt"\r\nContent-Type: text/plain; charset=x', "text"),
            ('form-data; name="b[]"; filename="b/1 \\"q\\".txt"', "1"),
            ('form-data; name="b[]"; filename="2"', "2"),
            ('form-data; name="c[x][y]"; filename=""', ""),
            ("form-data; name='d e'; filename='3'", "\r\n--x\r\n"),
        ),
    ),
    Case(
        "a large file",
        FILES,
        type=MULTIPART,
        body=multipart(('form-data; name="a"; filename="a"', "\r\n--x" * 60000), ('form-data; name="b"', "after")),
    ),
    Case(
        "files larger than allowed",
        FILES,
        type=MULTIPART,
        ini="upload_max_filesize = 10",
        body=multipart(
            ('form-data; name="a"; filename="a"', "x" * 11),
            ('form-data; name="MAX_FILE_SIZE"', "5"),
            ('form-data; name="b"; filename="b"', "x" * 6),
            ('form-data; name="c"; filename="c"', "x" * 5),
        ),
    ),
    Case(
        "more files than allowed",
        FILES,
        type=MULTIPART,
        ini="max_file_uploads = 2\ndisplay_errors = 0",
        body=multipart(*((f'form-data; name="f{n}"; filename="{n}"', "x") for n in range(4)), ('form-data; name="a"', "1")),
    ),
    Case("a file that is cut off", FILES, type=MULTIPART, body=multipart(('form-data; name="a"; filename="a"', "12345"))[:-14]),
    Case(
        "no files",
        FILES,
        type=MULTIPART,
        ini="file_uploads = 0",
        body=multipart(('form-data; name="a"; filename="a"', "1"), ('form-data; name="b"', "2")),
    ),
    Case(
        "names that are not well formed",
        FILES,
        type=MULTIPART,
        body=multipart(('form-data; name="a["; filename="1"', "1"), ('form-data; name="b"; filename="2"', "2")),
    ),
    Case(
        "a file moved",
        """<?php
        umask(022); $from = $_FILES['a']['tmp_name']; $to = __DIR__ . '/moved';
        var_dump(move_uploaded_file('/etc/hostname', $to), move_uploaded_file($from, $to),
            is_uploaded_file($from), file_exists($from));
        printf('%o %s', fileperms($to), file_get_contents($to)); var_dump(move_uploaded_file($from, $to)); unlink($to);""",
        type=MULTIPART,
        body=multipart(('form-data; name="a"; filename="a"', "content")),
    ),
    Case(
        "$_SERVER",
        "<?php ksort($_SERVER); echo json_encode($_SERVER, JSON_PRETTY_PRINT);",
        "a+b",
        path_info="/p q",
        variables={"HTTP_X_A": b"\xc3\xa9", "HTTP_AUTHORIZATION": b"Basic dTpwOnc=", "EMPTY": b""},
        mask=r"(REQUEST_TIME(_FLOAT)?\": )[\d.]+",
    ),
    Case(
        "argv of the query",
        "<?php echo json_encode([$_SERVER['argv'], $_SERVER['argc'], $argv ?? null]);",
        "a+b%20c",
        ini="register_argc_argv = 1",
    ),
    Case(
        "digest authentication",
        "<?php echo $_SERVER['PHP_AUTH_DIGEST'], isset($_SERVER['PHP_AUTH_USER']);",
        variables={"HTTP_AUTHORIZATION": b'Digest username="u"'},
    ),
    Case(
        "getenv()",
        "<?php echo getenv('SCRIPT_NAME'), getenv('HTTP_HOST'), var_export(getenv('HTTP_PROXY'), true);",
        variables={"HTTP_HOST": b"example.org"},
    ),
    Case(
        "getallheaders()",
        "<?php echo json_encode([getallheaders(), apache_request_headers(), apache_response_headers()]);",
        variables={"HTTP_X_FORWARDED_FOR": b"1", "HTTP_HOST": b"h"},
        body=b"a=1",
    ),
    Case(
        "the global scope",
        "<?php echo implode(' ', preg_grep('/^_/', array_keys(get_defined_vars()), PREG_GREP_INVERT)), ' ', "
        "basename(__FILE__), ' ', basename(getcwd()); "
        "function f() { global $x; return $x; } $x = 5; echo f();",
        mask=r"\bcase\w+",
    ),
    Case(
        "files before and after",
        "<?php echo $prepended;",
        files={"before.php": "<?php $prepended = 'b';", "after.php": "<?php echo 'a', $prepended;"},
        ini="auto_prepend_file = {root}/before.php\nauto_append_file = {root}/after.php",
    ),
    Case(
        ".user.ini",
        "<?php echo ini_get('precision'), ini_get('memory_limit'), count($_FILES);",
        files={".user.ini": "precision = 5\nmemory_limit = 99M\n"},
    ),
    Case(
        "include_path and __DIR__",
        "<?php chdir('sub'); echo (include 'b.php'), basename(__DIR__) === basename(dirname(getcwd()));",
        files={"b.php": "<?php return 'b';", "sub/x": ""},
    ),
    Case("a #! line", "#!/usr/bin/php\n<?php echo 'x';"),
    Case(
        "headers after a warning about the body",
        "<?php header('X-A: 1'); ob_clean();",
        body=b"a=12",
        ini="post_max_size = 3\ndisplay_errors = 1",
    ),
    Case(
        "open_basedir",
        "<?php echo 'x', json_encode(error_get_last()), count($_POST);",
        body=b"a=1",
        ini="open_basedir = {root}\ndisplay_errors = 1",
    ),
    Case("a missing file", script="none.php", differs="php-fpm's words, not php-cgi's", instead="404\nFile not found.\n"),
    Case("the name of the SAPI", "<?php echo PHP_SAPI, PHP_EOL;", differs="it is the CLI", instead="200\ncli\n"),
    Case(
        "filter_input()",
        "<?php var_dump(filter_input(INPUT_GET, 'a'));",
        "a=1",
        differs="PHP's own copy of the variables cannot be written",
        instead="200\nNULL\n",
    ),
    Case(
        "STDIN",
        "<?php var_dump(defined('STDIN') ? fgets(STDIN) : null);",
        body=b"a=1",
        differs="the CLI defines it; it is at its end",
        instead="200\nbool(false)\n",
    ),
    Case(
        "a header too late",
        "<?php set_error_handler(function ($type, $text, $file) { "
        "echo $type, ' ', substr($text, 0, 34), ' ', basename($file), PHP_EOL; });"
        "ob_end_flush(); echo 'x '; header('X-A: 1'); header(\"X-B: 1\\n2: 3\");",
        mask="(?s)$^",
        differs="a warning of the driver's",
        instead="200\nx 512 Cannot modify header information - cli.php\n512 Cannot modify header information - cli.php\n",
    ),
    Case(
        "a session destroyed",
        "<?php session_start(); session_destroy(); echo count(preg_grep('/^Set-Cookie/', headers_list())), PHP_EOL;",
        differs="nothing is left of its id",
        instead="200\n0\n",
    ),
    Case("HEAD", "<?php echo 'x', PHP_EOL;", method="HEAD", differs="the server leaves the body out", instead="200\nx\n"),
    Case(
        "ob_gzhandler()",
        "<?php ob_start('ob_gzhandler'); echo 'x', PHP_EOL;",
        variables={"HTTP_ACCEPT_ENCODING": b"gzip"},
        differs="the CLI would not send its header",
        instead="200\nx\n",
    ),
]


class CliDriver(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        home = tempfile.TemporaryDirectory(prefix="case")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        self.root = self.home / "case-root"

    def ask(self, case: Case) -> tuple[Answer, Answer]:
        files = {"index.php": textwrap.dedent(case.php), **case.files}
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{root}", str(self.root)))
        added, temporary = self.home / "ini", self.home / "temporary"
        added.mkdir()
        temporary.mkdir()
        settings = f"log_errors = 0\nsession.save_path = {temporary}\nupload_tmp_dir = {temporary}\n{case.ini}\n"
        (added / "zz.ini").write_text(settings.replace("{root}", str(self.root)))
        method = case.method or ("GET" if case.body is None else "POST")
        variables = {
            "REDIRECT_STATUS": b"200",
            "REQUEST_METHOD": method.encode(),
            "QUERY_STRING": case.query.encode(),
            "DOCUMENT_ROOT": os.fsencode(self.root),
            "SCRIPT_NAME": f"/{case.script}".encode(),
            "SCRIPT_FILENAME": os.fsencode(self.root / case.script),
            "PATH_INFO": case.path_info.encode(),
            "REQUEST_URI": f"/{case.script}?{case.query}".encode(),
            "SERVER_PROTOCOL": b"HTTP/1.1",
            **case.variables,
        }
        if case.body is not None:
            variables |= {"CONTENT_TYPE": case.type.encode(), "CONTENT_LENGTH": str(len(case.body)).encode()}
        asked = variables, case.body or b"", f"{CONF}:{added}"
        answers = []
        for ask in ask_cgi, ask_driver:
            answers.append(Answer.of(*ask(*asked), case.mask))
            uploads = [path.name for path in temporary.iterdir() if path.name.startswith("php")]
            self.assertEqual(uploads, [], f"left behind after {ask.__name__}")
        return tuple(answers)


def test_of(case: Case):
    def test(self):
        cgi, driver = self.ask(case)
        if case.differs:
            self.assertEqual(f"{driver.status}\n{driver.body}", case.instead)
            self.assertNotEqual(cgi.body, driver.body, "no longer a difference")
        else:
            self.assertEqual(vars(cgi), vars(driver))

    return test


for case in CASES:
    name = "test_" + re.sub(r"\W+", "_", case.name)
    assert not hasattr(CliDriver, name), f"two cases are called {case.name}"
    setattr(CliDriver, name, test_of(case))

if __name__ == "__main__":
    unittest.main()
