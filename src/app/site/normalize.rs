//! Determines the path that a request target means, before any file is looked up.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A request path, decoded once, without `.`, `..` or doubled slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalizedPath<'a> {
    path: Cow<'a, str>,
    /// Where the path stops naming files: the slash before the first segment that cannot be a file
    /// name, and why.
    stop: Option<(usize, SegmentError)>,
    /// The path's bytes if they are not UTF-8. `path` then contains replacement characters, only
    /// behind the part that may name files.
    bytes: Option<Vec<u8>>,
}

/// Why a segment names no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentError {
    /// It begins with a dot. Such files exist, but must not be served.
    Hidden,
    /// No file of a site has such a name: an encoded slash, a control character, a name that
    /// another file system takes for a different one.
    NoFile,
}

impl NormalizedPath<'_> {
    /// Begins with a slash. Invalid UTF-8 is replaced by U+FFFD.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The beginning of the path that may name files, and what stopped it.
    pub(super) fn files(&self) -> (&str, Option<SegmentError>) {
        match self.stop {
            Some((at, why)) => (&self.path[..at], Some(why)),
            None => (&self.path, None),
        }
    }

    /// The beginning of the path in which directories are looked up: like [`files`](Self::files),
    /// but with a final slash.
    pub(super) fn directories(&self) -> &str {
        let (files, _) = self.files();
        &self.path[..self.path.len().min(files.len() + 1)]
    }

    /// What follows the first `at` bytes, which name a file, unchanged.
    pub(super) fn rest(&self, at: usize) -> OsString {
        match &self.bytes {
            Some(bytes) => OsString::from_vec(bytes[at..].to_vec()),
            None => self.path[at..].into(),
        }
    }
}

/// Decodes and normalizes the path of a request target: percent-encodings once, `.` and `..` as in
/// RFC 3986, several slashes to one. Never accesses the file system. The error says why the target
/// is malformed; the client gets 400.
///
/// A `..` above the root, a NUL, a broken percent-encoding, and an encoded slash next to `..` are
/// malformed. A lone encoded slash, bytes that are not UTF-8 and other oddities are not, because
/// applications have such routes; no file is looked up for them.
pub fn normalize(raw: &str) -> Result<NormalizedPath<'_>, &'static str> {
    if !raw.starts_with('/') {
        return Err("the path does not begin with a slash");
    }
    if is_plain(raw) {
        return Ok(NormalizedPath {
            path: Cow::Borrowed(raw),
            stop: None,
            bytes: None,
        });
    }
    let mut path = Rewritten::default();
    let path = if is_normal(raw) {
        path.text = Cow::Borrowed(raw);
        path
    } else {
        rewrite(raw)?
    };
    let Rewritten { text, limit, bytes } = path;
    let mut stop = limit.map(|at| (at, SegmentError::NoFile));
    let usable = limit.unwrap_or(text.len());
    let mut at = 0;
    while at < usable {
        let from = at + 1;
        let rest = text[from..usable].as_bytes();
        let end = from + memchr::memchr(b'/', rest).unwrap_or(rest.len());
        if let Some(why) = classify(&text[from..end], at == 0) {
            stop = Some((at, why));
            break;
        }
        at = end;
    }
    Ok(NormalizedPath {
        path: text,
        stop,
        bytes,
    })
}

/// Whether the path has only characters without a special meaning, and no segment that needs more
/// checks. Most paths are like this.
fn is_plain(raw: &str) -> bool {
    let mut previous = 0;
    let plain = raw.bytes().all(|byte| {
        let plain = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => true,
            b'/' => previous != b'/' && previous != b'.',
            b'.' => previous != b'/',
            _ => false,
        };
        previous = byte;
        plain
    });
    plain && previous != b'.' && raw.len() <= MAX_SEGMENT
}

/// The longest file name.
const MAX_SEGMENT: usize = 255;

/// Whether there is nothing to decode or to remove.
fn is_normal(raw: &str) -> bool {
    let mut previous = 0;
    raw.bytes().all(|byte| {
        let odd = match byte {
            b'%' | 0 => true,
            b'/' | b'.' => previous == b'/',
            _ => false,
        };
        previous = byte;
        !odd
    })
}

#[derive(Default)]
struct Rewritten<'a> {
    text: Cow<'a, str>,
    limit: Option<usize>,
    bytes: Option<Vec<u8>>,
}

