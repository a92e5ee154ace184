//! A finding: a mistake in a template, with its place and remedy.

/// A mistake, or a likely one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub line: usize,
    /// Whether it will fail; otherwise it may.
    pub is_certain: bool,
    /// What is wrong, and what to do.
    pub text: String,
}

pub(super) fn certain(found: &mut Vec<Finding>, line: usize, text: String) {
    found.push(Finding {
        line,
        is_certain: true,
        text,
    });
}

pub(super) fn perhaps(found: &mut Vec<Finding>, line: usize, text: String) {
    found.push(Finding {
        line,
        is_certain: false,
        text,
    });
}
