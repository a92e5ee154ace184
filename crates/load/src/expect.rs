//! Checks responses against the statuses and bodies that a run expects.

/// A set of status codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSet {
    ranges: Vec<(u16, u16)>,
}

impl StatusSet {
    /// Parses `200`, `2xx`, `200-299`, or several of them with commas.
    pub fn parse(text: &str) -> Result<StatusSet, String> {
        let invalid = || format!("`{text}` is no status; write 200, 2xx, 200-299 or 200,404");
        let code = |text: &str| {
            let code = text.parse::<u16>().ok();
            code.filter(|code| (100..=999).contains(code))
                .ok_or_else(invalid)
        };
        let range = |part: &str| {
            let part = part.trim();
            if let Some(class) = part.strip_suffix("xx").or(part.strip_suffix("XX")) {
                let first = code(&format!("{class}00"))?;
                return Ok((first, first + 99));
            }
            match part.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (code(first)?, code(last)?);
                    (first <= last).then_some((first, last)).ok_or_else(invalid)
                }
                None => code(part).map(|code| (code, code)),
            }
        };
        let ranges = text.split(',').map(range).collect::<Result<_, String>>()?;
        Ok(StatusSet { ranges })
    }

    /// Whether it has this status.
    pub fn has(&self, status: u16) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&status))
    }
}

impl Default for StatusSet {
    fn default() -> StatusSet {
        StatusSet {
            ranges: vec![(200, 399)],
        }
    }
}

/// What each response must look like.
#[derive(Debug, Clone, Default)]
pub struct Expectations {
    /// Its status.
    pub status: StatusSet,
    /// Text that its body must contain.
    pub body: Option<String>,
}

impl Expectations {
    /// Whether a body is as expected.
    pub fn allows_body(&self, body: &[u8]) -> bool {
        let Some(text) = &self.body else {
            return true;
        };
        let text = text.as_bytes();
        text.is_empty() || body.windows(text.len()).any(|part| part == text)
    }
}
