//! Parses the ranges that a client requests (RFC 9110, 14).

use std::ops::Range;

use http::header::{self, HeaderMap};

/// A client that requests more ranges gets the whole file.
pub(super) const MAX_RANGES: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub enum Ranges {
    Whole,
    One(Range<u64>),
    Many(Vec<Range<u64>>),
    Unsatisfiable,
}

/// Invalid ranges are ignored, as are ranges that together exceed the file.
pub fn ranges(headers: &HeaderMap, length: u64) -> Ranges {
    let mut values = headers.get_all(header::RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Ranges::Whole;
    };
    parse_ranges(value.to_str().unwrap_or_default(), length).unwrap_or(Ranges::Whole)
}

fn parse_ranges(value: &str, length: u64) -> Option<Ranges> {
    let (unit, specs) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut satisfiable = Vec::new();
    for (count, spec) in specs
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .enumerate()
    {
        if count == MAX_RANGES {
            return None;
        }
        let (first, last) = spec.split_once('-')?;
        let range = match (position(first)?, position(last)?) {
            (None, None) => return None,
            (Some(first), Some(last)) if first > last => return None,
            (Some(first), last) => {
                first..last.map_or(length, |last| last.saturating_add(1).min(length))
            }
            (None, Some(suffix)) => length.saturating_sub(suffix)..length,
        };
        if range.start < range.end {
            satisfiable.push(range);
        }
    }
    // Neither a range nor a mistake: `bytes=,`.
    if specs.split(',').all(|spec| spec.trim().is_empty()) {
        return None;
    }
    let sum = satisfiable
        .iter()
        .fold(0, |sum: u64, r| sum.saturating_add(r.end - r.start));
    match satisfiable.pop() {
        None => Some(Ranges::Unsatisfiable),
        Some(only) if satisfiable.is_empty() => Some(Ranges::One(only)),
        Some(_) if sum > length => None,
        Some(last) => {
            satisfiable.push(last);
            Some(Ranges::Many(satisfiable))
        }
    }
}

/// `None` if it is not a number, `Some(None)` if it is omitted.
fn position(digits: &str) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    // Only a number beyond the end of any file fails to parse.
    is_number.then(|| Some(digits.parse().unwrap_or(u64::MAX)))
}

pub fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}
