//! PHP settings as lines of an ini file.

use anyhow::bail;

/// `name=value`.
pub fn line(name: &str, value: &str) -> anyhow::Result<String> {
    const BREAKS: [char; 3] = ['\n', '\r', '\0'];
    if name.is_empty() || name.contains('=') || name.contains(BREAKS) || value.contains(BREAKS) {
        bail!(
            "PHP setting {name:?} = {value:?}: the name may not be empty or have a `=`, and neither may have line breaks \
             or NUL bytes"
        );
    }
    Ok(format!("{name}={}", quoted(value)))
}

/// As php's `-d`: what begins with a letter or digit and has nothing special in it is left alone, so that `On`, `8M` and
/// `E_ALL & ~E_NOTICE` keep their meaning; the rest is quoted.
fn quoted(value: &str) -> String {
    let constant = value
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || " _-&|~^()".contains(c));
    if constant || value.starts_with('"') {
        value.to_string()
    } else {
        format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
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
            ("/var/lib/php;x", "\"/var/lib/php;x\""),
            ("a\"b", "\"a\\\"b\""),
            ("\"already\"", "\"already\""),
            ("", ""),
        ] {
            assert_eq!(quoted(value), expected);
        }
    }
}
