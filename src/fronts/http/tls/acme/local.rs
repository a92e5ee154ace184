//! The authority of this machine, for names that no public authority certifies (RFC 6761).
//!
//! Its certificate permits only `localhost` and the domain `test` (RFC 5280, 4.2.1.10), so its key
//! is of no use against sites of the internet.
//!
//! - `local/root.pem`: its certificate and its key
//! - `local/root.crt`: its certificate, for `surus trust`
//! - `local/DOMAIN.pem`: a certificate that it has issued

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use memchr::memmem;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use surus_sys::dir_lock::{self, DirLock};

use super::settings::{Domain, Settings};
use super::store::Store;
use crate::fronts::http::tls::x509;

/// What the names of local authorities begin with.
const NAME: &str = "Surus local authority ";
const DAY: Duration = Duration::from_secs(86400);
/// The validity of the authority's certificate.
const ROOT_LIFETIME: Duration = Duration::from_secs(3650 * 86400);
/// The validity of certificates that it issues. Apple's systems accept at most 825 days.
const LIFETIME: Duration = Duration::from_secs(90 * 86400);
/// The remaining validity at which a certificate is renewed.
const RENEWED_AT: Duration = Duration::from_secs(30 * 86400);
/// How long another process may take that issues certificates, too.
const OTHERS: Duration = Duration::from_secs(10);

/// The files of the local authority.
pub struct LocalAuthority<'a> {
    store: &'a Store,
    directory: PathBuf,
    now: SystemTime,
}

impl<'a> LocalAuthority<'a> {
    pub fn new(store: &'a Store) -> LocalAuthority<'a> {
        LocalAuthority {
            directory: store.local_directory(),
            store,
            now: SystemTime::now(),
        }
    }

    /// Issues what the local domains of the settings lack, what ends soon, and what another
    /// authority has issued, such as the one before. The first error if some cannot be stored.
    pub fn renew(&self, settings: &Settings) -> anyhow::Result<()> {
        let root = read_certificate(&self.root_file());
        let is_valid = |domain: &Domain| {
            let file = self.store.local(domain);
            let own = root.as_ref().zip(read_certificate(&file));
            own.is_some_and(|(root, leaf)| check_issued(root, &leaf, domain).is_ok())
                && self.state(&file) == FileState::Valid
        };
        let is_due = |domain: &&Domain| domain.is_local() && !is_valid(domain);
        let due: Vec<&Domain> = settings.domains.iter().filter(is_due).collect();
        if due.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let issuer = self.issuer()?;
        let mut renewed = Ok(());
        for domain in due {
            let file = self.store.local(domain);
            let issued = issue(domain, &issuer, self.now);
            let kept = issued.and_then(|pem| self.store.keep_local(&file, pem.as_bytes()));
            renewed = renewed.and(kept);
        }
        renewed
    }

    /// The file of the authority's certificate, which is made if there is none.
    pub fn certificate(&self) -> anyhow::Result<PathBuf> {
        let _lock = self.lock()?;
        self.issuer()?;
        Ok(self.public_file())
    }

    /// A file that has the authority's certificate, if there is one.
    pub fn known_certificate(&self) -> Option<PathBuf> {
        let mut files = [self.public_file(), self.root_file()].into_iter();
        files.find(|file| file.exists())
    }

    /// The certificate and the key.
    fn root_file(&self) -> PathBuf {
        self.directory.join("root.pem")
    }

    /// The certificate alone.
    fn public_file(&self) -> PathBuf {
        self.directory.join("root.crt")
    }

    fn lock(&self) -> anyhow::Result<DirLock> {
        self.store.make(&self.directory)?;
        let until = Instant::now() + OTHERS;
        loop {
            match dir_lock::lock(&self.directory) {
                Err(error)
                    if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                locked => {
                    return locked.with_context(|| {
                        format!("cannot lock {} (acme.directory)", self.directory.display())
                    });
                }
            }
        }
    }

    /// The authority, which is made if there is none or its certificate has ended. One that is not
    /// valid yet stays: the clock is wrong, and browsers trust it.
    fn issuer(&self) -> anyhow::Result<Issuer<'static, KeyPair>> {
        let (path, public) = (self.root_file(), self.public_file());
        let known = match self.state(&path) {
            FileState::Valid | FileState::NotYet => read_certificate(&path),
            FileState::Unusable => None,
        };
        if let Some(known) = known {
            let key = read_key(&path, &known)?;
            if read_certificate(&public).as_ref() != Some(&known) {
                self.store.keep_local(&public, pem(&known).as_bytes())?;
            }
            return Ok(Issuer::new(root(&key, self.now)?, key));
        }
        let key = KeyPair::generate()?;
        let params = root(&key, self.now)?;
        let certificate = params.self_signed(&key)?.pem();
        let both = format!("{certificate}{}", key.serialize_pem());
        self.store.keep_local(&path, both.as_bytes())?;
        self.store.keep_local(&public, certificate.as_bytes())?;
        Ok(Issuer::new(params, key))
    }

    fn state(&self, path: &Path) -> FileState {
        let Some(about) = read_certificate(path).and_then(|der| x509::parse(&der)) else {
            return FileState::Unusable;
        };
        let now = self.now.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = |time: Duration| time.as_secs().cast_signed();
        let now = seconds(now.unwrap_or_default());
        if about.not_after <= now + seconds(RENEWED_AT) {
            FileState::Unusable
        } else if about.not_before > now {
            FileState::NotYet
        } else {
            FileState::Valid
        }
    }
}

