//! Parses the parts of an X.509 certificate that Surus shows: names, serial number and validity
//! (RFC 5280, 4.1). Signatures are checked elsewhere, by rustls.

use std::fmt::Write as _;

/// What a certificate says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The distinguished names, as RFC 2253 writes them: `CN=alice,O=Example`.
    pub subject: String,
    pub issuer: String,
    /// Hexadecimal.
    pub serial: String,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
    /// The host names of the subject alternative name, in lower case.
    pub names: Vec<String>,
}

/// None if the bytes are not a certificate.
pub fn parse(der: &[u8]) -> Option<Certificate> {
    let mut all = Der(der);
    let mut outer = Der(all.expect(SEQUENCE)?);
    let mut fields = Der(outer.expect(SEQUENCE)?);
    fields.skip(context(0));
    let serial = fields.expect(INTEGER)?;
    fields.expect(SEQUENCE)?;
    let issuer = distinguished_name(fields.expect(SEQUENCE)?)?;
    let mut validity = Der(fields.expect(SEQUENCE)?);
    let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
    let subject = distinguished_name(fields.expect(SEQUENCE)?)?;
    fields.expect(SEQUENCE)?;
    // Unique identifiers (RFC 5280, 4.1.2.8) are not needed.
    fields.skip(0x81);
    fields.skip(0x82);
    let names = match fields.next() {
        Some((tag, extensions)) if tag == context(3) => host_names(extensions)?,
        _ => Vec::new(),
    };
    // The zero byte keeps a large number positive.
    let serial = match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        serial => serial,
    };
    Some(Certificate {
        subject,
        issuer,
        serial: hex(serial),
        not_before,
        not_after,
        names,
    })
}

/// The key identifier of the issuer and the serial number, both raw. They name a certificate when
/// its authority is asked for the time of renewal (RFC 9773, 4.1).
pub fn renewal_id(der: &[u8]) -> Option<(&[u8], &[u8])> {
    /// 2.5.29.35
    const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
    let mut found = extensions(der, AUTHORITY_KEY_IDENTIFIER)?;
    let mut identifier = Der(Der(found.values.next()?).expect(SEQUENCE)?);
    Some((identifier.expect(0x80)?, found.serial))
}

/// What names a certificate permits its owner to certify (RFC 5280, 4.2.1.10), encoded. None
/// without exactly one such extension.
pub fn name_constraints(der: &[u8]) -> Option<&[u8]> {
    /// 2.5.29.30
    const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
    let mut found = extensions(der, NAME_CONSTRAINTS)?.values;
    found.next().filter(|_| found.next().is_none())
}

struct Extensions<'a, I> {
    serial: &'a [u8],
    values: I,
}

