//! A custom format of the access log, and the line that it makes of an entry.

use std::time::{Duration, SystemTime};

use super::escape::Escape;
use super::kept::Field;
use super::{AccessLogEntry, LoggedRequest};

/// A format in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineTemplate {
    pub pieces: Vec<Piece>,
    pub escape: Escape,
    /// What a request keeps for [`LogValue::Kept`].
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Literal(String),
    LogValue(LogValue),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogValue {
    /// Never known: nothing asks clients for their names by identd.
    Nothing,
    Client,
    Request,
    Method,
    /// Path and query.
    Target,
    Path,
    Query,
    /// The query with its `?`; nothing if there is none.
    QueryWithMark,
    /// `?` if there is a query.
    Mark,
    /// A parameter of the query.
    Parameter(String),
    Protocol,
    Status,
    Bytes,
    /// `-` for no bytes.
    BytesOrDash,
    /// Bytes of the request with its headers.
    BytesReceived,
    /// Bytes of the response with its headers.
    BytesSent,
    /// The time until the response has ended.
    Took(Unit),
    /// The time until PHP's response began.
    Answered,
    Time(TimeOf, TimeFormat),
    RequestId,
    Engine,
    Process,
    /// The field of this number.
    Kept(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    /// With three digits after the point.
    SecondsAndMillis,
    Millis,
    Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOf {
    Begin,
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeFormat {
    /// `06/Nov/1994:08:49:37 +0000`.
    Common,
    /// The same in brackets.
    Bracketed,
    /// `1994-11-06T08:49:37+00:00`.
    Iso,
    /// Seconds since 1970.
    Unix(Unit),
    /// As for strftime(3), with the conversions of [`CONVERSIONS`].
    Strftime(String),
}

/// The conversions of strftime(3) in a format of Apache.
pub const CONVERSIONS: &str = "%a %b %d %F %H %m %M %S %s %T %Y %y %z %Z %%";

/// Now, as text that is formatted once a second.
#[derive(Debug, Default)]
pub struct Clock {
    second: u64,
    /// As in HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`.
    text: String,
}

impl LineTemplate {
    /// Whether it asks for the bytes of requests or responses with their headers.
    pub fn counts_bytes(&self) -> bool {
        let counted = [LogValue::BytesReceived, LogValue::BytesSent].map(Piece::LogValue);
        self.pieces.iter().any(|piece| counted.contains(piece))
    }

    /// Appends the line of an entry that has ended at `now`.
    pub fn write(
        &self,
        to: &mut Vec<u8>,
        entry: &AccessLogEntry,
        now: SystemTime,
        clock: &mut Clock,
    ) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => to.extend(text.as_bytes()),
                Piece::LogValue(value) => self.value(to, value, entry, now, clock),
            }
        }
        to.push(b'\n');
    }

    fn value(
        &self,
        to: &mut Vec<u8>,
        value: &LogValue,
        entry: &AccessLogEntry,
        now: SystemTime,
        clock: &mut Clock,
    ) {
        let request = entry.request.as_ref();
        let text: Option<Vec<u8>> = match value {
            LogValue::Nothing => None,
            LogValue::Client => entry.client.map(|ip| ip.to_string().into()),
            LogValue::Kept(number) => {
                let value = request.and_then(|request| request.kept.get(*number)?.as_deref());
                value.map(Vec::from)
            }
            LogValue::Status => Some(entry.status.as_str().into()),
            LogValue::Bytes => Some(entry.bytes.to_string().into()),
            LogValue::BytesOrDash => (entry.bytes > 0).then(|| entry.bytes.to_string().into()),
            LogValue::BytesReceived => Some(entry.received.to_string().into()),
            LogValue::BytesSent => Some(entry.sent.to_string().into()),
            LogValue::Took(unit) => Some(unit.show(entry.took).into()),
            LogValue::Answered => {
                let answered = entry.answered.map(|it| Unit::SecondsAndMillis.show(it));
                answered.map(String::into_bytes)
            }
            LogValue::Time(of, format) => {
                let at = match of {
                    TimeOf::Begin => now.checked_sub(entry.took).unwrap_or(now),
                    TimeOf::End => now,
                };
                Some(format.show(at, clock).into())
            }
            LogValue::RequestId => Some(entry.request_id.to_string().into()),
            LogValue::Engine => Some(entry.engine.into()),
            LogValue::Process => Some(std::process::id().to_string().into()),
            _ => request.and_then(|request| of_request(value, request)),
        };
        match text {
            Some(text) => self.escape.write(to, &text),
            None => to.extend(self.escape.missing()),
        }
    }
}

