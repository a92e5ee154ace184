//! Translates PCRE patterns into the syntax of `regex`.

/// ASCII word boundaries, for the engine whose `\b` is Unicode-aware.
pub(super) const BOUNDARY: &str =
    "(?:(?<=[0-9A-Za-z_])(?![0-9A-Za-z_])|(?<![0-9A-Za-z_])(?=[0-9A-Za-z_]))";
pub(super) const NO_BOUNDARY: &str =
    "(?:(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<![0-9A-Za-z_])(?![0-9A-Za-z_]))";

/// The class content of `\d` and the like, and whether it is negated.
fn shorthand(c: char) -> Option<(&'static str, bool)> {
    Some(match c {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("0-9A-Za-z_", true),
        's' => ("\\t-\\r\\x20", false),
        'S' => ("\\t-\\r\\x20", true),
        'h' => ("\\t\\x20\\xa0", false),
        'v' => ("\\n-\\r\\x85", false),
        _ => return None,
    })
}

/// Translates a pattern, and returns whether it needs backtracking. Some syntax differs: `\<` is a
/// character in PCRE and the start of a word in `regex`.
pub(super) fn translate(
    pcre: &str,
    boundary: &str,
    no_boundary: &str,
) -> Result<(String, bool), String> {
    let mut out = String::with_capacity(pcre.len() + 16);
    let mut backtracks = false;
    let mut chars = pcre.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let rest = &pcre[at + c.len_utf8()..];
        match c {
            '\\' => {
                let Some((_, c)) = chars.next() else {
                    return Err("it ends with a backslash".into());
                };
                match c {
                    '1'..='9' => {
                        backtracks = true;
                        out.extend(['\\', c]);
                    }
                    'Z' => {
                        backtracks = true;
                        out.push_str("(?=\\n?\\z)");
                    }
                    'b' => out.push_str(boundary),
                    'B' => out.push_str(no_boundary),
                    'e' => out.push_str("\\x1b"),
                    'K' | 'G' => {
                        backtracks = true;
                        out.extend(['\\', c]);
                    }
                    'x' => {
                        let digits = &pcre[at + 2..];
                        let end = at + 2 + hexadecimal(digits, &mut out)?;
                        while chars.next_if(|(at, _)| *at < end).is_some() {}
                    }
                    'A' | 'z' | 'n' | 'r' | 't' | 'f' | 'a' => out.extend(['\\', c]),
                    c => match shorthand(c) {
                        Some((class, false)) => out.extend(["[", class, "]"]),
                        Some((class, true)) => out.extend(["[^", class, "]"]),
                        None if c.is_ascii_alphanumeric() => {
                            return Err(format!("\\{c} is not supported"));
                        }
                        None => push_literal(&mut out, c),
                    },
                }
            }
            '[' => {
                let used = class(rest, &mut out)?;
                let end = at + 1 + used;
                while chars.next_if(|(at, _)| *at < end).is_some() {}
            }
            '{' if !is_quantifier(rest) => out.push_str("\\{"),
            '}' if !closes_quantifier(&out) => out.push_str("\\}"),
            '(' => {
                if ["?=", "?!", "?<=", "?<!", "?>", "?(", "?|"]
                    .iter()
                    .any(|begin| rest.starts_with(begin))
                {
                    backtracks = true;
                }
                if rest.starts_with('*') || rest.starts_with("?#") || rest.starts_with("?R") {
                    return Err("a PCRE verb, comment or recursion is not supported".into());
                }
                out.push(c);
            }
            '*' | '+' | '?' | '}' => {
                out.push(c);
                // A possessive quantifier; `(?+` is not one.
                if rest.starts_with('+') && !out.ends_with("(?") {
                    backtracks = true;
                }
            }
            c if c.is_ascii() => out.push(c),
            // Characters beyond ASCII are matched with their case.
            c => out.push_str(&format!("(?-i:\\x{:02x})", u32::from(c))),
        }
    }
    Ok((out, backtracks))
}

