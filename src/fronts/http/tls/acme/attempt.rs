//! One attempt for one domain: checks whether its certificate must be renewed, and if so asks the
//! authorities in their order.
//!
//! The owner of the [`Store`] prepares an attempt, runs it in a process without privileges, and
//! keeps its results. That process gets opened files only, so that the owner never holds account
//! keys.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use instant_acme::{
    Account, AccountCredentials, CertificateIdentifier, ChallengeType, Error, ExternalAccountKey,
    NewAccount,
};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::Der;
use surus_sys::process;
use tracing::{debug, error, info, warn};

use super::http_client::Https;
use super::link::{AttemptLink, AttemptOutcome};
use super::order::{self, Issued};
use super::schedule::{INTERVAL, PAUSES, latest, pause, renew_at, until, wait};
use super::settings::{Authority, Domain, Settings};
use super::store::{AttemptFailures, Store, fill};
use crate::fronts::http::tls::certificates::{self, Served};
use crate::fronts::http::tls::files::PemFile;
use crate::fronts::http::tls::x509;

/// The time limit of an attempt.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How often an order is repeated when the authority has lost the account or refuses a nonce.
const RETRIES: usize = 3;

/// The exit status of a process that runs an attempt.
pub mod status {
    /// The certificate is there, and need not be renewed now.
    pub const DONE: i32 = 0;
    pub const FAILED: i32 = 1;
    /// Nothing was attempted, because of earlier failures.
    pub const TOO_EARLY: i32 = 2;
}

/// Which challenges the front end can answer.
#[derive(Debug, Clone, Copy)]
pub struct Challenges {
    pub http: bool,
    pub tls: bool,
}

impl Challenges {
    /// They take turns, so that an attempt costs one validation: authorities limit failed ones.
    fn kind(self, failures: u32) -> Option<ChallengeType> {
        match (self.http, self.tls, failures % 2) {
            (false, false, _) => None,
            (true, false, _) | (true, true, 0) => Some(ChallengeType::Http01),
            (false, true, _) | (true, true, _) => Some(ChallengeType::TlsAlpn01),
        }
    }
}

pub struct Attempt {
    domain: Domain,
    email: Option<String>,
    /// The roots of the authorities' servers.
    roots: Option<PemFile>,
    challenges: Challenges,
    sources: Vec<AttemptFiles>,
    failures: AttemptFailures,
    /// An operator has asked for it, so that earlier failures count less.
    is_asked: bool,
}

/// An authority, its opened files, and files in memory for the results.
struct AttemptFiles {
    authority: Authority,
    account: Option<File>,
    certificate: Option<File>,
    new_account: File,
    new_certificate: File,
}

/// A certificate that is there already.
struct CurrentCertificate {
    source: usize,
    served: Served,
    /// Names it to its authority.
    id: Option<CertificateIdentifier<'static>>,
}

impl Attempt {
    /// In the owner of the store.
    pub fn prepare(
        settings: &Settings,
        project: &Path,
        index: usize,
        challenges: Challenges,
        is_asked: bool,
    ) -> anyhow::Result<Attempt> {
        let domain = settings
            .domains
            .get(index)
            .context("there is no such domain")?;
        let store = Store::new(settings, project)?;
        store.make_ready(&settings.authorities)?;
        let memory = || process::writable_memory_file().map(File::from);
        let sources = settings.authorities.iter().map(|authority| {
            Ok(AttemptFiles {
                authority: authority.clone(),
                account: store.open_account(authority)?,
                certificate: store.open_certificate(authority, domain)?,
                new_account: memory()?,
                new_certificate: memory()?,
            })
        });
        let roots = settings.authority_ca.as_deref();
        let roots = roots.map(|path| PemFile::read(&project.join(path), "acme.authority_ca"));
        Ok(Attempt {
            domain: domain.clone(),
            email: settings.email.clone(),
            roots: roots.transpose()?,
            challenges,
            sources: sources.collect::<anyhow::Result<_>>()?,
            failures: store.failures(domain),
            is_asked,
        })
    }

