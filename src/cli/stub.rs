//! Finds the files that a PHP stub requires. A stub does nothing but set variables, constants
//! and settings for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The files that `php`, the text of `file`, requires, in their order. Empty if it has statements
/// of another kind, or if a name is not constant.
pub(super) fn required(php: &str, file: &Path) -> Vec<PathBuf> {
    let (files, is_stub) = requirements(php, file);
    if is_stub { files } else { Vec::new() }
}

/// The files that it requires by constant names, whatever else it does.
pub(super) fn required_among_others(php: &str, file: &Path) -> Vec<PathBuf> {
    requirements(php, file).0
}

/// The second value says whether the file is a stub.
fn requirements(php: &str, file: &Path) -> (Vec<PathBuf>, bool) {
    let (statements, mut is_stub) = statements(php);
    let mut files = Vec::new();
    let Some(mut known) = KnownNames::new(file) else {
        return (files, false);
    };
    for (statement, depth) in statements {
        if let Some(path) = required_file(&statement, &known) {
            files.push(path);
            is_stub &= depth == 0;
        } else {
            is_stub &= known.prepare(&statement).is_some();
        }
    }
    (files, is_stub)
}

/// Splits the code at each `;` and brace outside of strings and comments. Each statement has the
/// number of blocks around it. The second value is false if there is code that is not a statement,
/// or a block of another statement than `if`.
fn statements(php: &str) -> (Vec<(String, u32)>, bool) {
    let (mut all, mut statement, mut depth, mut is_plain) =
        (Vec::new(), String::new(), 0_u32, true);
    let mut php = php.trim_start();
    if php.starts_with("#!") {
        php = php.split_once('\n').map_or("", |(_, after)| after);
    }
    let Some(mut rest) = php.trim_start().strip_prefix("<?php") else {
        return (all, false);
    };
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '\'' | '"' => quoted(rest),
            '/' if rest.starts_with("//") => line_comment(rest),
            '#' if !rest.starts_with("#[") => line_comment(rest),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |at| at + 4),
            _ => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        let is_end = c == '?' && rest.starts_with('>');
        match c {
            '/' | '#' if length > 1 => statement.push(' '),
            ';' | '{' | '}' | '?' if c != '?' || is_end => {
                let text = std::mem::take(&mut statement).trim().to_string();
                let is_blank = text.is_empty();
                match c {
                    '{' => {
                        is_plain &= condition_end(&text).is_some_and(|end| text[end..].is_empty());
                        depth += 1;
                    }
                    '}' => {
                        is_plain &= is_blank && depth > 0;
                        depth = depth.saturating_sub(1);
                    }
                    _ if !is_blank => all.push((text, depth)),
                    _ => {}
                }
                if is_end {
                    is_plain &= rest[1..].trim().is_empty();
                    break;
                }
            }
            // The text of a heredoc is not code.
            '<' if rest.starts_with("<<") => return (all, false),
            _ => statement.push_str(token),
        }
    }
    let is_complete = statement.trim().is_empty() && depth == 0;
    (all, is_plain && is_complete)
}

/// The length of the string at the start of `code`.
fn quoted(code: &str) -> usize {
    let (quote, mut escaped) = (code.chars().next(), false);
    for (at, c) in code.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if Some(c) == quote => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The length of the comment at the start of `code`. It ends with the line or before `?>`.
fn line_comment(code: &str) -> usize {
    let end = |mark| code.find(mark).unwrap_or(code.len());
    end("\n").min(end("?>"))
}

/// Where the condition of `if (…)` ends, with which the statement begins.
fn condition_end(statement: &str) -> Option<usize> {
    let condition = statement.strip_prefix("if")?.trim_start();
    let start = statement.len() - condition.len();
    let mut depth = 0;
    let mut at = 0;
    while let Some(c) = condition[at..].chars().next() {
        at += match c {
            '\'' | '"' => quoted(&condition[at..]),
            _ => c.len_utf8(),
        };
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (c == ')').then_some(start + at);
        }
    }
    None
}

/// Removes parentheses around all of an expression.
fn bare(expression: &str) -> &str {
    let expression = expression.trim();
    match expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    {
        // `(a) . (b)` has none around all of it.
        Some(within) if !within.contains(['(', ')']) || within.trim().starts_with("require") => {
            bare(within)
        }
        _ => expression,
    }
}