fn rewrite(raw: &str) -> Result<Rewritten<'static>, &'static str> {
    let mut path = Vec::with_capacity(raw.len());
    let mut starts = Vec::new();
    let mut limit: Option<usize> = None;
    let mut directory = false;
    let mut decoded = Vec::new();
    for segment in raw.split('/').skip(1) {
        decode(segment, &mut decoded)?;
        directory = true;
        match decoded.as_slice() {
            b"" | b"." => continue,
            b".." => {
                let start = starts.pop().ok_or("`..` leads above the root")?;
                path.truncate(start);
                limit = limit.filter(|at| *at < start);
                continue;
            }
            _ => {}
        }
        starts.push(path.len());
        let plain = std::str::from_utf8(&decoded).is_ok_and(|s| !s.contains(['/', '\\']));
        if !plain {
            limit.get_or_insert(path.len());
        }
        directory = false;
        // A decoded %2F separates segments for code that compares prefixes, so it must not hide a
        // `..`.
        for part in decoded.split(|byte| *byte == b'/') {
            if part.is_empty() {
                directory = true;
                continue;
            }
            if !plain
                && part
                    .split(|byte| *byte == b'\\')
                    .any(|p| p == b"." || p == b"..")
            {
                return Err("an encoded slash next to `..`");
            }
            path.push(b'/');
            path.extend_from_slice(part);
            directory = false;
        }
    }
    if directory || path.is_empty() {
        path.push(b'/');
    }
    let (text, bytes) = match String::from_utf8(path) {
        Ok(text) => (text, None),
        Err(error) => {
            let lossy = String::from_utf8_lossy(error.as_bytes()).into_owned();
            (lossy, Some(error.into_bytes()))
        }
    };
    Ok(Rewritten {
        text: Cow::Owned(text),
        limit,
        bytes,
    })
}

fn decode(segment: &str, into: &mut Vec<u8>) -> Result<(), &'static str> {
    into.clear();
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let value = digit().zip(digit()).map(|(high, low)| high << 4 | low);
                // Two hexadecimal digits fit into a byte.
                value.ok_or("a broken percent-encoding")? as u8
            }
            byte => byte,
        };
        if byte == 0 {
            return Err("a NUL in the path");
        }
        into.push(byte);
    }
    Ok(())
}

fn classify(segment: &str, first: bool) -> Option<SegmentError> {
    if segment.is_empty() {
        return None;
    }
    if segment.starts_with('.') {
        // RFC 8615: the one dot name that is public.
        return (!(first && segment == ".well-known")).then_some(SegmentError::Hidden);
    }
    if !segment.is_ascii() && visible(segment).next() == Some('.') {
        return Some(SegmentError::Hidden);
    }
    let odd = segment.len() > MAX_SEGMENT
        || segment.ends_with(['.', ' '])
        || segment.contains("::$")
        || segment.chars().any(|c| c.is_control() || c == '\\');
    odd.then_some(SegmentError::NoFile)
}

/// What a file name means to the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// Ends with exactly `.php`: run, never sent.
    Script,
    /// Probably PHP source under another name: neither run nor sent.
    Source,
    /// Sent unchanged.
    Plain,
}

/// Suffixes that editors and careful users append to a file's name.
const COPIES: [&str; 10] = [
    "~", ".bak", ".old", ".orig", ".save", ".swp", ".swo", ".tmp", ".dist", ".sample",
];

/// Suffixes of what browsers get, PHP's output included: page caches write `index.php.html`.
const PAGES: [&str; 19] = [
    "avif", "css", "gif", "htm", "html", "ico", "jpeg", "jpg", "js", "json", "map", "mjs", "pdf",
    "png", "svg", "webp", "woff", "woff2", "xml",
];

/// Classifies a file by its name. PHP source has one of these suffixes, in upper or lower case:
/// `.inc`, those that servers commonly hand to PHP (such as `.php` and `.phtml`), or Drupal's
/// (`.module`, …). Copies of such files are PHP source, too (`.php~`, `.php.bak`, `.php_old`,
/// `.php.2024`, `.php.txt`).
pub(super) fn kind(name: &str) -> NameKind {
    if name.len() > 4 && name.ends_with(".php") {
        return NameKind::Script;
    }
    let folded = fold(name);
    if !folded.contains('.') {
        return NameKind::Plain;
    }
    if is_copy_of_php(&folded) {
        return NameKind::Source;
    }
    let mut name = folded.trim_matches('#');
    while let Some(shorter) = COPIES.iter().find_map(|copy| name.strip_suffix(copy)) {
        name = shorter;
    }
    let Some((_, ending)) = name.rsplit_once('.') else {
        return NameKind::Plain;
    };
    let source = [
        "phtml", "pht", "phps", "phpt", "phar", "inc", "module", "install", "theme", "profile",
        "engine",
    ]
    .contains(&ending);
    if source {
        NameKind::Source
    } else {
        NameKind::Plain
    }
}

/// Whether `.php`, possibly with a version, ends a word in it.
fn is_copy_of_php(folded: &str) -> bool {
    let ends = folded.match_indices(".php").any(|(at, php)| {
        let rest = folded[at + php.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        !rest.starts_with(char::is_alphabetic)
    });
    let ending = folded.rsplit_once('.').map(|(_, ending)| ending);
    ends && !ending.is_some_and(|ending| PAGES.contains(&ending))
}

/// The name as a file system compares it that ignores case and invisible characters.
pub(super) fn fold(name: &str) -> Cow<'_, str> {
    if name
        .bytes()
        .all(|b| b.is_ascii() && !b.is_ascii_uppercase())
    {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(visible(name).flat_map(char::to_lowercase).collect())
    }
}