/// The extensions of one kind, and the raw serial number.
fn extensions<'a>(
    der: &'a [u8],
    kind: &'static [u8],
) -> Option<Extensions<'a, impl Iterator<Item = &'a [u8]>>> {
    let mut all = Der(der);
    let mut outer = Der(all.expect(SEQUENCE)?);
    let mut fields = Der(outer.expect(SEQUENCE)?);
    fields.skip(context(0));
    let serial = fields.expect(INTEGER)?;
    // Algorithm, issuer, validity, subject and key.
    for _ in 0..5 {
        fields.expect(SEQUENCE)?;
    }
    fields.skip(0x81);
    fields.skip(0x82);
    let mut extensions = Der(Der(fields.expect(context(3))?).expect(SEQUENCE)?);
    let values = std::iter::from_fn(move || extensions.expect(SEQUENCE)).filter_map(move |it| {
        let mut extension = Der(it);
        if extension.expect(OBJECT_IDENTIFIER)? != kind {
            return None;
        }
        extension.skip(BOOLEAN);
        extension.expect(OCTET_STRING)
    });
    Some(Extensions { serial, values })
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The tag of a constructed, context-specific field.
const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// The rest of a sequence of DER values.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, short, rest @ ..] = self.0 else {
            return None;
        };
        // No field of a certificate has a tag of several bytes.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (len, rest) = match *short {
            len @ ..=0x7f => (usize::from(len), rest),
            // One to three bytes: rustls takes no longer certificates.
            long @ 0x81..=0x83 => {
                let (len, rest) = rest.split_at_checked(usize::from(long & 0x0f))?;
                let len = len
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                (len, rest)
            }
            // 0x80 has no end in DER.
            0x80 | 0x84.. => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The content of the next value if it has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|(_, content)| content)
    }

    /// Skips the next value if it has this tag.
    fn skip(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

/// The host names of the subject alternative name.
fn host_names(extensions: &[u8]) -> Option<Vec<String>> {
    /// 2.5.29.17
    const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    /// `dNSName`
    const DNS_NAME: u8 = 0x82;
    let mut names = Vec::new();
    let mut extensions = Der(Der(extensions).expect(SEQUENCE)?);
    while let Some((SEQUENCE, extension)) = extensions.next() {
        let mut extension = Der(extension);
        if extension.expect(OBJECT_IDENTIFIER)? != SUBJECT_ALTERNATIVE_NAME {
            continue;
        }
        extension.skip(BOOLEAN);
        let mut general = Der(Der(extension.expect(OCTET_STRING)?).expect(SEQUENCE)?);
        while let Some((tag, name)) = general.next() {
            if tag == DNS_NAME
                && let Ok(name) = std::str::from_utf8(name)
                && is_host_name(name)
            {
                names.push(name.to_ascii_lowercase());
            }
        }
    }
    Some(names)
}

/// Letters, digits, hyphens, underscores and dots, possibly after `*.`.
fn is_host_name(name: &str) -> bool {
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !labels.is_empty() && labels.bytes().all(is_usual)
}

/// As RFC 2253 writes a name: the most specific part first, values escaped. Values are UTF-8, as in
/// Apache; control characters are escaped.
fn distinguished_name(parts: &[u8]) -> Option<String> {
    let mut parts = Der(parts);
    let mut sets = Vec::new();
    while let Some((tag, set)) = parts.next() {
        let mut set = Der((tag == SET).then_some(set)?);
        let mut texts = Vec::new();
        while let Some((tag, attribute)) = set.next() {
            let mut attribute = Der((tag == SEQUENCE).then_some(attribute)?);
            let kind = attribute.expect(OBJECT_IDENTIFIER)?;
            let (tag, value) = attribute.next()?;
            texts.push(format!(
                "{}={}",
                attribute_name(kind),
                attribute_value(tag, value)
            ));
        }
        sets.push(texts.join("+"));
    }
    sets.reverse();
    Some(sets.join(","))
}

fn attribute_name(kind: &[u8]) -> String {
    let name = match kind {
        [0x55, 0x04, 3] => "CN",
        [0x55, 0x04, 4] => "SN",
        [0x55, 0x04, 5] => "serialNumber",
        [0x55, 0x04, 6] => "C",
        [0x55, 0x04, 7] => "L",
        [0x55, 0x04, 8] => "ST",
        [0x55, 0x04, 9] => "street",
        [0x55, 0x04, 10] => "O",
        [0x55, 0x04, 11] => "OU",
        [0x55, 0x04, 12] => "title",
        [0x55, 0x04, 42] => "GN",
        // 1.2.840.113549.1.9.1
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01] => "emailAddress",
        // 0.9.2342.19200300.100.1.1 and .25
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 25] => "DC",
        other => return dotted(other),
    };
    name.to_string()
}

/// `2.5.4.3`
fn dotted(identifier: &[u8]) -> String {
    let mut text = String::new();
    let mut number = 0_u64;
    for byte in identifier {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        // The first number has the first two parts.
        let _ = match (text.is_empty(), number) {
            (true, ..40) => write!(text, "0.{number}"),
            (true, 40..80) => write!(text, "1.{}", number - 40),
            (true, _) => write!(text, "2.{}", number - 80),
            (false, _) => write!(text, ".{number}"),
        };
        number = 0;
    }
    text
}