    /// The descriptors that the process needs.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.sources
            .iter()
            .flat_map(|source| {
                let read = [source.account.as_ref(), source.certificate.as_ref()];
                let written = [Some(&source.new_account), Some(&source.new_certificate)];
                read.into_iter().chain(written).flatten()
            })
            .map(File::as_fd)
            .collect()
    }

    /// In the owner of the store, after the attempt has ended with this exit status.
    pub fn keep(&self, settings: &Settings, project: &Path, status: Option<i32>) {
        let (Ok(store), domain) = (Store::new(settings, project), &self.domain) else {
            return;
        };
        let mut is_kept = true;
        for source in &self.sources {
            let authority = &source.authority;
            let account = store.keep_account(authority, &source.new_account);
            let certificate = store.keep_certificate(authority, domain, &source.new_certificate);
            if let Err(error) = account.and(certificate) {
                is_kept = false;
                let error = format!("{error:#}");
                error!(%domain, ?authority, error, "cannot store the certificate (acme.directory)");
            }
        }
        let failures = match status {
            Some(status::TOO_EARLY) => return,
            Some(status::DONE) if is_kept => None,
            _ => Some(self.failures.count.saturating_add(1)),
        };
        if let Err(error) = store.note(domain, failures) {
            warn!(%domain, %error, "cannot count failures (acme.directory)");
        }
    }

    /// In a process without privileges: does the attempt, and returns its exit status.
    pub async fn run(&self, socket: OwnedFd) -> i32 {
        let link = match AttemptLink::new(socket) {
            Ok(link) => link,
            Err(error) => {
                let error = format!("{error:#}");
                error!(domain = %self.domain, error, "cannot get a certificate");
                return status::FAILED;
            }
        };
        let done = tokio::time::timeout(TIMEOUT, self.proceed(&link)).await;
        let done = done.unwrap_or_else(|_| Err(anyhow!("not done within {TIMEOUT:?}")));
        let (status, next, outcome) = match done {
            Ok(done) => done,
            Err(error) => {
                let next = pause(self.failures.count.saturating_add(1));
                error!(
                    domain = %self.domain,
                    next_attempt_in_minutes = next.as_secs() / 60,
                    error = format!("{error:#}"),
                    "cannot get a certificate"
                );
                (status::FAILED, next, AttemptOutcome::Failed)
            }
        };
        link.end(next, outcome).await;
        status
    }

    /// Returns the exit status, the time to the next attempt, and what to count.
    async fn proceed(&self, link: &AttemptLink) -> anyhow::Result<(i32, Duration, AttemptOutcome)> {
        let https = self.https()?;
        let current = self.current();
        if let Some(current) = &current {
            let next = self.until_renewal(current, &https).await;
            if !next.is_zero() {
                return Ok((status::DONE, next, AttemptOutcome::NotAttempted));
            }
        }
        let left = self.left();
        if !left.is_zero() {
            info!(
                domain = %self.domain,
                next_attempt_in_minutes = left.as_secs().div_ceil(60),
                "no attempt to get a certificate, because earlier ones have failed"
            );
            return Ok((status::TOO_EARLY, left, AttemptOutcome::NotAttempted));
        }
        let mut failed = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let replaced = current.as_ref().filter(|current| current.source == index);
            let id = replaced.and_then(|current| current.id.clone());
            match self.order(source, id, &https, link).await {
                Ok(next) => return Ok((status::DONE, next, AttemptOutcome::Issued)),
                Err(error) => {
                    let authority = &source.authority;
                    if self.sources.len() > 1 {
                        warn!(
                            domain = %self.domain,
                            ?authority,
                            error = format!("{error:#}"),
                            "this authority issues no certificate"
                        );
                    }
                    failed.push(format!("{authority:?}: {error:#}"));
                }
            }
        }
        bail!("{}", failed.join("; "))
    }

    fn https(&self) -> anyhow::Result<Https> {
        let roots = self.roots.as_ref();
        let roots: Option<RootCertStore> = roots
            .map(|file| certificates::authorities(file, "acme.authority_ca"))
            .transpose()?;
        Https::new(roots)
    }

    /// The certificate that ends last. Damaged ones count as missing.
    fn current(&self) -> Option<CurrentCertificate> {
        let read = |(index, source): (usize, &AttemptFiles)| {
            let file = source.certificate.as_ref()?;
            let text = text(file).ok()?;
            let (served, id) = check(&text, &self.domain)
                .inspect_err(|error| {
                    warn!(
                        domain = %self.domain,
                        authority = ?source.authority,
                        error = format!("{error:#}"),
                        "cannot use a stored certificate"
                    );
                })
                .ok()?;
            Some(CurrentCertificate {
                source: index,
                served,
                id,
            })
        };
        let all = self.sources.iter().enumerate().filter_map(read);
        all.max_by_key(|current| current.served.ends())
    }

    /// The time until the certificate must be renewed, or checked again. Zero for now.
    async fn until_renewal(&self, current: &CurrentCertificate, https: &Https) -> Duration {
        let now = SystemTime::now();
        let by_age = until(renew_at(&current.served), now);
        let Some(id) = current.id.as_ref().filter(|_| !by_age.is_zero()) else {
            return wait(by_age, INTERVAL);
        };
        let source = &self.sources[current.source];
        match self.window(source, id, https).await {
            Ok(None) => wait(by_age, INTERVAL),
            Ok(Some((start, end, again))) => {
                // Anywhere in the window, so that not all renew at its start (RFC 9773, 4.2).
                let length = end.duration_since(start).unwrap_or_default();
                let random = RandomState::new().hash_one(0) >> 32;
                let part = random as f64 / f64::from(u32::MAX);
                let suggested = (start + length.mul_f64(part)).min(latest(&current.served));
                wait(until(suggested, now), again)
            }
            Err(error) => {
                let error = format!("{error:#}");
                debug!(domain = %self.domain, error, "no time of renewal from the authority");
                wait(by_age, INTERVAL)
            }
        }
    }

    /// When the authority suggests to renew (ARI), and when to ask again. None if it does not say.
    async fn window(
        &self,
        source: &AttemptFiles,
        id: &CertificateIdentifier<'_>,
        https: &Https,
    ) -> anyhow::Result<Option<(SystemTime, SystemTime, Duration)>> {
        let Some(credentials) = source.credentials() else {
            return Ok(None);
        };
        let builder = Account::builder_with_http(Box::new(https.clone()));
        let account = builder.from_credentials(credentials).await?;
        match account.renewal_info(id).await {
            Ok((info, again)) => {
                let window = info.suggested_window;
                Ok(Some((window.start.into(), window.end.into(), again)))
            }
            Err(Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// How long earlier failures forbid another attempt.
    fn left(&self) -> Duration {
        let AttemptFailures { count, age } = self.failures;
        let (Some(age), 1..) = (age, count) else {
            return Duration::ZERO;
        };
        let pause = match self.is_asked {
            true => PAUSES[0],
            false => pause(count),
        };
        pause.saturating_sub(age)
    }

    /// Orders a certificate from one authority. Returns the time to the next attempt.
    async fn order(
        &self,
        source: &AttemptFiles,
        replaces: Option<CertificateIdentifier<'static>>,
        https: &Https,
        link: &AttemptLink,
    ) -> anyhow::Result<Duration> {
        let kind = self.challenges.kind(self.failures.count);
        let kind = kind.context("neither http.listen nor tls.listen can answer validations")?;
        let mut retries = RETRIES;
        let mut is_lost = false;
        loop {
            let ordered = async {
                let account = self.account(source, https, is_lost).await?;
                let (domain, id) = (self.domain.as_str(), replaces.clone());
                order::obtain(&account, domain, &kind, id, link).await
            };
            let error = match ordered.await {
                Ok(issued) => return self.take(source, &issued),
                Err(error) => error,
            };
            is_lost = order::is_about(&error, order::NO_ACCOUNT);
            if retries == 0 || !(is_lost || order::is_about(&error, order::BAD_NONCE)) {
                return Err(error);
            }
            retries -= 1;
        }
    }

    /// The account at an authority; a new one if there is none, or it `is_lost`.
    async fn account(
        &self,
        source: &AttemptFiles,
        https: &Https,
        is_lost: bool,
    ) -> anyhow::Result<Account> {
        let builder = || Account::builder_with_http(Box::new(https.clone()));
        if let Some(credentials) = source.credentials().filter(|_| !is_lost) {
            let account = builder().from_credentials(credentials).await;
            return account.context("cannot use the account");
        }
        let contact = self.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let Authority { url, account, .. } = &source.authority;
        let bound = account.as_ref();
        let bound = bound.map(|bound| ExternalAccountKey::new(bound.id.clone(), &bound.key));
        let created = builder().create(&new, url.clone(), bound.as_ref()).await;
        let (account, credentials) = created.context("cannot create an account")?;
        fill(&source.new_account, &serde_json::to_vec(&credentials)?)?;
        info!(authority = ?source.authority, "ACME account created");
        Ok(account)
    }

    /// Checks what was issued, and hands it to the owner of the store.
    fn take(&self, source: &AttemptFiles, issued: &Issued) -> anyhow::Result<Duration> {
        let text = format!("{}\n{}", issued.key.trim_end(), issued.chain);
        let (served, _) = check(&text, &self.domain).context("it cannot be used")?;
        fill(&source.new_certificate, text.as_bytes())?;
        info!(
            domain = %self.domain,
            authority = ?source.authority,
            ends = %httpdate::fmt_http_date(served.ends()),
            "certificate obtained"
        );
        let next = until(renew_at(&served), SystemTime::now());
        ensure!(
            !next.is_zero(),
            "the new certificate is valid from {} to {}, so it had to be renewed at once; check \
             the clock of this machine",
            httpdate::fmt_http_date(served.begins()),
            httpdate::fmt_http_date(served.ends())
        );
        Ok(wait(next, INTERVAL))
    }
}

impl AttemptFiles {
    /// The account, as this attempt has created it or an earlier one. None if there is none, or the
    /// file is damaged.
    fn credentials(&self) -> Option<AccountCredentials> {
        let new = Some(&self.new_account);
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
}

fn text(mut file: &File) -> anyhow::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(1 << 20).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a file's certificate can be served for the domain.
fn check(
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