/// The characters that HFS+ and case-folding ext4 do not ignore: to them, `.g<U+200C>it` was
/// `.git`.
fn visible(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| {
        !matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
                | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn path_is_decoded_once_and_keeps_no_dots() {
        for (raw, path) in [
            ("/", "/"),
            ("/a/b.css", "/a/b.css"),
            ("//a///b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/%2e./b", "/b"),
            ("/%252e%252e/b", "/%2e%2e/b"),
            ("/a%20b", "/a b"),
            ("/%C3%A9", "/é"),
            ("/a%2fb", "/a/b"),
            ("/%2fadmin", "/admin"),
            ("/a/%2F", "/a/"),
            ("/a%2fb/../c", "/c"),
            ("/caf%E9", "/caf\u{fffd}"),
        ] {
            assert_eq!(normalize(raw).unwrap().path(), path, "{raw}");
        }
    }

    #[test]
    fn malformed_path_is_rejected() {
        for raw in [
            "",
            "*",
            "a",
            "/..",
            "/../a",
            "/a/../..",
            "/%2e%2e/",
            "/a%00",
            "/a\0",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%+1",
            "/a%2f..",
            "/..%2fetc",
            "/..%5c..%5cetc",
            "/a/..\\%2f",
        ] {
            assert!(normalize(raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn path_that_names_no_file_is_recognised() {
        use SegmentError::{Hidden, NoFile};
        for (raw, files, why) in [
            ("/.git/config", "", Some(Hidden)),
            ("/a/.env", "/a", Some(Hidden)),
            ("/.well-known/x", "/.well-known/x", None),
            ("/.well-known/.x", "/.well-known", Some(Hidden)),
            ("/a/.well-known/x", "/a", Some(Hidden)),
            ("/.Well-Known/x", "", Some(Hidden)),
            ("/...", "", Some(Hidden)),
            ("/.%2egit", "", Some(Hidden)),
            ("/%e2%80%8c.git/config", "", Some(Hidden)),
            ("/a/b%2fc", "/a", Some(NoFile)),
            ("/a/b%5cc", "/a", Some(NoFile)),
            ("/a\\b", "", Some(NoFile)),
            ("/x.php.", "", Some(NoFile)),
            ("/x.php%20", "", Some(NoFile)),
            ("/x.php::$DATA", "", Some(NoFile)),
            ("/a%0ab", "", Some(NoFile)),
            ("/caf%E9", "", Some(NoFile)),
            ("/a/%2f/b", "/a", Some(NoFile)),
            ("/a%2fb/../c", "/c", None),
        ] {
            assert_eq!(normalize(raw).unwrap().files(), (files, why), "{raw}");
        }
    }

    #[test]
    fn php_source_is_recognised_by_its_name() {
        for (name, expected) in [
            ("x.php", NameKind::Script),
            ("a.b.php", NameKind::Script),
            ("x.PHP", NameKind::Source),
            ("x.pHp", NameKind::Source),
            ("x.php5", NameKind::Source),
            ("x.phtml", NameKind::Source),
            ("x.PHAR", NameKind::Source),
            ("x.phps", NameKind::Source),
            ("x.inc", NameKind::Source),
            ("x.php~", NameKind::Source),
            ("x.php.bak", NameKind::Source),
            ("x.PHP.Old~", NameKind::Source),
            ("#x.php#", NameKind::Source),
            ("x.ph\u{200c}p", NameKind::Source),
            ("x.php.txt", NameKind::Source),
            ("x.php_old", NameKind::Source),
            ("x.php-1", NameKind::Source),
            ("x.php.2024", NameKind::Source),
            ("x.php,v", NameKind::Source),
            ("x.php copy", NameKind::Source),
            ("x.php8.gz", NameKind::Source),
            ("x.PHP.dpkg-dist", NameKind::Source),
            ("views.module", NameKind::Source),
            ("views.module.css", NameKind::Plain),
            ("php", NameKind::Plain),
            ("x.php.html", NameKind::Plain),
            ("highlight.php.min.js", NameKind::Plain),
            ("x.phpunit", NameKind::Plain),
            ("x.phpx", NameKind::Plain),
            ("x.css", NameKind::Plain),
            ("incident", NameKind::Plain),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_path_becomes_normal(
            raw in r"(/|%2[ef]|%2[EF]|%5c|%00|%e9|\.|\\|a|é|%|.){0,24}",
        ) {
            if let Ok(normal) = normalize(&raw) {
                let path = normal.path();
                prop_assert!(path.starts_with('/'));
                prop_assert!(!path.contains("//") && !path.contains('\0'));
                prop_assert!(path.split('/').all(|s| s != "." && s != ".."));
                let (files, _) = normal.files();
                prop_assert!(path.starts_with(files));
                let hidden = |s: &str| s.starts_with('.') && s != ".well-known";
                prop_assert!(!files.split('/').any(hidden));
            }
        }
    }
}
