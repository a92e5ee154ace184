//! The setting `engine.warmup`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is requested once after the boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Warmup {
    /// A page that does not exist, if Surus knows the framework and the engine keeps nothing of a
    /// request.
    #[default]
    Auto,
    /// These URLs as well. An empty list turns warm-ups off.
    Urls(Vec<String>),
}

impl Warmup {
    /// No warm-up at all.
    pub fn off() -> Warmup {
        Warmup::Urls(Vec::new())
    }

    pub fn urls(&self) -> &[String] {
        match self {
            Warmup::Auto => &[],
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
            Warmup::Urls(urls) => urls.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Warmup {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected \"auto\" or a list of URLs")]
        enum Written {
            Word(Word),
            Urls(Vec<String>),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            Auto,
        }
        Ok(match Written::deserialize(from)? {
            Written::Word(Word::Auto) => Warmup::Auto,
            Written::Urls(urls) => Warmup::Urls(urls),
        })
    }
}