/// The certificate of a file.
#[derive(Debug, PartialEq, Eq)]
enum FileState {
    Valid,
    NotYet,
    /// Missing, damaged, or it ends soon.
    Unusable,
}

/// The first certificate of a file.
fn read_certificate(path: &Path) -> Option<CertificateDer<'static>> {
    let bytes = surus_sys::regular_file::read(path, 64 * 1024).ok()?;
    CertificateDer::from_pem_slice(&bytes).ok()
}

/// An error unless clients that trust `root` accept the certificate for the domain during its
/// validity. The name of the issuer is not enough: it has only four bytes of its key.
fn check_issued(
    root: &CertificateDer<'_>,
    leaf: &CertificateDer<'_>,
    domain: &Domain,
) -> anyhow::Result<()> {
    let about = x509::parse(leaf).context("the certificate is malformed")?;
    let begin = Duration::from_secs(about.not_before.max(0).cast_unsigned());
    let mut roots = RootCertStore::empty();
    roots.add(root.clone())?;
    let provider = ring::default_provider().into();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build()?;
    let name = ServerName::try_from(domain.as_str())?;
    let begin = UnixTime::since_unix_epoch(begin);
    verifier.verify_server_cert(leaf, &[], &name, &[], begin)?;
    Ok(())
}

/// The certificate of a local authority, to be trusted.
pub struct Trusted {
    pub name: String,
    /// The PEM text of this certificate alone; its file may have more.
    pub pem: String,
}

/// Reads the certificate of a local authority. Its file may be another user's, so it must not
/// permit other names than those of a local authority.
pub fn read(certificate: &Path) -> anyhow::Result<Trusted> {
    let file = certificate.display();
    let bytes = surus_sys::regular_file::read(certificate, 64 * 1024)
        .with_context(|| format!("cannot read {file}"))?;
    let der = CertificateDer::from_pem_slice(&bytes).ok();
    let name = der.as_ref().and_then(|der| {
        let about = x509::parse(der)?;
        let name = about.subject.strip_prefix("CN=")?.to_owned();
        let id = name.strip_prefix(NAME)?;
        let is_named = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_named && about.issuer == about.subject).then_some(name)
    });
    let (Some(der), Some(name)) = (der, name) else {
        bail!("{file} is not the certificate of a local authority of Surus");
    };
    let key = KeyPair::generate()?;
    let own = root(&key, SystemTime::now())?.self_signed(&key)?;
    let permitted = x509::name_constraints(own.der());
    ensure!(
        permitted.is_some() && x509::name_constraints(&der) == permitted,
        "{file} permits other names than localhost, .test and the addresses of this machine, so it \
         is not the certificate of a local authority of Surus; do not trust it"
    );
    Ok(Trusted {
        name,
        pem: pem(&der),
    })
}

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// The key of a certificate, from the same file. Another key would issue certificates that no
/// client accepts.
fn read_key(path: &Path, certificate: &[u8]) -> anyhow::Result<KeyPair> {
    let bytes = surus_sys::regular_file::read(path, 64 * 1024)?;
    let text = String::from_utf8_lossy(&bytes);
    let key = text.find("-----BEGIN PRIVATE KEY").map(|at| &text[at..]);
    let key = key.and_then(|key| KeyPair::from_pem(key).ok());
    let key = key.filter(|key| memmem::find(certificate, key.public_key_raw()).is_some());
    key.ok_or_else(|| {
        anyhow!(
            "{} has no key of the local authority; remove it, and run `surus trust`",
            path.display()
        )
    })
}

/// The authority of a key.
fn root(key: &KeyPair, now: SystemTime) -> anyhow::Result<CertificateParams> {
    // Stores tell authorities apart by their names.
    let public = key.public_key_raw();
    let id: String = public
        .iter()
        .skip(1)
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut params = CertificateParams::default();
    let name = format!("{NAME}{id}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let names = ["localhost", "test"];
    let names = names.map(|name| GeneralSubtree::DnsName(name.into()));
    let mut loopback = [0; 16];
    loopback[15] = 1;
    let addresses = [
        CidrSubnet::V4([127, 0, 0, 0], [255, 0, 0, 0]),
        CidrSubnet::V6(loopback, [255; 16]),
    ];
    let addresses = addresses.map(GeneralSubtree::IpAddress);
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: names.into_iter().chain(addresses).collect(),
        excluded_subtrees: Vec::new(),
    });
    valid_for(&mut params, ROOT_LIFETIME, now);
    Ok(params)
}

/// A certificate for a domain, and its key. That of `localhost` is for this machine's addresses,
/// too.
fn issue(
    domain: &Domain,
    issuer: &Issuer<'static, KeyPair>,
    now: SystemTime,
) -> anyhow::Result<String> {
    let addresses: &[&str] = match domain.as_str() {
        "localhost" => &["127.0.0.1", "::1"],
        _ => &[],
    };
    let names = [domain.as_str()]
        .into_iter()
        .chain(addresses.iter().copied());
    let mut params = CertificateParams::new(names.map(String::from).collect::<Vec<_>>())?;
    let name = domain.as_str();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, LIFETIME, now);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
}

/// From yesterday on, because the clocks of containers and virtual machines differ.
fn valid_for(params: &mut CertificateParams, time: Duration, now: SystemTime) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = epoch + now.unwrap_or_default();
    params.not_before = now - DAY;
    params.not_after = now + time;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
