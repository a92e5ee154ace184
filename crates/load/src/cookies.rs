//! The cookies of one simulated user for one origin: names and values, for all paths.

/// Longest name and value of a cookie together (RFC 6265, section 6.1).
const LONGEST: usize = 4096;
/// Most cookies, as in Chromium.
const MOST: usize = 180;

/// Sends back what `Set-Cookie` has set, within the limits of browsers.
#[derive(Debug, Default)]
pub struct Jar {
    /// The one that was set first goes first.
    cookies: Vec<(String, String)>,
}

impl Jar {
    /// Takes the value of a `Set-Cookie` header.
    pub fn set(&mut self, header: &str) {
        let mut parts = header.split(';');
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        let (name, value) = (name.trim(), value.trim());
        if name.len() + value.len() > LONGEST {
            return;
        }
        self.cookies.retain(|(other, _)| other != name);
        if !parts.any(expires) {
            if self.cookies.len() == MOST {
                self.cookies.remove(0);
            }
            self.cookies.push((name.to_string(), value.to_string()));
        }
    }

    /// The value of `Cookie`; `None` without cookies.
    pub fn header(&self) -> Option<String> {
        let pairs: Vec<_> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

/// Whether an attribute deletes the cookie. Servers that know no `Max-Age` use a date in 1970.
fn expires(attribute: &str) -> bool {
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
