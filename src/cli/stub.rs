//! Finds the file that a PHP stub requires. A stub has no other statement.

use std::path::{Path, PathBuf};

/// The file that `php`, the text of `file`, requires. `None` if it has other statements, or if the
/// name is not constant.
pub(super) fn required(php: &str, file: &Path) -> Option<PathBuf> {
    let directory = file.parent()?;
    let code = without_comments(php);
    let code = code.trim().strip_prefix("<?php")?;
    let code = code.trim().trim_end_matches("?>").trim();
    let code = match code.strip_prefix("declare(strict_types") {
        Some(rest) => rest.split_once(';')?.1.trim(),
        None => code,
    };
    let code = code.strip_prefix("return ").unwrap_or(code).trim_start();
    let name = ["require_once", "require", "include_once", "include"]
        .iter()
        .find_map(|word| code.strip_prefix(word))?;
    let name = name.strip_suffix(';')?.trim();
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
        let found = |path: &str| Some(PathBuf::from(path));
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
        for other in [
            "",
            "<?php",
            "<?php require $worker;",
            "<?php require __DIR__.\"/$worker.php\";",
            "<?php require 'a.php'; require 'b.php';",
            "<?php define('X', 1); require 'a.php';",
            "text <?php require 'a.php';",
            "<?php require 'a.php' or die;",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
