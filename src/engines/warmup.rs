//! Parses `engine.warmup`: which URLs Surus requests once the application has booted.

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Deserialize as Derive, Serialize, Serializer};

/// What is requested once after the boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Warmup {
    /// A page that does not exist, if Surus knows the framework and the engine keeps nothing of a
    /// request.
    #[default]
    Auto,
    /// That page, and pages that Surus learns from requests.
    Learn,
    /// The page that does not exist, and these URLs. An empty list turns warm-ups off.
    Urls(Vec<String>),
}

impl Warmup {
    /// No warm-up at all.
    pub fn off() -> Warmup {
        Warmup::Urls(Vec::new())
    }

    pub fn urls(&self) -> &[String] {
        match self {
            Warmup::Auto | Warmup::Learn => &[],
            Warmup::Urls(urls) => urls,
        }
    }

    pub fn is_off(&self) -> bool {
        *self == Warmup::off()
    }
}

impl Serialize for Warmup {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Warmup::Auto => to.serialize_str("auto"),
            Warmup::Learn => to.serialize_str("learn"),
            Warmup::Urls(urls) => urls.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Warmup {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Derive)]
        #[serde(untagged, expecting = "expected \"auto\", \"learn\" or a list of URLs")]
        enum Written {
            Word(String),
            Urls(Vec<String>),
        }
        let urls = match Written::deserialize(from)? {
            Written::Word(word) => match word.as_str() {
                "auto" => return Ok(Warmup::Auto),
                "learn" => return Ok(Warmup::Learn),
                _ => return Err(D::Error::custom(unknown(&word))),
            },
            Written::Urls(urls) => urls,
        };
        match urls.iter().find(|url| !is_url(url)) {
            Some(word) => Err(D::Error::custom(unknown(word))),
            None => Ok(Warmup::Urls(urls)),
        }
    }
}

/// Whether a text is a path, or a URL with its host.
fn is_url(text: &str) -> bool {
    text.starts_with('/') || text.contains("://")
}

fn unknown(word: &str) -> String {
    format!(
        "`{word}` is unknown, expected \"auto\", \"learn\" or a list of URLs such as [\"/login\"]"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(value: toml::Value) -> Result<Warmup, String> {
        value
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_string())
    }

    #[test]
    fn modes_and_urls_are_read() {
        assert_eq!(read("auto".into()), Ok(Warmup::Auto));
        assert_eq!(read("learn".into()), Ok(Warmup::Learn));
        let urls = vec!["/".to_string(), "https://example.org/login".to_string()];
        assert_eq!(read(urls.clone().into()), Ok(Warmup::Urls(urls)));
        let none: Vec<String> = Vec::new();
        assert_eq!(read(none.into()), Ok(Warmup::off()));
    }

    #[test]
    fn unknown_mode_is_an_error_that_lists_the_modes() {
        // A list of one is what a variable of the environment may mean.
        for value in [toml::Value::from("lern"), vec!["lern"].into()] {
            let error = read(value).unwrap_err();
            for part in ["`lern`", "\"auto\"", "\"learn\"", "a list of URLs"] {
                assert!(error.contains(part), "no {part} in: {error}");
            }
        }
        assert!(
            read(vec!["/", "login"].into())
                .unwrap_err()
                .contains("`login`")
        );
    }
}
