//! Says in TOML's words what is wrong with a value's type; serde says it in Rust's. Says what to do
//! about a key or section that the file has twice.

/// The message of an error; `line` is the line of the file that it is about, if there is one.
pub fn explain(message: &str, line: Option<&str>) -> String {
    let line = line.map(str::trim).unwrap_or_default();
    if message == "duplicate key" {
        return duplicate(line);
    }
    let is_number = |rest: &str| rest.starts_with("integer ") || rest.starts_with("floating ");
    let rest = message.strip_prefix("invalid type: ").or_else(|| {
        // A number out of range. Other values have messages of their own.
        (message.strip_prefix("invalid value: ")).filter(|rest| is_number(rest))
    });
    let Some((found, expected)) = rest.and_then(|rest| rest.split_once(", expected ")) else {
        return message.to_string();
    };
    let text = format!(
        "expected {}, not {}",
        expected_type(expected),
        found_type(found)
    );
    match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) if expected == "a sequence" && !name.starts_with('[') => {
            format!("{text}; write [[{name}]], once for each")
        }
        _ if line.is_empty() => text,
        _ => format!("{text}, in `{line}`"),
    }
}

/// The message about a header or key that the file has twice. Values may be secrets.
fn duplicate(line: &str) -> String {
    if !line.starts_with('[') {
        return "the key is set already; remove one of the two".into();
    }
    let header = line.trim_start_matches('[').split(']').next();
    let name = header.unwrap_or_default().trim();
    if name == "site" && line.starts_with("[[") {
        return "the file has [site] already, and cannot have [[site]] as well; put `#` in front \
                of [site]"
            .into();
    }
    format!(
        "the file has the section `{name}` already; write these keys there, without a second \
         header"
    )
}

fn expected_type(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        expected if expected.starts_with("struct ") => "a table",
        expected => expected,
    }
}

fn found_type(found: &str) -> String {
    match found.split_once(' ') {
        Some((kind @ ("string" | "integer" | "boolean"), value)) => format!("the {kind} {value}"),
        Some(("floating", rest)) => rest.replacen("point", "the number", 1),
        _ => match found {
            "sequence" => "a list".into(),
            "map" => "a table".into(),
            found => found.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn type_error_is_explained_in_words_of_toml() {
        for (message, line, expected) in [
            (
                "invalid type: string \"abc\", expected usize",
                Some("workers = \"abc\""),
                "expected a whole number from 0 on, not the string \"abc\", in `workers = \"abc\"`",
            ),
            (
                "invalid type: map, expected a sequence",
                Some("[queue]"),
                "expected a list, not a table; write [[queue]], once for each",
            ),
            (
                "invalid type: floating point `1.5`, expected u64",
                None,
                "expected a whole number from 0 on, not the number `1.5`",
            ),
            (
                "invalid value: integer `-1`, expected usize",
                Some("workers = -1"),
                "expected a whole number from 0 on, not the integer `-1`, in `workers = -1`",
            ),
            (
                "invalid value: string \"x\", expected y",
                Some("a = \"x\""),
                "invalid value: string \"x\", expected y",
            ),
            (
                "duplicate key",
                Some("[[site]] # the first"),
                "the file has [site] already, and cannot have [[site]] as well; put `#` in front \
                 of [site]",
            ),
            (
                "duplicate key",
                Some("[site.env]"),
                "the file has the section `site.env` already; write these keys there, without a \
                 second header",
            ),
            (
                "duplicate key",
                Some("PASSWORD = \"x\""),
                "the key is set already; remove one of the two",
            ),
            (
                "unknown field `x`, expected `y`",
                Some("x = 1"),
                "unknown field `x`, expected `y`",
            ),
        ] {
            assert_eq!(explain(message, line), expected);
        }
    }
}
