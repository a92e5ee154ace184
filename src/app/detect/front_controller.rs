//! Reads what a front controller does before and after it creates the request. A boot ends there:
//! it does the first part once, and the boot script does the rest itself.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// The code of a PHP file without comments. Strings stay as they are.
pub fn without_comments(php: &str) -> String {
    let mut code = String::with_capacity(php.len());
    let mut rest = php;
    while let Some(at) = rest.find(['\'', '"', '/', '#', '<']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match rest.as_bytes() {
            [b'/', b'/', ..] => line(rest),
            [b'#', next, ..] if *next != b'[' => line(rest),
            [b'/', b'*', ..] => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ => {
                let len = literal(rest).unwrap_or(1);
                code.push_str(&rest[..len]);
                len
            }
        };
        rest = &rest[len..];
    }
    code.push_str(rest);
    code
}

/// The length of a comment that ends with its line.
fn line(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

/// The length of the string or heredoc that begins here, with its delimiters.
fn literal(rest: &str) -> Option<usize> {
    match *rest.as_bytes().first()? {
        quote @ (b'\'' | b'"') => Some(string(rest, quote)),
        b'<' => heredoc(rest),
        _ => None,
    }
}

/// The length of a string with its quotes.
fn string(rest: &str, quote: u8) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

static HEREDOC: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"^<<<[ \t]*['"]?(?P<name>\w+)['"]?\r?\n"#).ok());

/// The length of a heredoc or nowdoc. The name that ends it may be indented.
fn heredoc(rest: &str) -> Option<usize> {
    let name = HEREDOC.as_ref()?.captures(rest)?.name("name")?.as_str();
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        at += line.len();
        if let Some(after) = line.trim_start().strip_prefix(name)
            && !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            return Some(at - after.len());
        }
    }
    Some(at)
}

fn is_match(regex: &Option<Regex>, text: &str) -> bool {
    regex.as_ref().is_some_and(|it| it.is_match(text))
}

/// The offset behind the bracket that closes the one at `open`.
fn closed(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth <= 1 => return at + 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The end of the expression that begins at `from`.
fn expression(code: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' | b',' | b';' if depth == 0 => return at,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The end of the block or the statement that begins at `from`.
fn block(code: &str, from: usize) -> usize {
    match code[from..].find(['{', ';']) {
        Some(at) if code[from + at..].starts_with('{') => closed(code, from + at),
        Some(at) => from + at + 1,
        None => code.len(),
    }
}

/// Code with spaces in place of some parts, so that all offsets stay the same.
struct Masked {
    bytes: Vec<u8>,
}

impl Masked {
    fn new(code: &str) -> Masked {
        let bytes = code.as_bytes().to_vec();
        Masked { bytes }
    }

    /// `from` and `to` are offsets of characters.
    fn hide(&mut self, from: usize, to: usize) {
        self.bytes[from..to].fill(b' ');
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The code without the contents of strings.
pub fn without_strings(code: &str) -> String {
    hide_strings(code, |_, _| ())
}

/// The same with the dollar signs of variables in strings: `"https://$_SERVER[HTTP_HOST]"`.
pub fn without_texts(code: &str) -> String {
    hide_strings(code, |masked, range| {
        let text = &code[range.clone()];
        if text.trim_start_matches(['<', ' ', '\t']).starts_with('\'') {
            return;
        }
        for (at, _) in text.match_indices('$') {
            if !text[..at].ends_with('\\') {
                masked.bytes[range.start + at] = b'$';
            }
        }
    })
}

/// The code without strings, after `show` has got the range of each.
fn hide_strings(code: &str, show: impl Fn(&mut Masked, Range<usize>)) -> String {
    let mut masked = Masked::new(code);
    let mut at = 0;
    while let Some(found) = code[at..].find(['\'', '"', '<']) {
        let begin = at + found;
        at = begin + 1;
        if let Some(len) = literal(&code[begin..]) {
            at = begin + len;
            masked.hide(begin, at);
            show(&mut masked, begin..at);
        }
    }
    masked.text()
}

static FUNCTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let word = r"(?P<word>(?i:(?P<arrow>fn)|function)\b\s*&?\s*\w*\s*)";
    Regex::new(&format!(r"(?:^|[^\w$>:\\]){word}\(")).ok()
});

/// Whether the function in front of `rest` is called at once: `(fn () => 1)()`.
fn is_called(rest: &str) -> bool {
    let rest = rest.trim_start().strip_prefix(')');
    rest.is_some_and(|rest| rest.trim_start().starts_with('('))
}

/// The code, which has no strings, without the bodies of functions: a route's handler runs in a
/// request. A closure that the file returns stays, because the Runtime component calls it.
fn without_functions(code: &str) -> String {
    let mut masked = Masked::new(code);
    let mut at = 0;
    let next = |at| {
        let found = FUNCTION.as_ref()?.captures_at(code, at)?;
        Some((found.name("word")?, found.name("arrow").is_some()))
    };
    while let Some((word, is_arrow)) = next(at) {
        let before = code[..word.start()].trim_end();
        let before = before.strip_suffix("static").unwrap_or(before).trim_end();
        at = closed(code, word.end());
        let end = match is_arrow {
            true => expression(code, at),
            false => block(code, at),
        };
        if before.ends_with("return") || is_called(&code[end..]) {
            continue;
        }
        masked.hide(word.start(), end);
        at = end;
    }
    masked.text()
}

static CONDITION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:^|[^\w$>:])(?P<word>(?:else)?if\s*)\(").ok());

/// A condition that only holds on the command line or in PHP's built-in server.
static ELSEWHERE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let name = r"\\?(?:PHP_SAPI|php_sapi_name\s*\(\s*\))";
    let value = r#"['"]cli(?:-server)?['"]"#;
    Regex::new(&format!(
        r"^\(\s*(?:{name}\s*===?\s*{value}|{value}\s*===?\s*{name})\s*(?:\)|&&)"
    ))
    .ok()
});

