//! Makes certificates and keys from PEM, and selects one for each client (SNI).

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use super::files::{Pair, PemFile, SitePairs};
use super::x509;
use crate::app::by_host::ByHost;
use crate::observe::status::CertificateStatus;

/// A certificate that can be served.
#[derive(Debug, Clone)]
pub struct Served {
    /// The site that names it; empty if it is for all.
    pub site: String,
    pub path: PathBuf,
    pub about: x509::Certificate,
    key: Arc<CertifiedKey>,
}

impl Served {
    pub fn read(pair: &Pair, provider: &CryptoProvider) -> anyhow::Result<Served> {
        let chain = chain(&pair.certificate, "tls.certificate")?;
        let key = private_key(&pair.key)?;
        let path = pair.certificate.path.clone();
        let about = x509::parse(&chain[0]).with_context(|| {
            format!(
                "{} (tls.certificate) has a malformed certificate",
                path.display()
            )
        })?;
        let key = CertifiedKey::from_der(chain, key, provider);
        let key = Arc::new(key.map_err(|error| unusable(pair, &error))?);
        Ok(Served {
            site: String::new(),
            path,
            about,
            key,
        })
    }

    /// Those of a site.
    pub fn of_site(own: &SitePairs, provider: &CryptoProvider) -> anyhow::Result<Vec<Served>> {
        let pairs = own.pairs.as_ref().map_err(|why| anyhow!("{why}"))?;
        let read = |pair| {
            Ok(Served {
                site: own.site.clone(),
                ..Served::read(pair, provider)?
            })
        };
        pairs.iter().map(read).collect()
    }

    /// One that an authority has issued for this domain, with its key in the same file.
    pub fn acquired(
        file: &PemFile,
        domain: &str,
        provider: &CryptoProvider,
    ) -> anyhow::Result<Served> {
        let pair = Pair {
            certificate: file.clone(),
            key: file.clone(),
        };
        let served = Served::read(&pair, provider)?;
        if !served.about.names.iter().any(|name| name == domain) {
            bail!("{} is not for {domain}", file.path.display());
        }
        Ok(served)
    }

    /// A certificate for hosts that have none yet.
    pub fn placeholder(hosts: Vec<String>, key: CertifiedKey) -> Option<Served> {
        let about = x509::parse(key.cert.first()?)?;
        Some(Served {
            site: String::new(),
            path: "self-signed".into(),
            about: x509::Certificate {
                names: hosts,
                ..about
            },
            key: Arc::new(key),
        })
    }

    /// Whether clients accept it for this host, or for all hosts of a pattern `*.example.org`.
    pub fn is_for(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        let is_below = |name: &str| name.strip_prefix("*.").is_some_and(|it| Some(it) == parent);
        let mut names = self.about.names.iter();
        names.any(|name| name == host || is_below(name))
    }

    /// The certificate without its chain.
    pub fn leaf(&self) -> Option<&[u8]> {
        self.key.cert.first().map(AsRef::as_ref)
    }

    pub fn begins(&self) -> SystemTime {
        instant(self.about.not_before)
    }

    pub fn validity(&self) -> Validity {
        Validity {
            begins: self.begins(),
            ends: self.ends(),
        }
    }

    pub fn ends(&self) -> SystemTime {
        instant(self.about.not_after)
    }

    pub fn status(&self) -> CertificateStatus {
        let soon = self.validity().ends_soon_at();
        let soon = soon.duration_since(SystemTime::UNIX_EPOCH);
        CertificateStatus {
            certificate: self.path.display().to_string(),
            names: self.about.names.clone(),
            not_after: self.about.not_after,
            ends_soon_at: soon.map_or(0, |soon| soon.as_secs().cast_signed()),
        }
    }

    /// What is wrong with the certificate, with its name.
    pub fn warning(&self) -> Option<String> {
        let problem = problem(self.validity(), &self.about.names, SystemTime::now())?;
        let ends = httpdate::fmt_http_date(self.ends());
        Some(format!("{} (until {ends}): {problem}", self.path.display()))
    }
}

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy)]
pub struct Validity {
    pub begins: SystemTime,
    pub ends: SystemTime,
}

