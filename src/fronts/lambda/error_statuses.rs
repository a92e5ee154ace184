//! `lambda.error_statuses`: response statuses that make an HTTP event fail.

use http::StatusCode;
use serde::{Deserialize, Serialize};

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
