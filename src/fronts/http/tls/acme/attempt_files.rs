//! The files of an attempt for one authority: opened ones, and some in memory for its results.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{AccountCredentials, CertificateIdentifier};
use rustls::crypto::ring;
use rustls::pki_types::Der;
use surus_sys::process;
use tracing::warn;

use super::schedule::{LONGEST_WAIT, rest};
use super::settings::{Authority, Domain};
use super::store::{Store, fill};
use crate::fronts::http::tls::certificates::Served;
use crate::fronts::http::tls::files::PemFile;
use crate::fronts::http::tls::x509;

pub struct AttemptFiles {
    pub authority: Authority,
    certificate: Option<File>,
    account: Option<File>,
    limit: Option<File>,
    pub new_account: Arc<File>,
    pub new_certificate: Arc<File>,
    new_limit: Arc<File>,
}

impl AttemptFiles {
    /// In the owner of the store.
    pub fn open(
        store: &Store,
        authority: &Authority,
        domain: &Domain,
    ) -> anyhow::Result<AttemptFiles> {
        let memory = || process::writable_memory_file().map(|file| Arc::new(File::from(file)));
        Ok(AttemptFiles {
            authority: authority.clone(),
            certificate: store.open_certificate(authority, domain)?,
            account: store.open_account(authority)?,
            limit: store.open_limit(authority, domain)?,
            new_account: memory()?,
            new_certificate: memory()?,
            new_limit: memory()?,
        })
    }

    pub fn all(&self) -> impl Iterator<Item = &File> {
        let read = [&self.account, &self.certificate, &self.limit];
        let read = read.into_iter().filter_map(Option::as_ref);
        let new = [&self.new_account, &self.new_certificate, &self.new_limit];
        read.chain(new.map(|file| &**file))
    }

    /// In the owner of the store: stores what the attempt has written. Returns the errors.
    pub fn keep(&self, store: &Store, domain: &Domain) -> Vec<anyhow::Error> {
        let authority = &self.authority;
        let stored = [
            store.keep_account(authority, &self.new_account),
            store.keep_certificate(authority, domain, &self.new_certificate),
            store.keep_limit(authority, domain, &self.new_limit),
        ];
        stored.into_iter().filter_map(Result::err).collect()
    }

    /// The account, as this attempt has created it or an earlier one. None if there is none, or the
    /// file is damaged.
    pub fn credentials(&self) -> Option<AccountCredentials> {
        let new = Some(&*self.new_account);
        let mut texts = [new, self.account.as_ref()].into_iter().flatten();
        let text = texts.find_map(|file| text(file).ok().filter(|text| !text.is_empty()))?;
        serde_json::from_str(&text)
            .inspect_err(|_| {
                let authority = &self.authority;
                warn!(
                    ?authority,
                    "the account's file is damaged; a new account is created"
                );
            })
            .ok()
    }

    /// The certificate of the authority, and what names it there. None if there is none, or it
    /// cannot be used.
    pub fn current(
        &self,
        domain: &Domain,
    ) -> Option<(Served, Option<CertificateIdentifier<'static>>)> {
        let text = text(self.certificate.as_ref()?).ok()?;
        check(&text, domain)
            .inspect_err(|error| {
                warn!(
                    %domain,
                    authority = ?self.authority,
                    error = format!("{error:#}"),
                    "cannot use a stored certificate"
                );
            })
            .ok()
    }

    /// Notes that the authority wants no request for the domain during this time.
    pub fn limit(&self, time: Duration) -> anyhow::Result<()> {
        Ok(fill(
            &self.new_limit,
            time.as_secs().to_string().as_bytes(),
        )?)
    }

    /// How long that still is, as this attempt or an earlier one has noted it.
    pub fn limited_for(&self, now: SystemTime) -> Duration {
        let left = |file: &File| {
            let wait = text(file).ok()?.trim().parse().ok()?;
            let wait = Duration::from_secs(wait).min(LONGEST_WAIT);
            let since = file.metadata().and_then(|file| file.modified()).ok()?;
            Some(rest(wait, since, now))
        };
        let files = [Some(&*self.new_limit), self.limit.as_ref()];
        let left = files.into_iter().flatten().filter_map(left);
        left.max().unwrap_or_default()
    }
}

fn text(mut file: &File) -> anyhow::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a file's certificate can be served for the domain.
pub fn check(
    text: &str,
    domain: &Domain,
) -> anyhow::Result<(Served, Option<CertificateIdentifier<'static>>)> {
    let file = PemFile {
        path: domain.as_str().into(),
        text: text.to_owned(),
        is_public: false,
    };
    let served = Served::acquired(&file, domain.as_str(), &ring::default_provider())?;
    let id = served.leaf().and_then(x509::renewal_id);
    let id = id.map(|(issuer, serial)| {
        CertificateIdentifier::new(Der::from_slice(issuer), Der::from_slice(serial))
    });
    Ok((served, id))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fronts::http::tls::acme::settings::Settings;

    #[test]
    fn limit_of_an_authority_is_kept_for_the_domain_across_attempts() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            domains: ["a.example", "b.example"]
                .map(|it| it.parse().unwrap())
                .into(),
            directory: Some("state/acme".into()),
            ..Settings::default()
        };
        let store = Store::new(&settings, dir.path()).unwrap();
        store.make_ready(&settings.authorities).unwrap();
        let open = |domain: usize| {
            let domain = &settings.domains[domain];
            AttemptFiles::open(&store, &settings.authorities[0], domain).unwrap()
        };
        let files = open(0);
        let now = SystemTime::now();
        let minutes = |number: u64| Duration::from_secs(60 * number);
        assert_eq!(files.limited_for(now), Duration::ZERO);
        files.limit(minutes(90)).unwrap();
        let is_limited = |files: &AttemptFiles| files.limited_for(now + minutes(1)) > minutes(80);
        assert!(is_limited(&files));
        assert!(files.keep(&store, &settings.domains[0]).is_empty());
        assert!(is_limited(&open(0)));
        assert_eq!(open(1).limited_for(now), Duration::ZERO);
        // It ends with its time, and with a clock that is set back.
        for now in [now + minutes(100), now - minutes(2)] {
            assert_eq!(open(0).limited_for(now), Duration::ZERO);
        }
        let own = open(0).limit.unwrap();
        assert_eq!(own.metadata().unwrap().len(), 4);
        // Whatever the file says, it has an end.
        files.limit(Duration::MAX).unwrap();
        assert!(files.keep(&store, &settings.domains[0]).is_empty());
        assert!(open(0).limited_for(now + minutes(1)) <= LONGEST_WAIT);
        // If it is stored later, it counts from when the authority said so.
        files.limit(minutes(90)).unwrap();
        let since = now - minutes(60);
        files.new_limit.set_modified(since).unwrap();
        assert!(files.keep(&store, &settings.domains[0]).is_empty());
        let left = open(0).limited_for(now);
        assert!(left > minutes(29) && left <= minutes(30), "{left:?}");
    }
}