/// What is wrong with a certificate, though it can be served. Only its clients know whether it is
/// their clock that is right.
fn problem(validity: Validity, names: &[String], now: SystemTime) -> Option<String> {
    let clock = httpdate::fmt_http_date(now);
    if validity.ends <= now {
        Some(format!(
            "the certificate has expired by the clock of this machine ({clock}); renew it, or \
             correct the clock"
        ))
    } else if validity.begins > now {
        let begins = httpdate::fmt_http_date(validity.begins);
        Some(format!(
            "the certificate is valid from {begins} on, which is not yet by the clock of this \
             machine ({clock}); correct the clock"
        ))
    } else if validity.ends_soon_at() < now {
        Some("the certificate ends soon; renew it".into())
    } else if names.is_empty() {
        Some(
            "the certificate names no host (subject alternative name); browsers reject it, and \
             only clients get it for whose host there is no other"
                .into(),
        )
    } else {
        None
    }
}

/// How long before its end a certificate is worth a warning, at most.
const SOON: Duration = Duration::from_secs(7 * 86400);

impl Validity {
    /// When its end is near enough for a warning. Some authorities issue for days or hours; a
    /// renewal is due with a third of the time left.
    pub fn ends_soon_at(self) -> SystemTime {
        let lifetime = self.ends.duration_since(self.begins).unwrap_or_default();
        self.ends - SOON.min(lifetime / 7)
    }
}

/// Within the years 1970 to 9999, which is what HTTP's dates can express.
fn instant(seconds: i64) -> SystemTime {
    let seconds = seconds.clamp(0, 253_402_300_799);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs())
}

/// Certificates, the server's first.
fn chain(file: &PemFile, setting: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let name = || format!("{} ({setting})", file.path.display());
    let all = CertificateDer::pem_slice_iter(file.text.as_bytes());
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(|error| anyhow!("{} is damaged: {error}", name()))?;
    if all.is_empty() {
        bail!(
            "{} has no certificate; it must begin with the line `-----BEGIN CERTIFICATE-----`",
            name()
        );
    }
    Ok(all)
}

fn private_key(file: &PemFile) -> anyhow::Result<PrivateKeyDer<'static>> {
    let name = || format!("{} (tls.key)", file.path.display());
    let is_encrypted = [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----",
        "Proc-Type: 4,ENCRYPTED",
    ];
    if is_encrypted.iter().any(|mark| file.text.contains(mark)) {
        bail!(
            "{} is encrypted, and Surus does not ask for passphrases; decrypt it with \
             `openssl pkey -in {} -out NEW`, and protect the new file by its mode (0600)",
            name(),
            file.path.display()
        );
    }
    PrivateKeyDer::from_pem_slice(file.text.as_bytes()).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => anyhow!(
            "{} has no key; it must have a line `-----BEGIN PRIVATE KEY-----` (PKCS#8), \
             `-----BEGIN RSA PRIVATE KEY-----` or `-----BEGIN EC PRIVATE KEY-----`",
            name()
        ),
        other => anyhow!("{} is damaged: {other}", name()),
    })
}

/// Explains why certificate and key cannot be used together.
fn unusable(pair: &Pair, error: &rustls::Error) -> anyhow::Error {
    let certificate = pair.certificate.path.display();
    let key = pair.key.path.display();
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => anyhow!(
            "the key {key} (tls.key) does not belong to the certificate {certificate} \
             (tls.certificate); name the keys in the order of their certificates, and begin each \
             chain with the server's own certificate"
        ),
        // The message does not quote the file: the wrong bytes may be part of a key.
        rustls::Error::General(_) => anyhow!(
            "the key {key} (tls.key) cannot be used; it must be RSA with 2048 to 8192 bits, ECDSA \
             with P-256 or P-384, or Ed25519"
        ),
        error => anyhow!("the certificate {certificate} (tls.certificate) cannot be used: {error}"),
    }
}

/// The authorities of a file.
pub fn authorities(file: &PemFile, setting: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(file, setting)? {
        let added = roots.add(certificate);
        added.map_err(|error| {
            let path = file.path.display();
            anyhow!("{path} ({setting}) has a certificate that cannot be used: {error}")
        })?;
    }
    Ok(roots)
}

/// Certificates by the host names that they are for.
#[derive(Debug)]
struct ByName {
    /// Keys of different kinds for a name, in the order of the settings.
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Those of the first certificate, for all other names.
    first: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    fn new<'a>(all: impl Iterator<Item = &'a Served>) -> ByName {
        let mut by_name: HashMap<String, Vec<_>> = HashMap::new();
        let mut first = None;
        for served in all {
            for name in &served.about.names {
                by_name
                    .entry(name.clone())
                    .or_default()
                    .push(served.key.clone());
            }
            first = first.or(Some(served));
        }
        let name = first.and_then(|first| first.about.names.first());
        // With its siblings for the same name, which have other kinds of keys.
        let siblings = name.and_then(|name| by_name.get(name)).cloned();
        let alone = || first.iter().map(|first| first.key.clone()).collect();
        ByName {
            first: siblings.unwrap_or_else(alone),
            by_name,
        }
    }

    /// Those for a name in lower case.
    fn find(&self, name: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        let wildcard = || {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        };
        self.by_name.get(name).or_else(wildcard)
    }
}

