//! Words between `@` that stand for values of a run, such as `@port@`.

use std::collections::BTreeMap;

use anyhow::bail;

/// The values by word.
#[derive(Debug, Clone, Default)]
pub struct Words(BTreeMap<String, String>);

impl Words {
    pub fn set(&mut self, word: &str, value: impl ToString) {
        self.0.insert(word.to_string(), value.to_string());
    }

    /// The words of every run, with empty values, to check files without a run.
    pub fn for_run() -> Words {
        const NAMES: &str =
            "app boot build cpus dir extensions php port repository root script surus warmup";
        let words = NAMES.split(' ').map(|name| (name.into(), String::new()));
        Words(words.collect())
    }

    pub fn has(&self, word: &str) -> bool {
        self.0.contains_key(word)
    }

    /// Fills in a part of a command. A word without a value is an error.
    pub fn fill(&self, text: &str) -> anyhow::Result<String> {
        // Twice, because a value may contain words.
        let filled = self.replace(&self.replace(text).text);
        match filled.unknown {
            None => Ok(filled.text),
            Some(word) => {
                let known: Vec<_> = self.0.keys().map(String::as_str).collect();
                bail!(
                    "`{text}`: no value for @{word}@; known: {}",
                    known.join(", ")
                )
            }
        }
    }

    /// Fills in each part of a command.
    pub fn command(&self, parts: &[String]) -> anyhow::Result<Vec<String>> {
        parts.iter().map(|part| self.fill(part)).collect()
    }

    /// Fills in a file. A word in braces without a value is none of these, and stays.
    pub fn fill_file(&self, text: &str) -> String {
        self.replace(&self.replace(text).text).text
    }

    fn replace(&self, text: &str) -> Filled {
        let mut filled = Filled::default();
        let mut rest = text;
        while let Some(at) = rest.find('@') {
            let after = &rest[at + 1..];
            let length = after.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let word = &after[..length.unwrap_or(after.len())];
            let is_word = !word.is_empty() && after[word.len()..].starts_with('@');
            let Some(value) = self.0.get(word).filter(|_| is_word) else {
                if is_word {
                    filled.unknown.get_or_insert(word.to_string());
                }
                filled.text.push_str(&rest[..=at]);
                rest = after;
                continue;
            };
            filled.text.push_str(&rest[..at]);
            filled.text.push_str(value);
            rest = &after[word.len() + 1..];
        }
        filled.text.push_str(rest);
        filled
    }
}

#[derive(Default)]
struct Filled {
    text: String,
    /// The first word without a value.
    unknown: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::Words;

    fn words() -> Words {
        let mut words = Words::default();
        words.set("port", 8080);
        words
    }

    #[test]
    fn known_word_is_replaced_and_lone_at_signs_stay() {
        let filled = words()
            .fill("a@b.example @port@:@port@ @")
            .unwrap_or_default();
        assert_eq!(filled, "a@b.example 8080:8080 @");
    }

    #[test]
    fn value_may_contain_words() {
        let mut words = words();
        words.set("listen", "--listen @port@");
        assert_eq!(words.fill_file("@listen@"), "--listen 8080");
    }

    #[test]
    fn unknown_word_in_a_command_names_the_known_ones() {
        let error = words()
            .fill("--listen @prot@")
            .map_err(|error| error.to_string());
        let expected = "`--listen @prot@`: no value for @prot@; known: port";
        assert_eq!(error, Err(expected.to_string()));
    }

    #[test]
    fn unknown_word_in_a_file_stays() {
        assert_eq!(words().fill_file("@include@ @port@"), "@include@ 8080");
    }
}
