//! Writes PHP settings as lines of an ini file.

use anyhow::bail;

/// `name=value`.
pub fn line(name: &str, value: &str) -> anyhow::Result<String> {
    const BREAKS: [char; 3] = ['\n', '\r', '\0'];
    if name.is_empty() || name.contains('=') || name.contains(BREAKS) || value.contains(BREAKS) {
        bail!(
            "PHP setting {name:?} = {value:?}: the name may not be empty or have a `=`, and \
             neither may have line breaks \
             or NUL bytes"
        );
    }
    Ok(format!("{name}={}", quoted(value)))
}

/// Keeps words and their operators, so that `On`, `8M` and `E_ALL & ~E_NOTICE` keep their meaning.
/// Quotes the rest: a line that PHP cannot parse would make it ignore all later lines.
fn quoted(value: &str) -> String {
    if value.starts_with('"') || value.is_empty() || is_expression(value) {
        value.to_string()
    } else {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// Whether the text consists of words, the operators `&`, `|`, `^`, `~`, `!`, `-` and brackets
/// (Zend/zend_ini_parser.y).
fn is_expression(text: &str) -> bool {
    fn operand(text: &str) -> Option<&str> {
        let text = text.trim_start().trim_start_matches(['~', '!', '-', ' ']);
        if let Some(inner) = text.strip_prefix('(') {
            return expression(inner)?.trim_start().strip_prefix(')');
        }
        let len = text
            .bytes()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == b'_')
            .count();
        (len > 0).then(|| &text[len..])
    }
    fn expression(text: &str) -> Option<&str> {
        let mut rest = operand(text)?;
        while let Some(next) = rest.trim_start().strip_prefix(['&', '|', '^']) {
            rest = operand(next)?;
        }
        Some(rest)
    }
    expression(text).is_some_and(|rest| rest.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ini_values_keep_their_meaning() {
        for (value, expected) in [
            ("On", "On"),
            ("256M", "256M"),
            ("E_ALL & ~E_NOTICE", "E_ALL & ~E_NOTICE"),
            (
                "E_ALL & ~(E_NOTICE | E_WARNING)",
                "E_ALL & ~(E_NOTICE | E_WARNING)",
            ),
            ("-1", "-1"),
            ("&", "\"&\""),
            ("a &", "\"a &\""),
            ("(", "\"(\""),
            ("two words", "\"two words\""),
            ("Mozilla (compatible)", "\"Mozilla (compatible)\""),
            ("/var/lib/php;x", "\"/var/lib/php;x\""),
            ("a\"b", "\"a\\\"b\""),
            ("\"already\"", "\"already\""),
            ("", ""),
        ] {
            assert_eq!(quoted(value), expected);
        }
    }
}