/// Selects the certificate by the host name that the client asks for. A certificate of the host's
/// site comes first, then any that is for the host, then the site's first one, then the first of
/// all. Clients that name no host get the default site's.
#[derive(Debug)]
pub struct BySite {
    /// The names of the sites.
    hosts: Arc<ByHost<String>>,
    /// Those of the sites that have certificates of their own.
    own: HashMap<String, ByName>,
    all: ByName,
}

impl BySite {
    /// The placeholder comes last: it is for hosts that have no other certificate.
    pub fn new(
        hosts: &Arc<ByHost<String>>,
        all: &[Served],
        placeholder: Option<&Served>,
    ) -> BySite {
        let sites = all.iter().filter(|served| !served.site.is_empty());
        let sites: BTreeSet<&String> = sites.map(|served| &served.site).collect();
        let own = sites.into_iter().map(|site| {
            let own = all.iter().filter(|served| served.site == *site);
            (site.clone(), ByName::new(own))
        });
        BySite {
            hosts: hosts.clone(),
            own: own.collect(),
            all: ByName::new(all.iter().chain(placeholder)),
        }
    }

    /// The keys for a host, the best first.
    fn find(&self, host: Option<&str>) -> Vec<&Arc<CertifiedKey>> {
        let host = host.map(str::to_ascii_lowercase);
        let site = self.hosts.select(host.as_deref());
        let site = site.and_then(|number| self.hosts.get(number));
        let own = site.and_then(|site| self.own.get(site));
        let sources = || own.into_iter().chain([&self.all]);
        let named = sources().filter_map(|source| source.find(host.as_deref()?));
        let first = sources().map(|source| &source.first);
        named.chain(first).flatten().collect()
    }
}

impl ResolvesServerCert for BySite {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.find(hello.server_name());
        let schemes = hello.signature_schemes();
        let mut usable = keys.iter().copied();
        let usable = usable.find(|key| key.key.choose_scheme(schemes).is_some());
        usable.or(keys.first().copied()).cloned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn any_end_of_a_certificate_can_be_printed() {
        for seconds in [i64::MIN, -1, 0, 1 << 31, 253_402_300_800, i64::MAX] {
            httpdate::fmt_http_date(instant(seconds));
        }
    }

    #[test]
    fn certificate_out_of_its_time_is_reported_with_the_time_of_the_clock() {
        let day = Duration::from_secs(86400);
        let begins = SystemTime::UNIX_EPOCH + 20_000 * day;
        let validity = Validity {
            begins,
            ends: begins + 90 * day,
        };
        let names = ["example.org".to_owned()];
        let problem_at = |now| problem(validity, &names, now);
        assert_eq!(problem_at(begins), None);
        assert_eq!(problem_at(begins + 82 * day), None);
        let late = problem_at(begins + 84 * day).unwrap();
        assert!(late.contains("ends soon"), "{late}");
        for (now, text) in [
            (
                begins + 90 * day,
                "has expired by the clock of this machine",
            ),
            (SystemTime::UNIX_EPOCH, "valid from"),
            (begins - day, "not yet by the clock of this machine"),
        ] {
            let problem = problem_at(now).unwrap();
            let clock = httpdate::fmt_http_date(now);
            assert!(
                problem.contains(text) && problem.contains(&clock),
                "{problem}"
            );
        }
    }

    #[test]
    fn certificate_of_hours_is_not_reported_before_its_renewal_is_late() {
        let hour = Duration::from_secs(3600);
        let begins = SystemTime::UNIX_EPOCH + 480_000 * hour;
        let names = ["example.org".to_owned()];
        for hours in [24, 6 * 24, 45 * 24] {
            let validity = Validity {
                begins,
                ends: begins + hours * hour,
            };
            // Two thirds of the lifetime are over, and five sixths.
            for now in [hours * 2 / 3, hours * 5 / 6] {
                let problem = problem(validity, &names, begins + now * hour);
                assert_eq!(problem, None, "{hours} hours, after {now}");
                assert!(validity.ends_soon_at() > begins + now * hour, "{hours}");
            }
            let last = problem(validity, &names, begins + (hours - 2) * hour);
            assert!(last.is_some_and(|it| it.contains("ends soon")), "{hours}");
        }
    }
}
