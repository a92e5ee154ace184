//! Rejects patterns that PCRE rejects, so that Apache answers 500, and other engines accept.

use super::pcre_groups::Groups;
use super::translate::is_quantifier;

/// The largest number of repetitions.
const MAX: u32 = 65_535;

const POSIX_NAMES: [&str; 14] = [
    "alpha", "lower", "upper", "alnum", "ascii", "blank", "cntrl", "digit", "graph", "print",
    "punct", "space", "word", "xdigit",
];

/// The error says what PCRE does not accept. Does not check for errors that other engines report,
/// too.
pub(super) fn check(pcre: &str) -> Result<(), String> {
    let mut at = 0;
    // Whether a quantifier may follow.
    let mut is_repeatable = false;
    let mut groups = Groups::default();
    while let Some(c) = pcre[at..].chars().next() {
        let rest = &pcre[at + c.len_utf8()..];
        at += c.len_utf8();
        match c {
            '\\' => {
                let Some(escaped) = rest.chars().next() else {
                    return Ok(());
                };
                at += escaped.len_utf8();
                if escaped == 'x' {
                    at += hexadecimal(&rest[1..]);
                }
                is_repeatable = !"bBAZzGK".contains(escaped);
                match escaped {
                    // The lengths of the texts of groups are not tracked.
                    '1'..='9' => groups.item(None),
                    'K' => groups.check_reset()?,
                    _ => groups.item(Some(is_repeatable.into())),
                }
            }
            '[' => {
                at += class(rest)?;
                is_repeatable = true;
                groups.item(Some(1));
            }
            '(' => {
                at += groups.open(rest)?;
                is_repeatable = false;
            }
            ')' => {
                groups.close()?;
                is_repeatable = true;
            }
            '|' => {
                groups.alternative()?;
                is_repeatable = false;
            }
            '*' | '+' | '?' => {
                at += after_quantifier(is_repeatable, c, rest)?;
                is_repeatable = false;
                groups.repeat(None);
            }
            '{' if is_quantifier(rest) => {
                let inside = rest.split('}').next().unwrap_or_default();
                let times = numbers(inside)?;
                at += inside.len() + 1;
                at += after_quantifier(is_repeatable, c, &pcre[at..])?;
                is_repeatable = false;
                groups.repeat(times);
            }
            c => {
                is_repeatable = !"^$".contains(c);
                groups.item(Some(is_repeatable.into()));
            }
        }
    }
    groups.check_conditions()
}

/// The length of the number behind `\x`.
fn hexadecimal(text: &str) -> usize {
    match text.starts_with('{') {
        true => text.find('}').map_or(0, |end| end + 1),
        false => {
            let digits = text.bytes().take(2);
            digits.take_while(u8::is_ascii_hexdigit).count()
        }
    }
}

/// The length of the sign that makes a quantifier lazy or possessive.
fn after_quantifier(is_repeatable: bool, sign: char, rest: &str) -> Result<usize, String> {
    match is_repeatable {
        true => Ok(usize::from(rest.starts_with(['?', '+']))),
        false => Err(format!("`{sign}` follows nothing that can be repeated")),
    }
}

/// Reads the content of a quantifier's braces. Returns the number of repetitions if it is fixed.
fn numbers(inside: &str) -> Result<Option<u32>, String> {
    let mut numbers = Vec::new();
    for text in inside.split(',').filter(|text| !text.is_empty()) {
        match text.parse::<u32>() {
            Ok(number) if number <= MAX => numbers.push(number),
            _ => return Err(format!("{{{inside}}} repeats more than {MAX} times")),
        }
    }
    match numbers.is_sorted() {
        true if inside.ends_with(',') => Ok(None),
        true => Ok(numbers
            .first()
            .copied()
            .filter(|n| numbers.last() == Some(n))),
        false => Err(format!(
            "the numbers of {{{inside}}} are in the wrong order"
        )),
    }
}

/// The end of `[:alpha:]` and the like, without the first bracket (`check_posix_syntax` of PCRE):
/// the sign, the text between, and the length.
fn posix(text: &str) -> Option<(char, &str, usize)> {
    let sign = text.chars().next().filter(|c| ":.=".contains(*c))?;
    let inside = &text[1..];
    let mut chars = inside.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next)?;
        if c == '\\' && (next == ']' || next == '\\') {
            chars.next();
        } else if c == ']' || (c == '[' && next == sign) {
            return None;
        } else if c == sign && next == ']' {
            return Some((sign, &inside[..at], at + 3));
        }
    }
    None
}

/// What stands before a place in a class.
#[derive(PartialEq, Eq)]
enum Before {
    /// Nothing, or the end of a range.
    Nothing,
    /// A character, which a range can begin with.
    Single,
    /// The dash of a range.
    Dash,
    /// Several characters, such as `\d`.
    Many,
}

