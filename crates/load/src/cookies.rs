//! Keeps the cookies of one simulated user for one origin: names and values, for all paths.

/// Longest name and value of a cookie together (RFC 6265, section 6.1).
const LONGEST: usize = 4096;
/// Most cookies, as in Chromium.
const MOST: usize = 180;

/// Sends back what `Set-Cookie` has set, within the limits of browsers.
#[derive(Debug, Default)]
pub struct Jar {
    /// The one that was set first goes first.
    cookies: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Jar {
    /// Takes the value of a `Set-Cookie` header.
    pub fn set(&mut self, header: &[u8]) {
        let mut parts = header.split(|byte| *byte == b';');
        let pair = parts.next().unwrap_or_default();
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else {
            return;
        };
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        if name.len() + value.len() > LONGEST {
            return;
        }
        self.cookies.retain(|(other, _)| other != name);
        if !parts.any(expires) {
            if self.cookies.len() == MOST {
                self.cookies.remove(0);
            }
            self.cookies.push((name.to_vec(), value.to_vec()));
        }
    }

    /// The value of `Cookie`; `None` without cookies.
    pub fn header(&self) -> Option<Vec<u8>> {
        let pairs: Vec<_> = self
            .cookies
            .iter()
            .map(|(name, value)| [name.as_slice(), b"=", value].concat())
            .collect();
        (!pairs.is_empty()).then(|| pairs.join(&b"; "[..]))
    }
}

/// Whether an attribute deletes the cookie. Servers that know no `Max-Age` use a date in 1970.
fn expires(attribute: &[u8]) -> bool {
    let attribute = String::from_utf8_lossy(attribute);
    let Some((name, value)) = attribute.trim().split_once('=') else {
        return false;
    };
    if name.eq_ignore_ascii_case("max-age") {
        return value
            .trim()
            .parse::<i64>()
            .is_ok_and(|seconds| seconds <= 0);
    }
    name.eq_ignore_ascii_case("expires") && value.contains("1970")
}