fn attribute_value(tag: u8, value: &[u8]) -> String {
    let text = match tag {
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => {
            std::str::from_utf8(value).ok().map(str::to_owned)
        }
        TELETEX_STRING => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        BMP_STRING => {
            let units = value.chunks(2).map(|unit| match unit {
                [high, low] => u16::from_be_bytes([*high, *low]),
                // Half a character: a replacement character.
                _ => 0xd800,
            });
            Some(String::from_utf16_lossy(&units.collect::<Vec<_>>()))
        }
        _ => None,
    };
    let Some(text) = text else {
        return format!("#{}", hex(value));
    };
    let mut escaped = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (at, letter) in text.chars().enumerate() {
        match letter {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => escaped.extend(['\\', letter]),
            '#' if at == 0 => escaped.push_str("\\#"),
            ' ' if at == 0 || at == last => escaped.push_str("\\ "),
            letter if letter.is_control() => {
                for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(escaped, "\\{byte:02X}");
                }
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// `UTCTime` or `GeneralizedTime` as RFC 5280, 4.1.2.5 allows them: in UTC, with seconds.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let (digits, [b'Z']) = text.split_at_checked(text.len().checked_sub(1)?)? else {
        return None;
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (year + if year < 50 { 2000 } else { 1900 }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| number(&rest[at..at + 2]);
    let (month, day) = (part(0), part(2));
    let (hour, minute, second) = (part(4), part(6), part(8));
    let is_time = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    is_time.then(|| days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, by counting from a March, so that leap
/// days come last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Made by `openssl req -x509` with the names below.
    const ALICE: &[u8] = include_bytes!("x509/alice.der");

    #[test]
    fn certificate_is_parsed_as_openssl_prints_it() {
        let alice = parse(ALICE).unwrap();
        let name = "CN=Al\\, ice,OU=Über,O=Example,L=Berlin,C=DE";
        assert_eq!(alice.subject, name);
        assert_eq!(alice.issuer, name);
        assert_eq!(alice.serial, "8F00FF");
        // 2024-02-29 12:34:56 and 2124-02-05 12:34:56 UTC
        assert_eq!(
            (alice.not_before, alice.not_after),
            (1_709_210_096, 4_862_810_096)
        );
        assert_eq!(alice.names, ["example.org", "*.example.org"]);
    }

    #[test]
    fn truncated_certificate_is_rejected() {
        for len in 0..ALICE.len() {
            // The signature follows the fields, and is not parsed.
            assert!(parse(&ALICE[..len]).is_none(), "{len}");
        }
    }

    #[test]
    fn times_are_seconds_since_1970() {
        let of = |text: &str| time((GENERALIZED_TIME, text.as_bytes()));
        assert_eq!(of("19700101000000Z"), Some(0));
        assert_eq!(of("20000229235959Z"), Some(951_868_799));
        assert_eq!(of("20380119031408Z"), Some(1 << 31));
        assert_eq!(of("99991231235959Z"), Some(253_402_300_799));
        assert_eq!(time((UTC_TIME, b"491231235959Z")), Some(2_524_607_999));
        assert_eq!(time((UTC_TIME, b"500101000000Z")), Some(-631_152_000));
        for wrong in [
            "",
            "Z",
            "20000229235959",
            "20001329235959Z",
            "2000022923595Z",
            "200002292359+1Z",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unusual_attributes_are_readable_and_harmless() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48]), "1.2.840");
        assert_eq!(attribute_value(UTF8_STRING, b" #x\n "), "\\ #x\\0A\\ ");
        assert_eq!(attribute_value(UTF8_STRING, b"#x"), "\\#x");
        assert_eq!(attribute_value(UTF8_STRING, b"\xff"), "#FF");
        assert_eq!(
            attribute_value(BMP_STRING, &[0, b'a', 0x20, 0xac, 1]),
            "a\u{20ac}\u{fffd}"
        );
        assert_eq!(attribute_value(TELETEX_STRING, b"\xe9"), "é");
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(0_u8.., 0..200)) {
            parse(&bytes);
            distinguished_name(&bytes);
            host_names(&bytes);
            dotted(&bytes);
        }

        #[test]
        fn damaged_certificate_does_not_panic(at in 0..ALICE.len(), byte: u8) {
            let mut damaged = ALICE.to_vec();
            damaged[at] = byte;
            if let Some(parsed) = parse(&damaged) {
                let mut all = [&parsed.subject, &parsed.issuer].into_iter().chain(&parsed.names);
                proptest::prop_assert!(!all.any(|text| text.chars().any(char::is_control)));
            }
        }
    }
}