/// Reads a class behind its `[`. Returns its length.
pub(super) fn class(text: &str) -> Result<usize, String> {
    if let Some((sign, inside, _)) = posix(text) {
        return Err(format!(
            "`[{sign}{inside}{sign}]` stands outside of a class"
        ));
    }
    let mut at = usize::from(text.starts_with('^'));
    let begin = at;
    let mut before = Before::Nothing;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        let mut length = c.len_utf8();
        let mut is_many = false;
        match c {
            ']' if at > begin => return Ok(at + 1),
            '[' => {
                if let Some((sign, name, used)) = posix(rest) {
                    let name = name.strip_prefix('^').unwrap_or(name);
                    if sign != ':' || !POSIX_NAMES.contains(&name) {
                        return Err(format!("`[{sign}{name}{sign}]` is not known"));
                    }
                    length += used;
                    is_many = true;
                }
            }
            '\\' => {
                let Some(escaped) = rest.chars().next() else {
                    return Ok(text.len());
                };
                length += escaped.len_utf8();
                if escaped == 'x' {
                    length += hexadecimal(&rest[1..]);
                }
                is_many = "dDwWsShHvV".contains(escaped);
            }
            '-' if before == Before::Single && !rest.starts_with(']') => {
                before = Before::Dash;
                at += 1;
                continue;
            }
            _ => {}
        }
        if is_many {
            let behind = &text[at + length..];
            if before == Before::Dash || (behind.starts_with('-') && !behind.starts_with("-]")) {
                let item = &text[at..at + length];
                return Err(format!(
                    "`{item}` cannot begin or end a range; write the dash as \\-"
                ));
            }
        }
        before = match before {
            _ if is_many => Before::Many,
            Before::Dash => Before::Nothing,
            _ => Before::Single,
        };
        at += length;
    }
    Ok(text.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::check;

    /// Each was tried with PCRE2 10.42.
    #[test]
    fn patterns_are_rejected_as_by_pcre() {
        for pattern in [
            "a**",
            "^*",
            "$?",
            r"\b+",
            "a+?+",
            "a{2}{3}",
            "(?i)*",
            "a|*",
            "(*)",
            "a{3,2}",
            "a{70000}",
            r"[a-\d]",
            r"[\w-.]",
            "[[:alpha:]-z]",
            "[[:foo:]]",
            "[[.a.]]",
            "[:alpha:]",
            "(?u)a",
            "(?<=a*)",
            "(?<=a?)b",
            "(?<!a{1,2})b",
            "(?<!a{2,})b",
            "(?<=(a|b)+)c",
            "(?<=(a|bc))d",
            "(?<=a|b+)c",
            r"(?<=a\Kb)",
            "(?(1)a)",
            "(?(2)a)(b)",
            "(?(0)a)(b)",
            "(?(<n>)a)",
            "(?()a)",
            "(?(a)b)",
            "(?(?:a)b)",
            "(a)?(?(1)a|b|c)",
            "(?<1a>b)",
            "(?P<1a>b)",
            "(?<>b)",
            "(?<a.b>c)",
            "(?<a>b)(?<a>c)",
            r"(?x)[\w-.]",
            "(?x)a**",
            // These are not supported.
            "(?x)a b",
            "(?xx)a",
            "(?ix:a)",
            "(?(?=a)b|c)",
            "(?(?<!a)b)",
        ] {
            assert!(check(pattern).is_err(), "{pattern}");
        }
        for pattern in [
            "",
            "a*?",
            "a++",
            "a{2,}+",
            "(a)*",
            "(?=a)*",
            "(?:)*",
            "()*",
            "{,3}",
            "a{,3}",
            "a{x}",
            "^.*$",
            r"\.+",
            r"\x{41}{2}",
            r"[\w-]",
            r"[-\w]",
            "[a-z-9]",
            "[]-a]",
            r"[\x41-\x5a]+",
            "[[:^alpha:]]+",
            "[^]]*",
            "(?i)a",
            "(?i:a)+",
            "(?<n>a)+",
            "(?P<n>a)",
            "(?s-i:a)",
            "[[:a]",
            r"[a\]",
            "(?-x)a",
            "(?<=ab|c)d",
            "(?<=a{2})b",
            "(?<=(?:a|b){3}c)d",
            "(?<=(a|b))c",
            r"(?<=^|\bx|[ab]c\x41)d",
            "(?<!(?=a*)b)c",
            "(?<=a)*b",
            "(a)?(?(1)b|c)",
            "(?(1)b)(a)",
            "(?<n>a)?(?(<n>)b)",
            r"a\",
            "[[=a]",
            "é+",
            "[é-ü]",
        ] {
            check(pattern).unwrap();
        }
    }
}
