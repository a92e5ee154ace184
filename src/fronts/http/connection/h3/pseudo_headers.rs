//! Checks the pseudo-headers of an encoded header section (RFC 9114, 4.3). h3 does not: it takes
//! the last one of several, wherever it is.

/// The pseudo-headers of requests, and their Huffman codes (RFC 7541, appendix B).
const NAMES: [(&[u8], &[u8]); 4] = [
    (
        b":authority",
        &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f],
    ),
    (b":method", &[0xb9, 0x49, 0x53, 0x39, 0xe4]),
    (b":path", &[0xb9, 0x58, 0xd3, 0x3f]),
    (b":scheme", &[0xb8, 0x82, 0x4e, 0x5a, 0x4b]),
];

/// The name of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    /// The number in [`NAMES`].
    Pseudo(usize),
    /// A pseudo-header that requests do not have.
    Foreign,
    Regular,
}

/// Why a header section is malformed. It may be so for other reasons that h3 knows.
pub fn malformed(section: &[u8]) -> Option<&'static str> {
    let mut lines = FieldLines(section);
    let mut seen = [false; NAMES.len()];
    let mut has_regular = false;
    // The number of dynamic entries, which is 0, and their base.
    let prefix = lines.integer(8).and_then(|_| lines.integer(7));
    if prefix.is_none() {
        return Some("no prefix");
    }
    while !lines.0.is_empty() {
        match lines.name() {
            None => return Some("a line that cannot be decoded"),
            Some(Name::Foreign) => return Some("a pseudo-header that requests do not have"),
            Some(Name::Pseudo(_)) if has_regular => return Some("a pseudo-header after others"),
            Some(Name::Pseudo(number)) if seen[number] => return Some("a pseudo-header twice"),
            Some(Name::Pseudo(number)) => seen[number] = true,
            Some(Name::Regular) => has_regular = true,
        }
    }
    None
}

/// The rest of a section (RFC 9204, 4.5), without references to a dynamic table.
struct FieldLines<'a>(&'a [u8]);

impl<'a> FieldLines<'a> {
    /// Skips a line. Returns its name.
    fn name(&mut self) -> Option<Name> {
        match self.0.first()? {
            // Name and value by number.
            0xc0.. => self.integer(6).map(numbered),
            // A name by number.
            0x50..=0x5f | 0x70..=0x7f => {
                let name = self.integer(4).map(numbered)?;
                self.string(7)?;
                Some(name)
            }
            0x20..=0x3f => {
                let name = spelled(self.string(3)?);
                self.string(7)?;
                Some(name)
            }
            // Of a dynamic table.
            _ => None,
        }
    }

    /// An integer that begins with this number of bits of a byte (RFC 7541, 5.1).
    fn integer(&mut self, bits: u32) -> Option<u64> {
        let (first, mut rest) = self.0.split_first()?;
        let most = (1 << bits) - 1;
        let mut value = u64::from(*first) & most;
        if value == most {
            let mut shift = 0;
            loop {
                let (byte, after) = rest.split_first()?;
                rest = after;
                let more = u64::from(byte & 0x7f);
                // Far larger than any number or length here.
                if shift > 28 {
                    return None;
                }
                value += more << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        self.0 = rest;
        Some(value)
    }

    /// A text whose length has this number of bits of the first byte, and whether it is
    /// Huffman-coded, which the bit before them says.
    fn string(&mut self, bits: u32) -> Option<(bool, &'a [u8])> {
        let is_coded = self.0.first()? >> bits & 1 == 1;
        let length = self.integer(bits)?;
        let (text, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some((is_coded, text))
    }
}

/// A name of the static table (RFC 9204, appendix A).
fn numbered(number: u64) -> Name {
    match number {
        0 => Name::Pseudo(0),
        15..=21 => Name::Pseudo(1),
        1 => Name::Pseudo(2),
        22 | 23 => Name::Pseudo(3),
        // `:status`.
        24..=28 | 63..=71 => Name::Foreign,
        _ => Name::Regular,
    }
}

fn spelled((is_coded, text): (bool, &[u8])) -> Name {
    let is_it = |(plain, coded): &(&[u8], &[u8])| text == if is_coded { *coded } else { *plain };
    // A colon, whose code has seven bits.
    let is_pseudo = text.first().is_some_and(|first| match is_coded {
        true => first >> 1 == 0b101_1100,
        false => *first == b':',
    });
    match NAMES.iter().position(is_it) {
        Some(number) => Name::Pseudo(number),
        None if is_pseudo => Name::Foreign,
        None => Name::Regular,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_that_end_within_a_line_are_malformed() {
        // Two lines by number, a name by number and two spelled names.
        let mut whole = vec![0, 0, 0xd1, 0xc1, 0x50, 1, b'a', 0x24];
        whole.extend(b"name\x05value\x2f\xf2");
        whole.extend([0x00, 0x01, b'v']);
        let end = whole.len();
        let mut long = whole[..end - 5].to_vec();
        // A length of 7 + 100, and a value of 127 + 1.
        long.extend([0x27, 100]);
        long.extend([b'x'; 107]);
        long.extend([0x7f, 1]);
        long.extend([b'y'; 128]);
        assert_eq!(malformed(&long), None);
        for end in 0..long.len() {
            // A section may also end after a line.
            let ends_well = [2, 3, 4, 7, 18].contains(&end);
            assert_eq!(malformed(&long[..end]).is_none(), ends_well, "{end}");
        }
        for wrong in [
            &[0, 0, 0x80][..],
            &[0, 0, 0x40, 0],
            &[0, 0, 0x10],
            &[0, 0, 0x00, 0],
            &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert!(malformed(wrong).is_some(), "{wrong:x?}");
        }
    }
}