/// What the first line of a request says.
fn of_request(value: &LogValue, request: &LoggedRequest) -> Option<Vec<u8>> {
    let (path, query) = match request.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*request.target, None),
    };
    let text = match value {
        LogValue::Request => format!(
            "{} {} {:?}",
            request.method, request.target, request.version
        ),
        LogValue::Method => request.method.to_string(),
        LogValue::Target => request.target.to_string(),
        LogValue::Path => path.into(),
        LogValue::Query => query?.into(),
        LogValue::QueryWithMark => query.map_or_else(String::new, |query| format!("?{query}")),
        LogValue::Mark => query.map_or("", |_| "?").into(),
        LogValue::Parameter(name) => {
            let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
            value.into()
        }
        LogValue::Protocol => format!("{:?}", request.version),
        _ => return None,
    };
    Some(text.into_bytes())
}

impl Unit {
    fn show(self, time: Duration) -> String {
        match self {
            Unit::Seconds => time.as_secs().to_string(),
            Unit::SecondsAndMillis => {
                format!("{}.{:03}", time.as_secs(), time.subsec_millis())
            }
            Unit::Millis => time.as_millis().to_string(),
            Unit::Micros => time.as_micros().to_string(),
        }
    }
}

impl TimeFormat {
    fn show(&self, at: SystemTime, clock: &mut Clock) -> String {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        let since = since.unwrap_or_default();
        match self {
            TimeFormat::Unix(unit) => unit.show(since),
            TimeFormat::Common => common(clock.text(at)),
            TimeFormat::Bracketed => format!("[{}]", common(clock.text(at))),
            TimeFormat::Iso => {
                let parts = TimeParts::of(clock.text(at));
                format!("{}T{}+00:00", parts.date(), parts.clock)
            }
            TimeFormat::Strftime(format) => strftime(format, since, clock.text(at)),
        }
    }
}

impl Clock {
    /// A time as in HTTP.
    pub fn text(&mut self, at: SystemTime) -> &str {
        let second = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = httpdate::fmt_http_date(at);
        }
        &self.text
    }
}

/// The parts of a time as in HTTP.
struct TimeParts<'a> {
    weekday: &'a str,
    day: &'a str,
    month: &'a str,
    year: &'a str,
    clock: &'a str,
}

impl TimeParts<'_> {
    fn of(http: &str) -> TimeParts<'_> {
        let part = |range| http.get(range).unwrap_or_default();
        TimeParts {
            weekday: part(0..3),
            day: part(5..7),
            month: part(8..11),
            year: part(12..16),
            clock: part(17..25),
        }
    }

    fn month_number(&self) -> String {
        const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let number = MONTHS.find(self.month).map_or(0, |at| at / 3 + 1);
        format!("{number:02}")
    }

    fn date(&self) -> String {
        format!("{}-{}-{}", self.year, self.month_number(), self.day)
    }
}

/// Converts a time as in HTTP to the form of NCSA's logs: `06/Nov/1994:08:49:37 +0000`.
pub fn common(http: &str) -> String {
    let TimeParts {
        day,
        month,
        year,
        clock,
        ..
    } = TimeParts::of(http);
    format!("{day}/{month}/{year}:{clock} +0000")
}

fn strftime(format: &str, since: Duration, http: &str) -> String {
    let parts = TimeParts::of(http);
    let part = |range| parts.clock.get(range).unwrap_or_default();
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        let conversion = match letter {
            '%' => letters.next().unwrap_or('%'),
            letter => {
                text.push(letter);
                continue;
            }
        };
        match conversion {
            'a' => text.push_str(parts.weekday),
            'b' => text.push_str(parts.month),
            'd' => text.push_str(parts.day),
            'F' => text.push_str(&parts.date()),
            'H' => text.push_str(part(0..2)),
            'm' => text.push_str(&parts.month_number()),
            'M' => text.push_str(part(3..5)),
            'S' => text.push_str(part(6..8)),
            's' => text.push_str(&since.as_secs().to_string()),
            'T' => text.push_str(parts.clock),
            'Y' => text.push_str(parts.year),
            'y' => text.push_str(parts.year.get(2..4).unwrap_or_default()),
            'z' => text.push_str("+0000"),
            'Z' => text.push_str("UTC"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_formats_of_ncsa_iso_and_strftime() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_250);
        let mut clock = Clock::default();
        for (format, expected) in [
            (TimeFormat::Common, "06/Nov/1994:08:49:37 +0000"),
            (TimeFormat::Bracketed, "[06/Nov/1994:08:49:37 +0000]"),
            (TimeFormat::Iso, "1994-11-06T08:49:37+00:00"),
            (TimeFormat::Unix(Unit::SecondsAndMillis), "784111777.250"),
            (TimeFormat::Unix(Unit::Micros), "784111777250000"),
            (
                TimeFormat::Strftime(CONVERSIONS.into()),
                "Sun Nov 06 1994-11-06 08 11 49 37 784111777 08:49:37 1994 94 +0000 UTC %",
            ),
        ] {
            assert_eq!(format.show(at, &mut clock), expected, "{format:?}");
        }
    }
}
