//! Parses `engine.warmup`: which URLs Surus requests once the application has booted.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected \"auto\", \"learn\" or a list of URLs")]
        enum Written {
            Word(Word),
            Urls(Vec<String>),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            Auto,
            Learn,
        }
        Ok(match Written::deserialize(from)? {
            Written::Word(Word::Auto) => Warmup::Auto,
            Written::Word(Word::Learn) => Warmup::Learn,
            Written::Urls(urls) => Warmup::Urls(urls),
        })
    }
}