/// A condition that may hold while a file is missing.
static MISSING: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"!\s*\\?(?i:file_exists|is_file|is_dir|is_readable)\s*\(").ok());

static EXIT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:^|[^\w$>:])(?i:exit|die)\b").ok());

/// `masked` without blocks that take no part in a boot. Slim's front controllers have one for PHP's
/// built-in server. Shopware's have one that exits if a file is missing, which fails the boot.
pub fn without_unbooted_blocks(code: &str, masked: &str) -> String {
    let mut kept = Masked::new(masked);
    let mut at = 0;
    let next = |at| CONDITION.as_ref()?.captures_at(masked, at)?.name("word");
    while let Some(word) = next(at) {
        let open = word.end();
        at = closed(masked, open);
        let end = block(masked, at);
        let condition = &code[open..at];
        let hidden = if is_match(&ELSEWHERE, condition) && !condition.contains("||") {
            word.start()
        } else if is_match(&MISSING, &masked[open..at]) && is_match(&EXIT, &masked[at..end]) {
            at // The condition itself counts.
        } else {
            continue;
        };
        kept.hide(hidden, end);
        at = end;
    }
    kept.text()
}

/// Code that needs one request: superglobals with values that a client sends.
static OF_REQUEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let keys = r"REMOTE_\w+|REQUEST_METHOD|REQUEST_URI|HTTP_\w+|PATH_INFO|QUERY_STRING";
    let key = format!(r#"\[\s*['"](?:{keys})['"]\s*\]"#);
    // Symfony's Runtime passes a copy of $_SERVER as $context.
    Regex::new(&format!(
        r"\$(?:_(?:GET|POST|COOKIE|REQUEST|FILES)\b|(?:_SERVER|context)\s*{key})"
    ))
    .ok()
});

/// The first use of the request in front of the first of `calls`. Without any of them, the
/// framework runs in another file, and all code counts. A response that begins in the boot needs
/// no search: the boot itself finds it.
pub fn before_request(code: &str, calls: &[&str]) -> Option<String> {
    let masked = without_functions(&without_unbooted_blocks(code, &without_strings(code)));
    let end = calls.iter().filter_map(|call| masked.find(call)).min();
    OF_REQUEST
        .as_ref()?
        .find_iter(&code[..end.unwrap_or(code.len())])
        .find(|found| masked[found.start()..].starts_with('$'))
        .map(|found| found.as_str().to_string())
}

/// Statements that handle the request, send the response or end the request.
static USUAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let call = r"->\s*(handle|handleRequest|send|terminate)\s*\([^()]*\)";
    Regex::new(&format!(
        r"(?s)^(\$\w+\s*=\s*)?(\$\w+)?\s*(\s*{call})*$|^(exit|die)(\(\d*\))?$|^\?>$"
    ))
    .ok()
});

