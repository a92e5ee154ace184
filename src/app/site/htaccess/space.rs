//! Says which characters separate the words of a line.

/// Apache's whitespace; `char::is_ascii_whitespace` lacks the vertical tab.
pub(super) fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}
