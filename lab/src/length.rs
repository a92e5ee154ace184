//! The length of a load: a time or a number of requests, in the small and in the full form.

use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize as Derive, Serialize};
use surus_load::Stop;

/// Which form of an experiment is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Derive, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Short: shows that everything works. Its numbers are noisy.
    Small,
    /// As the published table's rules ask.
    Full,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Size::Small => "small",
            Size::Full => "full",
        })
    }
}

/// A value for each form: `{ small = 3, full = 10 }`.
#[derive(Debug, Clone, Derive)]
#[serde(deny_unknown_fields)]
pub struct BySize<T> {
    small: T,
    full: T,
}

impl<T> BySize<T> {
    pub fn at(&self, size: Size) -> &T {
        match size {
            Size::Small => &self.small,
            Size::Full => &self.full,
        }
    }
}

/// Reads one length for both forms, or a table with one for each.
pub fn same_or_by_size<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BySize<Length>>, D::Error> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = BySize<Length>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a time such as \"10s\", or { small = \"1s\", full = \"10s\" }")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            same(Length::deserialize(text.into_deserializer())?)
        }

        fn visit_i64<E: Error>(self, count: i64) -> Result<Self::Value, E> {
            same(Length::deserialize(count.into_deserializer())?)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            BySize::deserialize(MapAccessDeserializer::new(map))
        }
    }
    fn same<E>(length: Length) -> Result<BySize<Length>, E> {
        Ok(BySize {
            small: length,
            full: length,
        })
    }
    from.deserialize_any(Reader).map(Some)
}

/// `"10s"` or `100000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    Time(Duration),
    Requests(u64),
}

impl Length {
    pub fn time(self) -> Option<Duration> {
        match self {
            Length::Time(time) => Some(time),
            Length::Requests(_) => None,
        }
    }

    pub fn stop(self) -> Stop {
        match self {
            Length::Time(time) => Stop::After(time),
            Length::Requests(count) => Stop::Requests(count),
        }
    }
}

impl std::fmt::Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Length::Time(time) => write!(f, "{time:?}"),
            Length::Requests(count) => write!(f, "{count} requests"),
        }
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Length, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Length;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a time such as \"500ms\" or \"10s\", or a number of requests")
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<Length, E> {
                match u64::try_from(count) {
                    Ok(count @ 1..) => Ok(Length::Requests(count)),
                    _ => Err(E::custom(format!("{count} requests; at least 1 is needed"))),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Length, E> {
                let milliseconds = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
                    (Some(number), _) => number.parse::<u64>().ok(),
                    (None, Some(number)) => number.parse::<u64>().ok().map(|s| s * 1000),
                    (None, None) => None,
                };
                match milliseconds {
                    Some(time @ 1..) => Ok(Length::Time(Duration::from_millis(time))),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
        }
        from.deserialize_any(Reader)
    }
}
