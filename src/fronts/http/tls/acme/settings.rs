//! The settings of `[acme]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::ensure;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The hosts that Surus gets certificates for; those of `localhost` and `test` from its own
    /// authority.
    #[serde(deserialize_with = "units::one_or_more")]
    pub domains: Vec<Domain>,
    /// The address that authorities may write to.
    #[serde(deserialize_with = "email")]
    pub email: Option<String>,
    /// Authorities, in the order in which they are tried.
    #[serde(deserialize_with = "authorities")]
    pub authorities: Vec<Authority>,
    /// Where accounts, keys and certificates are stored.
    pub directory: Option<PathBuf>,
    /// A PEM file with the roots of the authorities' own servers, if they are not public.
    pub authority_ca: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            email: None,
            authorities: vec![Authority::named("letsencrypt")],
            directory: None,
            authority_ca: None,
        }
    }
}

/// A host name, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain(String);

impl Domain {
    /// This machine.
    pub fn localhost() -> Domain {
        Domain("localhost".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a name of this machine, or for tests (RFC 6761): no public authority certifies
    /// it.
    pub fn is_local(&self) -> bool {
        let top = self.0.rsplit('.').next();
        top.is_some_and(|top| top == "localhost" || top == "test")
    }
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Domain, String> {
        let name = text.to_ascii_lowercase();
        let reject = |why: &str| Err(format!("`{text}` (acme.domains) {why}"));
        if name.starts_with("*.") {
            return reject(
                "is a wildcard, which authorities certify by DNS only; get that certificate with \
                 another client, and name it in tls.certificate",
            );
        }
        if !name.is_ascii() {
            return reject("has characters beyond ASCII; write it in Punycode (xn--…)");
        }
        if name.parse::<std::net::IpAddr>().is_ok() {
            return reject("is an address; name a host");
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        match name.len() <= 253 && name.split('.').all(is_label) {
            true => Ok(Domain(name)),
            false => reject("is not a host name; write `example.org`, without https:// and path"),
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Domain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Domain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Domain, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// An authority.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// As the configuration names it.
    name: String,
    /// The URL of its directory.
    pub url: String,
    pub account: Option<ExternalAccount>,
}

/// A customer's account that the ACME account is bound to (RFC 8555, 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    pub id: String,
    pub key: Vec<u8>,
}

/// Names for directories.
const NAMES: [(&str, &str); 2] = [
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        "letsencrypt-staging",
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
];

impl Authority {
    fn named(name: &str) -> Authority {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        Authority {
            name: name.to_owned(),
            url: known.map_or(name, |(_, url)| url).to_owned(),
            account: None,
        }
    }

    /// The one for tests, whose certificates clients do not trust.
    pub fn staging() -> Authority {
        Authority::named("letsencrypt-staging")
    }

    /// The name of its files.
    pub fn file_name(&self) -> String {
        let url = self.url.strip_prefix("https://").unwrap_or(&self.url);
        let usual = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-');
        let name = url.trim_end_matches('/').chars();
        name.map(|letter| if usual(letter) { letter } else { '_' })
            .collect()
    }
}

/// Without the key of an external account.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Serialize for Authority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Authority {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Authority, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Name(String),
            Bound {
                url: String,
                key_id: String,
                hmac_key: String,
            },
        }
        let mut authority = match Written::deserialize(from)? {
            Written::Name(name) => Authority::named(&name),
            Written::Bound {
                url,
                key_id,
                hmac_key,
            } => {
                let key = BASE64_URL_SAFE_NO_PAD.decode(hmac_key.trim_end_matches('='));
                let key = key
                    .map_err(|_| D::Error::custom("acme.authorities: hmac_key is not base64url"))?;
                let account = Some(ExternalAccount { id: key_id, key });
                Authority {
                    account,
                    ..Authority::named(&url)
                }
            }
        };
        let url: http::Uri = authority.url.parse().unwrap_or_default();
        if url.scheme_str() != Some("https") || url.host().is_none() {
            return Err(D::Error::custom(format_args!(
                "`{}` (acme.authorities) is not an authority; write `letsencrypt`, \
                 `letsencrypt-staging` or the https URL of an ACME directory",
                authority.name
            )));
        }
        authority.name = authority.name.trim().to_owned();
        Ok(authority)
    }
}

fn authorities<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Authority>, D::Error> {
    let all: Vec<Authority> = units::one_or_more(from)?;
    match all.is_empty() {
        false => Ok(all),
        true => Err(D::Error::custom(
            "acme.authorities is empty; leave it out for Let's Encrypt",
        )),
    }
}

fn email<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    units::checked_if_set(from, |email: &String| {
        let is_usual = |letter: char| letter.is_ascii_graphic() && !matches!(letter, ',' | '?');
        ensure!(
            email.contains('@') && email.chars().all(is_usual),
            "`{email}` (acme.email) is not an address such as `admin@example.org`"
        );
        Ok(())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn domain_that_no_authority_certifies_over_http_is_rejected_with_a_remedy() {
        for (domain, remedy) in [
            ("*.example.org", "tls.certificate"),
            ("bücher.example", "Punycode"),
            ("192.0.2.1", "name a host"),
            ("https://example.org", "without https://"),
            ("example.org/", "without https://"),
            ("a..b", "not a host name"),
            ("-a.org", "not a host name"),
            ("", "not a host name"),
        ] {
            let why = domain.parse::<Domain>().unwrap_err();
            assert!(why.contains(remedy), "{why}");
        }
        let domain: Domain = "WWW.Example.org".parse().unwrap();
        assert_eq!(domain.as_str(), "www.example.org");
        for (domain, is_local) in [
            ("localhost", true),
            ("App.Localhost", true),
            ("shop.test", true),
            ("test.example", false),
            ("localhost.example", false),
        ] {
            let domain: Domain = domain.parse().unwrap();
            assert_eq!(domain.is_local(), is_local, "{domain}");
        }
    }

    #[test]
    fn authority_is_a_name_a_url_or_a_url_with_an_external_account() {
        let text = "authorities = ['letsencrypt-staging', 'https://ca.example/acme/', \
                    {url = 'https://ca.example/dir', key_id = 'me', hmac_key = 'AQI'}]";
        let settings: Settings = toml::from_str(text).unwrap();
        let urls: Vec<_> = settings.authorities.iter().map(|one| &*one.url).collect();
        assert_eq!(
            urls[1..],
            ["https://ca.example/acme/", "https://ca.example/dir"]
        );
        assert_eq!(settings.authorities[1].file_name(), "ca.example_acme");
        let account = settings.authorities[2].account.as_ref().unwrap();
        assert_eq!((&*account.id, &*account.key), ("me", &[1, 2][..]));
        let other_key: Settings = toml::from_str(&text.replace("AQI", "AQM")).unwrap();
        assert_ne!(other_key, settings);
        for wrong in [
            "authorities = []",
            "authorities = ['zerossl']",
            "authorities = ['http://ca.example']",
            "authorities = [{url = 'https://ca.example', key_id = 'me', hmac_key = '+'}]",
            "email = 'me'",
        ] {
            assert!(toml::from_str::<Settings>(wrong).is_err(), "{wrong}");
        }
    }
}
