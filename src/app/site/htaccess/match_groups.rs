//! The groups of a match.

use std::ops::Range;

/// The groups `$0` to `$9`, as byte ranges of the text.
pub type Groups = [Option<Range<usize>>; 10];