/// The file of `require __DIR__.'/x.php'`, `$app = require 'x.php'` and similar statements.
fn required_file(statement: &str, known: &KnownNames) -> Option<PathBuf> {
    let code = match assigned(statement) {
        Some((_, value)) => value,
        None => statement.strip_prefix("return").unwrap_or(statement),
    };
    let code = bare(code);
    let name = ["require_once", "require", "include_once", "include"]
        .iter()
        .find_map(|word| code.strip_prefix(word))?;
    // PHP looks up a relative name in the working directory first.
    Some(known.working.join(known.text(bare(name))?))
}

/// Target and value of an assignment.
fn assigned(statement: &str) -> Option<(&str, &str)> {
    let (target, value) = statement.split_once('=')?;
    let is_target = |c: char| c.is_alphanumeric() || "_$[]'\"? ".contains(c);
    let is_one =
        target.starts_with('$') && target.chars().all(is_target) && !value.starts_with(['=', '>']);
    is_one.then(|| (target.trim(), value.trim()))
}

/// The arguments of a call of the function.
fn arguments<'a>(statement: &'a str, function: &str) -> Option<&'a str> {
    let rest = statement.trim_start_matches('\\').strip_prefix(function)?;
    rest.trim_start().strip_prefix('(')
}

/// What a stub has set.
struct KnownNames {
    file: String,
    /// PHP starts in the script's directory.
    working: PathBuf,
    /// Texts of variables, with `$`, and of constants.
    texts: HashMap<String, String>,
}

impl KnownNames {
    fn new(file: &Path) -> Option<KnownNames> {
        let separator = ("DIRECTORY_SEPARATOR".to_string(), "/".to_string());
        Some(KnownNames {
            file: file.to_str()?.to_string(),
            working: file.parent()?.to_path_buf(),
            texts: HashMap::from([separator]),
        })
    }

    /// Remembers what the statement sets. `None` if it does something else.
    fn prepare(&mut self, statement: &str) -> Option<()> {
        const SETTINGS: [&str; 9] = [
            "declare",
            "date_default_timezone_set",
            "error_reporting",
            "ignore_user_abort",
            "ini_set",
            "mb_internal_encoding",
            "putenv",
            "set_time_limit",
            "umask",
        ];
        let statement = match condition_end(statement) {
            Some(end) => statement[end..].trim(),
            None => statement,
        };
        if let Some(directory) = arguments(statement, "chdir") {
            let directory = self.text(directory.strip_suffix(')')?)?;
            self.working.push(directory);
            return Some(());
        }
        if let Some(rest) = arguments(statement, "defined") {
            let (_, rest) = rest.split_once(')')?;
            let rest = rest
                .trim()
                .strip_prefix("or")
                .or(rest.trim().strip_prefix("||"))?;
            arguments(rest.trim(), "define")?;
            return self.prepare(rest.trim());
        }
        if let Some(definition) = arguments(statement, "define") {
            let (name, value) = definition.strip_suffix(')')?.split_once(',')?;
            self.set(name.trim().trim_matches(['\'', '"']), value);
            return Some(());
        }
        if let Some((name, value)) = statement
            .strip_prefix("const ")
            .and_then(|definition| definition.split_once('='))
        {
            self.set(name.trim(), value);
            return Some(());
        }
        if let Some((target, value)) = assigned(statement) {
            self.set(target.trim_end_matches('?').trim(), value);
            return Some(());
        }
        let is_setting = SETTINGS
            .iter()
            .any(|name| arguments(statement, name).is_some())
            || ["use ", "namespace "]
                .iter()
                .any(|word| statement.starts_with(word));
        is_setting.then_some(())
    }

    fn set(&mut self, name: &str, value: &str) {
        match self.text(value) {
            Some(text) => self.texts.insert(name.to_string(), text),
            None => self.texts.remove(name),
        };
    }

    /// The value of `__DIR__ . '/../worker.php'` and similar expressions.
    fn text(&self, expression: &str) -> Option<String> {
        let (text, rest) = self.concatenation(expression)?;
        (!text.is_empty() && rest.is_empty()).then_some(text)
    }

