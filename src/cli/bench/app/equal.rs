//! Joins the names of engines with equal texts, so that a reason of several is printed once.

/// Each text with all names that have it, in the order of the first ones.
pub fn join_equal(
    all: impl IntoIterator<Item = (&'static str, String)>,
) -> Vec<(Vec<&'static str>, String)> {
    let mut joined: Vec<(Vec<&'static str>, String)> = Vec::new();
    for (name, text) in all {
        match joined.iter_mut().find(|(_, known)| *known == text) {
            Some((names, _)) => names.push(name),
            None => joined.push((vec![name], text)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_joined_in_the_order_of_the_first_engine() {
        let why = |name, text: &str| (name, text.to_string());
        let joined = join_equal([
            why("classic", "12 µs"),
            why("worker", "no script"),
            why("fork", "a thread"),
            why("rewind", "no script"),
        ]);
        let expected = [
            (vec!["classic"], "12 µs".to_string()),
            (vec!["worker", "rewind"], "no script".to_string()),
            (vec!["fork"], "a thread".to_string()),
        ];
        assert_eq!(joined, expected);
    }
}
