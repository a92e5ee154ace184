//! Finds the files that a PHP stub requires. A stub does nothing else than to set variables and
//! constants for them.

use std::path::{Path, PathBuf};

/// The files that `php`, the text of `file`, requires, in their order. Empty if it has statements
/// of another kind, or if a name is not constant.
pub(super) fn required(php: &str, file: &Path) -> Vec<PathBuf> {
    requirements(php, file).unwrap_or_default()
}

fn requirements(php: &str, file: &Path) -> Option<Vec<PathBuf>> {
    let directory = file.parent()?;
    let code = without_comments(php);
    let code = code.trim().strip_prefix("<?php")?;
    let code = code.trim().trim_end_matches("?>").trim();
    let mut files = Vec::new();
    for statement in statements(code)? {
        if !prepares(statement) {
            files.push(requirement(statement, directory)?);
        }
    }
    Some(files)
}

/// Splits at each `;` outside of strings. `None` if there is a block, or code after the last one.
fn statements(code: &str) -> Option<Vec<&str>> {
    let (mut all, mut start, mut quote, mut escaped) = (Vec::new(), 0, None, false);
    for (at, c) in code.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '{' | '}') => return None,
            (None, ';') => {
                all.push(code[start..at].trim());
                start = at + 1;
            }
            (None, _) => {}
        }
    }
    code[start..].trim().is_empty().then_some(all)
}

/// Whether the statement only sets something: `$_SERVER['X'] = …`, `define(…)`, `declare(…)`.
fn prepares(statement: &str) -> bool {
    let is_call = |name: &str| {
        let rest = statement.strip_prefix(name).unwrap_or_default();
        rest.trim_start().starts_with('(')
    };
    if is_call("define") || is_call("declare") {
        return true;
    }
    let Some((target, value)) = statement.split_once('=') else {
        return false;
    };
    let is_target = |c: char| c.is_alphanumeric() || "_$[]'\"? ".contains(c);
    let target = target.trim_end_matches('?');
    target.starts_with('$') && target.chars().all(is_target) && !value.starts_with('=')
}

/// The file of `require __DIR__.'/x.php'` and similar statements.
fn requirement(statement: &str, directory: &Path) -> Option<PathBuf> {
    let code = statement.strip_prefix("return ").unwrap_or(statement);
    let code = code.trim_start();
    let name = ["require_once", "require", "include_once", "include"]
        .iter()
        .find_map(|word| code.strip_prefix(word))?
        .trim();
    let name = match name.strip_prefix('(') {
        Some(rest) => rest.strip_suffix(')')?.trim(),
        None => name,
    };
    path(name, directory)
}

/// Parses `__DIR__ . '/../worker.php'` and similar expressions.
fn path(expression: &str, directory: &Path) -> Option<PathBuf> {
    let mut text = String::new();
    let mut rest = expression;
    let root = directory.to_str()?;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("__DIR__") {
            text.push_str(root);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("dirname(__DIR__)") {
            text.push_str(directory.parent()?.to_str()?);
            rest = after;
        } else {
            let quote = rest.chars().next().filter(|c| ['\'', '"'].contains(c))?;
            let (literal, after) = rest[1..].split_once(quote)?;
            if literal.contains(['$', '\\']) {
                return None;
            }
            text.push_str(literal);
            rest = after;
        }
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('.') {
            rest = after.trim_start();
        } else if !rest.is_empty() {
            return None;
        }
    }
    // PHP looks up a relative name in the working directory first, which is the script's directory.
    (!text.is_empty()).then(|| directory.join(text))
}

/// Removes comments at the start of a line, and comment blocks. A comment after code stays, and the
/// file is then no stub.
fn without_comments(php: &str) -> String {
    let mut code = String::new();
    let mut rest = php;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let lines = code.lines().filter(|line| {
        !["//", "#"]
            .iter()
            .any(|mark| line.trim_start().starts_with(mark))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::required;
    use std::path::{Path, PathBuf};

    #[test]
    fn stub_resolves_to_the_required_file() {
        let of = |php: &str| required(php, Path::new("/srv/app/public/index.php"));
        let found = |path: &str| vec![PathBuf::from(path)];
        assert_eq!(
            of("<?php\n\n// set by the package\nrequire __DIR__.'/../vendor/x/worker.php';\n"),
            found("/srv/app/public/../vendor/x/worker.php")
        );
        assert_eq!(
            of("<?php declare(strict_types=1);\n/* a\n * b */ \
                 return require_once(dirname(__DIR__) . \"/w.php\"); ?>"),
            found("/srv/app/w.php")
        );
        assert_eq!(of("<?php include 'w.php';"), found("/srv/app/public/w.php"));
        assert_eq!(
            of(
                "<?php\n\n$_SERVER['BASE'] = $_ENV['BASE'] ?? $_SERVER['BASE'] ?? __DIR__.'/..;';\n\
                define('START', microtime(true));\n\
                require __DIR__.'/../vendor/autoload.php';\n\
                require __DIR__.'/../vendor/octane/worker.php';\n"
            ),
            ["autoload.php", "octane/worker.php"]
                .map(|name| PathBuf::from(format!("/srv/app/public/../vendor/{name}")))
        );
        for other in [
            "",
            "<?php",
            "<?php require $worker;",
            "<?php require __DIR__.\"/$worker.php\";",
            "<?php require 'a.php'; run();",
            "<?php $kernel->handle(1 == 2); require 'a.php';",
            "<?php $a == 'b'; require 'a.php';",
            "<?php if (true) { require 'a.php'; }",
            "<?php require 'a.php'",
            "<?php require 'a.php'; echo 'b;",
            "text <?php require 'a.php';",
            "<?php require 'a.php' or die;",
        ] {
            assert_eq!(of(other), Vec::<PathBuf>::new(), "{other}");
        }
    }
}