    /// The value of the terms at the start, and what is behind them.
    fn concatenation<'a>(&self, expression: &'a str) -> Option<(String, &'a str)> {
        let (mut text, mut rest) = self.term(expression.trim_start())?;
        while let Some(after) = rest.trim_start().strip_prefix('.') {
            let (term, after) = self.term(after.trim_start())?;
            text.push_str(&term);
            rest = after;
        }
        Some((text, rest.trim_start()))
    }

    fn term<'a>(&self, code: &'a str) -> Option<(String, &'a str)> {
        if code.starts_with(['\'', '"']) {
            let (literal, rest) = code.split_at(quoted(code));
            let literal = literal.get(1..literal.len() - 1)?;
            return (!literal.contains(['$', '\\'])).then(|| (literal.to_string(), rest));
        }
        if let Some(within) = code.strip_prefix('(') {
            let (text, rest) = self.concatenation(within)?;
            return Some((text, rest.strip_prefix(')')?));
        }
        if let Some(of) = arguments(code, "dirname") {
            let (text, rest) = self.concatenation(of)?;
            let (levels, rest) = rest.split_once(')')?;
            let levels = match levels.strip_prefix(',') {
                Some(levels) => levels.trim().parse().ok()?,
                None if levels.is_empty() => 1,
                None => return None,
            };
            let directory = Path::new(&text).ancestors().nth(levels)?;
            return Some((directory.to_str()?.to_string(), rest));
        }
        let is_name = |c: char| c.is_alphanumeric() || "_$".contains(c);
        let end = code.find(|c| !is_name(c)).unwrap_or(code.len());
        let (name, rest) = code.split_at(end);
        let text = match name {
            "__FILE__" => self.file.clone(),
            "__DIR__" => Path::new(&self.file).parent()?.to_str()?.to_string(),
            name => self.texts.get(name)?.clone(),
        };
        Some((text, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::required;
    use std::path::{Path, PathBuf};

    fn clean(path: &Path) -> PathBuf {
        let mut clean = PathBuf::new();
        for part in path.components() {
            match part {
                std::path::Component::ParentDir => drop(clean.pop()),
                part => clean.push(part),
            }
        }
        clean
    }

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
        for stub in [
            "require __DIR__.'/../lib/w.php'; // x",
            "// x\nrequire __DIR__.'/../lib/w.php';",
            "$a = 'b'; # it's set\nrequire __DIR__ . /* x; */ '/../lib/w.php' ?>\n",
            "$a = '//'; $b = \"#\"; require __DIR__.'/../lib/w.php';",
            "// ends here ?>",
            "require dirname(__DIR__).'/lib/w.php';",
            "require dirname(__DIR__, 1).'/lib/w.php';",
            "require dirname( __DIR__ , 2 ) . '/app/lib/w.php';",
            "require dirname(__FILE__).'/../lib/w.php';",
            "require dirname(dirname(__FILE__)).'/lib/w.php';",
            "require dirname(__FILE__, 2).DIRECTORY_SEPARATOR.'lib/w.php';",
            "chdir(__DIR__); require '../lib/w.php';",
            "chdir(dirname(__DIR__)); require 'lib/w.php';",
            "if (!defined('A')) define('A', __DIR__); require A.'/../lib/w.php';",
            "if (! defined('A')) { define('A', (1)); } require __DIR__.'/../lib/w.php';",
            "defined('A') or define('A', 1); require __DIR__.'/../lib/w.php';",
            "(require \"../lib/w.php\");",
            "return (require_once (__DIR__.'/../lib/w.php'));",
            "$f = __DIR__.'/../lib/w.php'; require $f;",
            "$f = __DIR__; require_once($f . '/../lib/w.php');",
            "const A = __DIR__; $app = require A.'/../lib/w.php';",
        ] {
            let all = of(&format!("#!/usr/bin/env php\n<?php {stub}"));
            let clean: Vec<_> = all.iter().map(|file| clean(file)).collect();
            let expected: &[PathBuf] = match stub.contains("w.php") {
                true => &found("/srv/app/lib/w.php"),
                false => &[],
            };
            assert_eq!(clean, expected, "{stub}");
        }
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
            "<?php $f = $x . '/a.php'; require $f;",
            "<?php $f = 'a.php'; $f .= $x; require $f;",
            "<?php #[A] require 'a.php';",
            "<?php if (!defined('A')) require 'a.php';",
            "<?php if (!defined('A')) { define('A', 1); require 'a.php'; }",
            "<?php require dirname(__DIR__, 9).'/a.php';",
            "<?php require dirname($x).'/a.php';",
            "<?php chdir($x); require 'a.php';",
            "<?php /* require 'a.php';",
            "<?php $x = <<<A\nit's\nA; require 'a.php';",
        ] {
            assert_eq!(of(other), Vec::<PathBuf>::new(), "{other}");
        }
    }
}
