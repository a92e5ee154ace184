//! Bounds names that come from a message, such as labels of metrics and keys of maps.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The longest name in bytes.
const MAX: usize = 256;

/// The name, or its beginning and its hash, so that other long names differ from it.
pub fn bounded(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX {
        return name.into();
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let hash = format!("...{:016x}", hasher.finish());
    let mut end = MAX - hash.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{hash}", &name[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_still_differ() {
        let name = "ä".repeat(MAX / 2);
        assert_eq!(bounded(&name), name);
        let (one, other) = (format!("{name}one"), format!("{name}other"));
        assert!(bounded(&one).len() <= MAX && bounded(&one).starts_with('ä'));
        assert_ne!(bounded(&one), bounded(&other));
        assert_eq!(bounded(&one), bounded(&one));
    }
}
