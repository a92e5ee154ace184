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
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
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

    /// Issues what the local domains of the settings lack, or what ends soon.
    pub fn renew(&self, settings: &Settings) -> anyhow::Result<()> {
        let is_valid = |domain: &Domain| self.state(&self.store.local(domain)) == FileState::Valid;
        let is_due = |domain: &&Domain| domain.is_local() && !is_valid(domain);
        let due: Vec<&Domain> = settings.domains.iter().filter(is_due).collect();
        if due.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let issuer = self.issuer()?;
        for domain in due {
            let file = self.store.local(domain);
            let pem = issue(domain, &issuer, self.now)?;
            self.store.keep_local(&file, pem.as_bytes())?;
        }
        Ok(())
    }

    /// The file of the authority's certificate, which is made if there is none.
    pub fn certificate(&self) -> anyhow::Result<PathBuf> {
        let _lock = self.lock()?;
        self.issuer()?;
        Ok(self.directory.join("root.crt"))
    }

    /// The same file, if there is one.
    pub fn known_certificate(&self) -> Option<PathBuf> {
        Some(self.directory.join("root.crt")).filter(|file| file.exists())
    }

    fn lock(&self) -> anyhow::Result<DirLock> {
        self.store.make_local(&self.directory)?;
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
        let path = self.directory.join("root.pem");
        let key = match self.state(&path) {
            FileState::Valid | FileState::NotYet => Some(read_key(&path)?),
            FileState::Unusable => None,
        };
        let public = self.directory.join("root.crt");
        if let Some(key) = key
            && public.exists()
        {
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
        let Ok(bytes) = surus_sys::regular_file::read(path, 64 * 1024) else {
            return FileState::Unusable;
        };
        let about = CertificateDer::from_pem_slice(&bytes).ok();
        let Some(about) = about.and_then(|der| x509::parse(&der)) else {
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

fn read_key(path: &Path) -> anyhow::Result<KeyPair> {
    let bytes = surus_sys::regular_file::read(path, 64 * 1024)?;
    let text = String::from_utf8_lossy(&bytes);
    let key = text.find("-----BEGIN PRIVATE KEY").map(|at| &text[at..]);
    let key = key.and_then(|key| KeyPair::from_pem(key).ok());
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
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::crypto::ring;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn settings(directory: &Path, domains: &[&str]) -> Settings {
        Settings {
            domains: domains.iter().map(|name| name.parse().unwrap()).collect(),
            directory: Some(directory.join("acme")),
            ..Settings::default()
        }
    }

    /// Whether clients that trust the authority accept a certificate for this name.
    fn is_accepted(root: &[u8], leaf: &[u8], name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(root).unwrap())
            .unwrap();
        let provider = ring::default_provider().into();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .unwrap();
        let leaf = CertificateDer::from_pem_slice(leaf).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let verified = verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now());
        verified.is_ok()
    }

    #[test]
    fn certificates_of_local_names_are_accepted_and_renewed_by_the_same_authority() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), &["localhost", "shop.test", "example.org"]);
        let store = Store::new(&settings, dir.path()).unwrap();
        let local = LocalAuthority::new(&store);
        local.renew(&settings).unwrap();
        let read = |path: PathBuf| std::fs::read(path).unwrap();
        let root = read(local.certificate().unwrap());
        for (domain, name) in [
            (0, "localhost"),
            (0, "127.0.0.1"),
            (0, "::1"),
            (1, "shop.test"),
        ] {
            let leaf = read(store.local(&settings.domains[domain]));
            assert!(is_accepted(&root, &leaf, name), "{name}");
            assert!(!is_accepted(&root, &leaf, "example.org"));
        }
        assert!(!store.local(&settings.domains[2]).exists());
        let first = store.local(&settings.domains[0]);
        assert_eq!(first.metadata().unwrap().mode() & 0o777, 0o600);
        let before = read(first.clone());
        local.renew(&settings).unwrap();
        assert_eq!(read(first.clone()), before);
        std::fs::write(&first, "damaged").unwrap();
        local.renew(&settings).unwrap();
        assert!(is_accepted(&root, &read(first), "localhost"));
    }

    /// Browsers trust it, and a new one would be of another name.
    #[test]
    fn authority_stays_when_the_clock_is_set_back_and_right_again() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), &["localhost"]);
        let store = Store::new(&settings, dir.path()).unwrap();
        let at = |now| LocalAuthority {
            now,
            ..LocalAuthority::new(&store)
        };
        let now = SystemTime::now();
        let read = |path: PathBuf| std::fs::read(path).unwrap();
        let root = read(at(now).certificate().unwrap());
        at(now).renew(&settings).unwrap();
        let leaf = || read(store.local(&settings.domains[0]));
        let first = leaf();
        let back = at(now - 400 * DAY);
        back.renew(&settings).unwrap();
        assert_eq!(read(back.certificate().unwrap()), root);
        let second = leaf();
        assert_ne!(second, first);
        assert_eq!(
            back.state(&store.local(&settings.domains[0])),
            FileState::Valid
        );
        back.renew(&settings).unwrap();
        assert_eq!(leaf(), second);
        at(now).renew(&settings).unwrap();
        assert_eq!(read(at(now).certificate().unwrap()), root);
        assert!(is_accepted(&root, &leaf(), "localhost"));
    }

    #[test]
    fn authority_certifies_no_name_of_the_internet() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), &["localhost"]);
        let store = Store::new(&settings, dir.path()).unwrap();
        let local = LocalAuthority::new(&store);
        let root = std::fs::read(local.certificate().unwrap()).unwrap();
        let issuer = local.issuer().unwrap();
        for name in ["example.org", "localhost.example.org", "10.0.0.1"] {
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            params.use_authority_key_identifier_extension = true;
            valid_for(&mut params, LIFETIME, SystemTime::now());
            let leaf = params
                .signed_by(&KeyPair::generate().unwrap(), &issuer)
                .unwrap();
            assert!(!is_accepted(&root, leaf.pem().as_bytes(), name), "{name}");
        }
    }

    #[test]
    fn authority_that_was_damaged_is_reported_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path(), &["localhost"]);
        let store = Store::new(&settings, dir.path()).unwrap();
        let local = LocalAuthority::new(&store);
        let certificate = std::fs::read(local.certificate().unwrap()).unwrap();
        std::fs::write(local.directory.join("root.pem"), certificate).unwrap();
        let error = local.renew(&settings).unwrap_err().to_string();
        assert!(error.contains("surus trust"), "{error}");
    }

    /// The name alone says nothing: any user can write it into a certificate.
    #[test]
    fn certificate_with_other_names_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("root.crt");
        let key = KeyPair::generate().unwrap();
        let now = SystemTime::now();
        let good = root(&key, now).unwrap();
        let mut free = root(&key, now).unwrap();
        free.name_constraints = None;
        let mut wide = root(&key, now).unwrap();
        if let Some(constraints) = &mut wide.name_constraints {
            let more = GeneralSubtree::DnsName("org".into());
            constraints.permitted_subtrees.push(more);
        }
        let [good, free, wide] =
            [good, free, wide].map(|params| params.self_signed(&key).unwrap().pem());
        for wrong in [&free, &wide] {
            std::fs::write(&file, wrong).unwrap();
            let error = read(&file).err().unwrap().to_string();
            assert!(error.contains("permits other names"), "{error}");
        }
        // All certificates of the file would be trusted, too.
        std::fs::write(&file, format!("{good}{free}")).unwrap();
        let trusted = read(&file).unwrap();
        let lines = |pem: &str| pem.lines().map(String::from).collect::<Vec<_>>();
        assert_eq!(lines(&trusted.pem), lines(&good));
        assert!(trusted.name.starts_with(NAME));
    }
}
