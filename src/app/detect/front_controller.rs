//! Reads what a front controller does after it has created the request. A boot ends there, and the
//! boot script does the rest itself.

use std::sync::LazyLock;

use regex::Regex;

/// The code of a PHP file without comments. Strings stay as they are.
pub fn without_comments(php: &str) -> String {
    let mut code = String::with_capacity(php.len());
    let mut rest = php;
    while let Some(at) = rest.find(['\'', '"', '/', '#']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match rest.as_bytes() {
            [b'/', b'/', ..] => line(rest),
            [b'#', next, ..] if *next != b'[' => line(rest),
            [b'/', b'*', ..] => rest.find("*/").map_or(rest.len(), |end| end + 2),
            [quote @ (b'\'' | b'"'), ..] => {
                let len = string(rest, *quote);
                code.push_str(&rest[..len]);
                len
            }
            _ => {
                code.push_str(&rest[..1]);
                1
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

/// The length of a string with its quotes.
fn string(rest: &str, quote: u8) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
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
    let (_, rest) = code.rsplit_once(call)?;
    let mut statements = rest.split(';').map(str::trim);
    let first = statements
        .next()?
        .trim_start_matches([')', ' ', '\n', '\r', '\t']);
    let is_usual = |statement: &str| {
        USUAL
            .as_ref()
            .is_some_and(|usual| usual.is_match(statement))
    };
    std::iter::once(first)
        .chain(statements)
        .find(|statement| !statement.is_empty() && !is_usual(statement))
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
    }
}