/// Parses the byte of `\xe9` or `\x{e9}` behind the `x`. Returns the length of its notation.
fn hexadecimal(text: &str, out: &mut String) -> Result<usize, String> {
    let (digits, used) = match text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        Some((digits, _)) => (digits, digits.len() + 2),
        None => {
            let digits = text.bytes().take(2);
            let count = digits.take_while(u8::is_ascii_hexdigit).count();
            (&text[..count], count)
        }
    };
    match u8::from_str_radix(digits, 16) {
        Ok(byte) => out.push_str(&format!("\\x{byte:02x}")),
        Err(_) => return Err(format!("\\x{} is not a byte", &text[..used])),
    }
    Ok(used)
}

fn push_literal(out: &mut String, c: char) {
    if !c.is_ascii() {
        out.push_str(&format!("\\x{:02x}", u32::from(c)));
        return;
    }
    if "\\.+*?()|[]{}^$#&-~".contains(c) {
        out.push('\\');
    }
    out.push(c);
}

/// Whether the text behind a brace is a quantifier: `{2}`, `{2,}` or `{2,3}`.
pub(super) fn is_quantifier(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once('}') else {
        return false;
    };
    let (from, to) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    !from.is_empty() && digits(from) && digits(to)
}

fn closes_quantifier(out: &str) -> bool {
    out.rfind('{').is_some_and(|at| {
        let escaped = out[..at].ends_with('\\') && !out[..at].ends_with("\\\\");
        let inside = &out[at + 1..];
        !escaped && !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit() || b == b',')
    })
}

/// Translates a character class behind its `[`. Returns its length in bytes.
fn class(text: &str, out: &mut String) -> Result<usize, String> {
    out.push('[');
    let mut chars = text.char_indices().peekable();
    if chars.next_if(|(_, c)| *c == '^').is_some() {
        out.push('^');
    }
    let mut first = true;
    // Whether a dash could begin a range here.
    let mut single = false;
    while let Some((at, c)) = chars.next() {
        let rest = &text[at + c.len_utf8()..];
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(at + 1);
            }
            '[' if rest.starts_with(':') && rest[1..].contains(":]") => {
                let end = at + 1 + rest.find(":]").unwrap_or_default() + 2;
                out.push_str(&text[at..end]);
                while chars.next_if(|(at, _)| *at < end).is_some() {}
                single = false;
            }
            '-' if !single || rest.starts_with(']') || rest.starts_with("\\d") => {
                out.push_str("\\-");
                single = true;
            }
            '-' => {
                out.push('-');
                single = false;
                // The end of a range cannot begin another one.
                match chars.next() {
                    Some((at, '\\')) => {
                        let Some((_, c)) = chars.next() else {
                            return Err("it ends with a backslash".into());
                        };
                        if c == 'x' {
                            let end = at + 2 + hexadecimal(&text[at + 2..], out)?;
                            while chars.next_if(|(at, _)| *at < end).is_some() {}
                        } else if c.is_ascii_alphanumeric() {
                            return Err(format!("{} cannot end a range", &text[at..at + 2]));
                        } else {
                            push_literal(out, c);
                        }
                    }
                    Some((_, c)) => push_literal(out, c),
                    None => break,
                }
            }
            '\\' => {
                let Some((_, c)) = chars.next() else { break };
                single = true;
                match c {
                    'b' => out.push_str("\\x08"),
                    'e' => out.push_str("\\x1b"),
                    'x' => {
                        let digits = &text[at + 2..];
                        let end = at + 2 + hexadecimal(digits, out)?;
                        while chars.next_if(|(at, _)| *at < end).is_some() {}
                    }
                    'n' | 'r' | 't' | 'f' | 'a' => out.extend(['\\', c]),
                    c => match shorthand(c) {
                        Some((class, is_negated)) => {
                            out.push_str(if is_negated { "[^" } else { "[" });
                            out.extend([class, "]"]);
                            single = false;
                        }
                        None if c.is_ascii_alphanumeric() => {
                            return Err(format!("\\{c} is not supported in a class"));
                        }
                        None => push_literal(out, c),
                    },
                }
            }
            c => {
                push_literal(out, c);
                single = true;
            }
        }
        first = false;
    }
    Err("a class is not closed".into())
}
