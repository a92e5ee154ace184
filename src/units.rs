//! Durations and sizes as written in configuration: `30s`, `8M`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration: `500ms`, `30s`, `5m`, `1h`; `0s` where "never" makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl Time {
    pub const fn seconds(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    pub const fn millis(millis: u64) -> Time {
        Time(Duration::from_millis(millis))
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let wrong = || format!("`{text}` is not a duration; write `500ms`, `30s`, `5m` or `1h`");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
        let millis = match &text[digits..] {
            "ms" => Some(number),
            "s" => number.checked_mul(1000),
            "m" => number.checked_mul(60_000),
            "h" => number.checked_mul(3_600_000),
            _ => return Err(wrong()),
        };
        Ok(Time(Duration::from_millis(millis.ok_or_else(wrong)?)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            0 => f.write_str("0s"),
            _ if millis.is_multiple_of(3_600_000) => write!(f, "{}h", millis / 3_600_000),
            _ if millis.is_multiple_of(60_000) => write!(f, "{}m", millis / 60_000),
            _ if millis.is_multiple_of(1000) => write!(f, "{}s", millis / 1000),
            _ => write!(f, "{millis}ms"),
        }
    }
}

/// A number of bytes: `65536`, `64K`, `8M`, `2G`, in powers of 1024 as PHP writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || format!("`{text}` is not a size; write bytes or `64K`, `8M`, `2G`");
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
        let unit = match &text[digits..] {
            "" => 1,
            "k" | "K" => 1 << 10,
            "m" | "M" => 1 << 20,
            "g" | "G" => 1 << 30,
            _ => return Err(wrong()),
        };
        number.checked_mul(unit).map(Size).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        match bytes {
            0 => f.write_str("0"),
            _ if bytes.is_multiple_of(1 << 30) => write!(f, "{}G", bytes >> 30),
            _ if bytes.is_multiple_of(1 << 20) => write!(f, "{}M", bytes >> 20),
            _ if bytes.is_multiple_of(1 << 10) => write!(f, "{}K", bytes >> 10),
            _ => write!(f, "{bytes}"),
        }
    }
}

macro_rules! written_as_text {
    ($type:ident, $expecting:literal, $number:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        let number =
                            u64::try_from(number).map_err(|_| E::custom("a negative number"))?;
                        $number(number).ok_or_else(|| E::custom(concat!("expected ", $expecting)))
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

written_as_text!(
    Time,
    "a duration such as \"500ms\", \"30s\", \"5m\" or \"1h\"",
    |_| None::<Time>
);
written_as_text!(
    Size,
    "a size such as 65536, \"64K\", \"8M\" or \"2G\"",
    |n| Some(Size(n))
);

/// For settings: a number in `range`, or an error that names the key and the range.
pub fn number<'de, D: Deserializer<'de>>(
    key: &'static str,
    range: RangeInclusive<usize>,
    from: D,
) -> Result<usize, D::Error> {
    struct Visitor(&'static str, RangeInclusive<usize>);

    impl de::Visitor<'_> for Visitor {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Visitor(key, range) = self;
            write!(
                f,
                "a number from {} to {} ({key})",
                range.start(),
                range.end()
            )
        }

        fn visit_i128<E: de::Error>(self, number: i128) -> Result<usize, E> {
            let Visitor(key, range) = self;
            let inside = usize::try_from(number).ok().filter(|it| range.contains(it));
            inside.ok_or_else(|| outside(key, number, range.start(), range.end()))
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<usize, E> {
            self.visit_i128(number.into())
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<usize, E> {
            self.visit_i128(number.into())
        }
    }
    from.deserialize_any(Visitor(key, range))
}

/// For settings: a size in `range`, or an error that names the key and the range.
pub fn size<'de, D: Deserializer<'de>>(
    key: &'static str,
    range: RangeInclusive<Size>,
    from: D,
) -> Result<Size, D::Error> {
    let size = Size::deserialize(from)?;
    match range.contains(&size) {
        true => Ok(size),
        false => Err(outside(key, size, range.start(), range.end())),
    }
}

/// For settings: a timeout of at least a millisecond and at most a year, or an error that names the
/// key. Neither zero nor an endless wait makes sense for these.
pub fn wait<'de, D: Deserializer<'de>>(key: &'static str, from: D) -> Result<Time, D::Error> {
    const RANGE: RangeInclusive<Time> = Time::millis(1)..=Time::seconds(365 * 24 * 3600);
    let time = Time::deserialize(from)?;
    match RANGE.contains(&time) {
        true => Ok(time),
        false => Err(outside(key, time, RANGE.start(), RANGE.end())),
    }
}

/// For settings: a value that `check` accepts, or its error.
pub fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    check: impl FnOnce(&T) -> anyhow::Result<()>,
) -> Result<T, D::Error> {
    let value = T::deserialize(from)?;
    check(&value).map_err(custom::<D::Error>)?;
    Ok(value)
}

/// Like [`one_or_more`], for lists that `check` accepts.
pub fn checked_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    check: impl FnOnce(&[T]) -> anyhow::Result<()>,
) -> Result<Vec<T>, D::Error> {
    let values: Vec<T> = one_or_more(from)?;
    check(&values).map_err(custom::<D::Error>)?;
    Ok(values)
}

/// For settings that are lists: a single string stands for a list of one.
pub fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Values<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Values<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of strings, such as [\"…\", \"…\"], or a single string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![T::deserialize(text.into_deserializer())?])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut values: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(value) = values.next_element()? {
                all.push(value);
            }
            Ok(all)
        }
    }

    from.deserialize_any(Values(PhantomData))
}

/// Like [`checked`], for a setting that may be absent.
pub fn checked_if_set<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    check: impl FnOnce(&T) -> anyhow::Result<()>,
) -> Result<Option<T>, D::Error> {
    checked(from, |value: &Option<T>| {
        value.as_ref().map_or(Ok(()), check)
    })
}

fn custom<E: de::Error>(error: anyhow::Error) -> E {
    E::custom(format_args!("{error:#}"))
}

fn outside<E: de::Error>(
    key: &str,
    value: impl fmt::Display,
    least: impl fmt::Display,
    max: impl fmt::Display,
) -> E {
    E::custom(format_args!(
        "{key} is {value}; it can be from {least} to {max}"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_parsed_and_printed() {
        for text in ["500ms", "30s", "5m", "1h", "0s", "1500ms"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "30",
            "s",
            "-1s",
            "1.5s",
            "30 s",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn size_is_parsed_and_printed() {
        assert_eq!("8M".parse::<Size>().unwrap(), Size(8 << 20));
        assert_eq!("64k".parse::<Size>().unwrap(), Size(64 << 10));
        assert_eq!("17".parse::<Size>().unwrap().to_string(), "17");
        assert_eq!(Size(2 << 30).to_string(), "2G");
        for text in ["", "M", "8MB", "-1", "1.5G", "99999999999G"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
