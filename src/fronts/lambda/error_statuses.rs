//! `lambda.error_statuses`: response statuses that make an HTTP event fail.

use std::fmt;

use http::StatusCode;
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

/// A status, or a range of statuses including both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StatusesInput", into = "String")]
pub struct Statuses {
    first: u16,
    last: u16,
}

impl Statuses {
    pub fn have(self, status: StatusCode) -> bool {
        (self.first..=self.last).contains(&status.as_u16())
    }
}

/// A value in the configuration.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a status such as 500, or a range such as \"502-504\""
)]
enum StatusesInput {
    One(u16),
    Some(String),
}

impl TryFrom<StatusesInput> for Statuses {
    type Error = String;

    fn try_from(input: StatusesInput) -> Result<Statuses, String> {
        let text = match input {
            StatusesInput::One(status) => status.to_string(),
            StatusesInput::Some(text) => text,
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let status = |text: &str| {
            let status = text.trim().parse().ok();
            status.filter(|status| (100..=599).contains(status))
        };
        match (status(first), status(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Statuses { first, last }),
            _ => Err(format!(
                "`{text}` is neither a status such as `500` nor a range such as `502-504`"
            )),
        }
    }
}

impl From<Statuses> for String {
    fn from(statuses: Statuses) -> String {
        match statuses {
            Statuses { first, last } if first == last => first.to_string(),
            Statuses { first, last } => format!("{first}-{last}"),
        }
    }
}

/// For the setting: a single status or range stands for a list of one.
pub fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Statuses>, D::Error> {
    struct Values;

    impl<'de> de::Visitor<'de> for Values {
        type Value = Vec<Statuses>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list such as [500, \"502-504\"], a single status or a single range")
        }

        fn visit_i64<E: de::Error>(self, status: i64) -> Result<Vec<Statuses>, E> {
            Statuses::deserialize(status.into_deserializer()).map(|status| vec![status])
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<Statuses>, E> {
            Statuses::deserialize(text.into_deserializer()).map(|statuses| vec![statuses])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(
            self,
            mut values: A,
        ) -> Result<Vec<Statuses>, A::Error> {
            let mut all = Vec::new();
            while let Some(statuses) = values.next_element()? {
                all.push(statuses);
            }
            Ok(all)
        }
    }

    from.deserialize_any(Values)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn single_status_stands_for_a_list_of_one() {
        let settings = |text: &str| {
            let read: Result<crate::fronts::lambda::Settings, _> = toml::from_str(text);
            read.map(|settings| settings.error_statuses)
        };
        let server_errors = Statuses {
            first: 500,
            last: 599,
        };
        let one = Statuses {
            first: 503,
            last: 503,
        };
        for (text, expected) in [
            ("503", vec![one]),
            ("'503'", vec![one]),
            ("'500-599'", vec![server_errors]),
            ("[503, '500-599']", vec![one, server_errors]),
            ("[]", vec![]),
        ] {
            let read = settings(&format!("error_statuses = {text}"));
            assert_eq!(read.unwrap(), expected, "{text}");
        }
        for wrong in ["99", "'5xx'", "true", "-1", "[true]"] {
            let error = settings(&format!("error_statuses = {wrong}")).unwrap_err();
            assert!(error.to_string().contains("502-504"), "{wrong}: {error}");
        }
    }

    #[test]
    fn statuses_parse_as_number_or_range() {
        for (text, inside, outside) in [
            ("500", 500, 501),
            ("'500'", 500, 499),
            ("'502-504'", 504, 505),
            ("'500 - 599'", 599, 404),
        ] {
            let mut table: toml::Table = toml::from_str(&format!("v = {text}")).unwrap();
            let statuses: Statuses = table.remove("v").unwrap().try_into().unwrap();
            let has = |status| statuses.have(StatusCode::from_u16(status).unwrap());
            assert!(has(inside) && !has(outside), "{text}");
            let written = String::from(statuses);
            let again = Statuses::try_from(StatusesInput::Some(written));
            assert_eq!(again, Ok(statuses));
        }
        for wrong in ["", "5xx", "504-502", "99", "600", "500-", "-500"] {
            let why = Statuses::try_from(StatusesInput::Some(wrong.into())).unwrap_err();
            assert!(why.contains("502-504"), "{why}");
        }
    }
}
