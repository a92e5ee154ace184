//! Certificates for tests: an authority, and what it issues.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for these hosts; the first is its common name, too.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_until(names, 4000)
    }

    /// One that ends with the year before this one.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Issued {
        self.issue_between(names, 2000, year)
    }

    /// The same, valid from the first year on.
    pub fn issue_between(&self, names: &[&str], first: i32, year: i32) -> Issued {
        self.issue_with(names, |params| {
            params.not_before = rcgen::date_time_ymd(first, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        })
    }

    /// One that has been valid for a time, and will be for another one.
    pub fn issue_now(&self, names: &[&str], age: Duration, left: Duration) -> Issued {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        self.issue_with(names, |params| {
            params.not_before = rcgen::date_time_ymd(1970, 1, 1) + (now - age);
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + (now + left);
        })
    }

    fn issue_with(&self, names: &[&str], set: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let common = names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        set(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// What a client trusts.
    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
            .unwrap();
        Arc::new(roots)
    }
}

impl Issued {
    /// Writes `NAME.crt` and `NAME.key`, and returns their paths.
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        use std::os::unix::fs::PermissionsExt;
        let certificate = dir.join(format!("{name}.crt"));
        let key = dir.join(format!("{name}.key"));
        std::fs::write(&certificate, &self.certificate).unwrap();
        std::fs::write(&key, &self.key).unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        (certificate, key)
    }
}