/// The first unusual statement after the last occurrence of `call`, such as `Request::capture(`.
pub fn after_request(code: &str, call: &str) -> Option<String> {
    let masked = without_strings(code);
    let open = masked.rfind(call)? + call.len() - 1;
    // The call may be in a block, or in a function that is called at once: `})();`.
    let ends = ['}', ')', '(', ' ', '\n', '\r', '\t'];
    code[closed(&masked, open)..]
        .split(';')
        .map(|statement| statement.trim_start_matches(ends).trim_end())
        .find(|statement| !statement.is_empty() && !is_match(&USUAL, statement))
        .map(|statement| statement.lines().next().unwrap_or_default().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_removed_and_strings_are_kept() {
        let php = "<?php // one\n$a = 'it\\'s // no comment'; # two\n/* three */ #[Attribute]\n$b;";
        let code = "<?php \n$a = 'it\\'s // no comment'; \n #[Attribute]\n$b;";
        assert_eq!(without_comments(php), code);
    }

    #[test]
    fn heredocs_are_strings() {
        let php = "$a = <<<A\n don't // keep\n A; // one\n$b = <<<'B'\n\"\nBB\nB . $_GET['b'];";
        let code = php.replace("// one", "");
        assert_eq!(without_comments(php), code);
        assert_eq!(before_request(&code, RUN).as_deref(), Some("$_GET"));
        let code = "$a = <<< \"A\"\r\n$_GET[a] don't\r\n  A\r\n; $app->run(); $_GET;";
        assert_eq!(before_request(code, RUN), None);
    }

    #[test]
    fn usual_ends_of_front_controllers_are_recognised() {
        let call = "Request::capture(";
        for usual in [
            "$app->handleRequest(Request::capture());",
            "$response = $kernel->handle($request = Request::capture())->send();\n\
             $kernel->terminate($request, $response);",
            "$response = $kernel->handle(\n    $request = Request::capture()\n);\n\n\
             $response->send();\n\n$kernel->terminate($request, $response);\n?>\n",
            "$r = tap($kernel->handle($q = Request::capture()))->send(); \
             $kernel->terminate($q, $r); exit;",
        ] {
            assert_eq!(after_request(usual, call), None, "{usual}");
        }
        for (unusual, statement) in [
            (
                "$r = Request::capture(); count($r); $k->handle($r);",
                "count($r)",
            ),
            ("$k->handle(Request::capture())->send();\nlog();", "log()"),
            (
                "$r = Request::capture(); $k->handle($r)->with(1)->send();",
                "$k->handle($r)->with(1)->send()",
            ),
        ] {
            let found = after_request(unusual, call);
            assert_eq!(found.as_deref(), Some(statement));
        }
        let call = "->run(";
        assert_eq!(after_request("$app->run(request(')')); exit;", call), None);
        for usual in [
            "if (PHP_SAPI !== 'cli') { $app->run(); }\n",
            "if ($a) {\n    if ($b) {\n        $app->run();\n    }\n}\nexit;",
            "(static function () { $app = new App; $app->run(); })();",
            "(function () {\n    $app->run();\n}) ();\n?>\n",
        ] {
            assert_eq!(after_request(usual, call), None, "{usual}");
        }
        for (unusual, statement) in [
            ("$app->run(); echo 'end';", "echo 'end'"),
            ("if ($a) { $app->run(); } echo 'end';", "echo 'end'"),
            ("(function () { $app->run(); })(); end();", "end()"),
            ("$app->run(); if ($a) { exit; }", "if ($a) { exit"),
            (
                "try { $app->run(); } catch (E $e) {\n log(); }",
                "catch (E $e) {",
            ),
        ] {
            let found = after_request(unusual, call);
            assert_eq!(found.as_deref(), Some(statement), "{unusual}");
        }
    }

    const RUN: &[&str] = &["createServerRequestFromGlobals(", "->run("];

    #[test]
    fn uses_of_the_request_before_it_is_created_are_found() {
        for (code, found) in [
            ("define('PAGE', $_GET['p'] ?? 1); $app->run();", "$_GET"),
            ("$id = $_COOKIE[NAME];", "$_COOKIE"),
            (
                "$local = $_SERVER['REMOTE_ADDR'] === '::1';",
                "$_SERVER['REMOTE_ADDR']",
            ),
            (
                "isset($_SERVER[ \"HTTP_X_DEBUG\" ]);",
                "$_SERVER[ \"HTTP_X_DEBUG\" ]",
            ),
            (
                "if (PHP_SAPI === 'cli' || $_SERVER['REQUEST_METHOD'] == 'GET') {}",
                "$_SERVER['REQUEST_METHOD']",
            ),
            (
                "if (PHP_SAPI == 'cli-server') { return; } else { $_POST; }",
                "$_POST",
            ),
            ("return function () { $_FILES; };", "$_FILES"),
            ("return static fn () => new Kernel($_GET);", "$_GET"),
            (
                "return fn (array $context) => new Kernel($context['HTTP_HOST']);",
                "$context['HTTP_HOST']",
            ),
            ("function a() {} $_REQUEST;", "$_REQUEST"),
            (
                "$host = (fn () => $_SERVER['HTTP_HOST'])();",
                "$_SERVER['HTTP_HOST']",
            ),
            ("(static function () { $_POST; $app->run(); })();", "$_POST"),
        ] {
            assert_eq!(before_request(code, RUN).as_deref(), Some(found), "{code}");
        }
    }

    #[test]
    fn code_that_depends_on_no_request_may_come_before_it() {
        for code in [
            "$app->run(); $_GET;",
            "$request = $creator->createServerRequestFromGlobals(); $_GET; $app->run();",
            "session_start(); ob_start(); header('A: b'); setcookie('a'); $app->run();",
            "echo '$_GET';",
            "$text = \"header('A: b') \\\" $_POST\";",
            "$_SERVER['APP_DEBUG'] && $_SERVER['TRUSTED_PROXIES'] ?? false;",
            "$_GETS = [];",
            "return fn (array $context) => new Kernel($context['APP_ENV']);",
            "$app->get('/', function ($q) use ($b): R { if ($q) { $_GET; } });",
            "$app->add(fn ($q) => [$_COOKIE, $_GET]); $app->run();",
            "function start(): void { $_POST; } $app->run();",
            "class A { public static function &b() { return $_SERVER['REMOTE_ADDR']; } }",
            "(function () { $app->add(function () { $_GET; }); $app->run(); $_POST; })();",
            "if (PHP_SAPI == 'cli-server') { $u = $_SERVER['REQUEST_URI']; return is_file($u); }",
            "if ('cli' === php_sapi_name() && is_file($_SERVER['REQUEST_URI'])) return false;",
        ] {
            assert_eq!(before_request(code, RUN), None, "{code}");
        }
    }

    /// Like the front controller of Shopware 6.4.
    const SHOPWARE_6_4: &str = r"<?php
        $_SERVER['SCRIPT_FILENAME'] = __FILE__;
        require_once __DIR__ . '/../vendor/autoload_runtime.php';
        return function (array $context) {
            if (!file_exists(dirname(__DIR__) . '/install.lock')) {
                $base = str_replace(basename(__FILE__), '', $_SERVER['SCRIPT_NAME']);
                if (strpos($_SERVER['REQUEST_URI'], 'recovery') === false) {
                    header('Location: ' . $base . 'recovery/install/index.php');
                    exit;
                }
            }
            if (is_file(__DIR__ . '/update.json') || is_dir(__DIR__ . '/update-assets')) {
                header('Retry-After: 1200', true, 503);
                exit;
            }
            return new HttpKernel($context['APP_ENV'], false);
        };";

    /// Like the front controller of Shopware 6.7.
    const SHOPWARE_6_7: &str = r"<?php
        require_once __DIR__ . '/../vendor/autoload_runtime.php';
        return function (array $context) {
            if (!EnvironmentHelper::getVariable('SHOPWARE_SKIP_WEBINSTALLER', false)
                && !file_exists(dirname(__DIR__) . '/install.lock')
            ) {
                if (strpos($_SERVER['REQUEST_URI'], '/installer') === false) {
                    header('Location: /installer');
                    exit;
                }
            }
            return KernelFactory::create(environment: $context['APP_ENV'], debug: false);
        };";

    #[test]
    fn blocks_that_exit_if_a_file_is_missing_do_not_count() {
        for code in [
            SHOPWARE_6_4,
            SHOPWARE_6_7,
            "if (!is_file('a')) { header($_SERVER['REQUEST_URI']); exit(1); } $app->run();",
            "if (!\\is_readable('a')) die($_GET['a']); $app->run();",
        ] {
            assert_eq!(before_request(code, RUN), None, "{code}");
        }
        for (code, found) in [
            ("if (!is_file('a') && $_GET) { exit; }", "$_GET"),
            ("if (!is_file('a')) { exit; } else { $_POST; }", "$_POST"),
            ("if (!is_file('a')) { define('A', $_COOKIE); }", "$_COOKIE"),
            // A maintenance page.
            (
                "if (is_file('a')) { if ($_SERVER['REMOTE_ADDR'] !== '::1') exit; }",
                "$_SERVER['REMOTE_ADDR']",
            ),
        ] {
            assert_eq!(before_request(code, RUN).as_deref(), Some(found), "{code}");
        }
    }
}
