//! One attempt for one domain: checks whether its certificate must be renewed, and if so asks the
//! authorities in their order.
//!
//! The owner of the [`Store`] prepares an attempt, runs it in a process without privileges, and
//! keeps its results. That process gets opened files only, so that the owner never holds account
//! keys.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use instant_acme::{
    Account, CertificateIdentifier, ChallengeType, Error, ExternalAccountKey, NewAccount,
};
use rustls::RootCertStore;
use tracing::{debug, error, info, warn};

use super::attempt_files::{AttemptFiles, check};
use super::http_client::Https;
use super::link::{AttemptEnd, AttemptLink, AttemptOutcome};
use super::order::{self, Issued};
use super::schedule::{PAUSES, RenewalWindow, USUAL_LIMIT, pause};
use super::settings::{Authority, Domain, Settings};
use super::store::{AttemptFailures, Store, fill};
use super::unstored::Unstored;
use crate::fronts::http::tls::certificates::{self, Served};
use crate::fronts::http::tls::clock::ClockDifference;
use crate::fronts::http::tls::files::PemFile;

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
    /// Takes the results that cannot be stored.
    unstored: Arc<Unstored>,
}

/// A certificate that is there already.
struct CurrentCertificate {
    source: usize,
    served: Served,
    /// Names it to its authority.
    id: Option<CertificateIdentifier<'static>>,
}

impl Attempt {
    /// In the owner of the store. An error if results of an earlier attempt still cannot be stored.
    pub fn prepare(
        settings: &Settings,
        project: &Path,
        index: usize,
        challenges: Challenges,
        is_asked: bool,
        unstored: &Arc<Unstored>,
    ) -> anyhow::Result<Attempt> {
        let domain = settings
            .domains
            .get(index)
            .context("there is no such domain")?;
        let store = Store::with_unstored(settings, project, unstored)?;
        store.make_ready(&settings.authorities)?;
        store.store_again(&settings.authorities, domain)?;
        let authorities = settings.authorities.iter();
        let sources = authorities.map(|authority| AttemptFiles::open(&store, authority, domain));
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
            unstored: unstored.clone(),
        })
    }

    /// The descriptors that the process needs.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let files = self.sources.iter().flat_map(AttemptFiles::all);
        files.map(File::as_fd).collect()
    }

    /// In the owner of the store, after the attempt has ended with this exit status. `is_shutdown`:
    /// the server shuts down. The attempt then fails for that reason, or is killed.
    pub fn keep(
        &self,
        settings: &Settings,
        project: &Path,
        status: Option<i32>,
        is_shutdown: bool,
    ) {
        let store = Store::with_unstored(settings, project, &self.unstored);
        let (Ok(store), domain) = (store, &self.domain) else {
            return;
        };
        let mut is_kept = true;
        for source in &self.sources {
            for error in source.keep(&store, domain) {
                is_kept = false;
                let authority = &source.authority;
                error!(
                    %domain,
                    ?authority,
                    error = format!("{error:#}"),
                    "cannot store the result of an attempt"
                );
            }
        }
        let failures = match status {
            Some(status::TOO_EARLY) => return,
            Some(status::DONE) if is_kept => None,
            _ if is_shutdown => return,
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
        let (status, end) = done.unwrap_or_else(|error| {
            let next = pause(self.failures.count.saturating_add(1)).max(self.limited());
            let error = format!("{error:#}");
            error!(
                domain = %self.domain,
                next_attempt_in_minutes = next.as_secs().div_ceil(60),
                error,
                "cannot get a certificate"
            );
            let outcome = AttemptOutcome::Failed;
            let end = AttemptEnd::new(next, outcome, Some(error));
            (status::FAILED, end)
        });
        link.end(end).await;
        status
    }

    /// Returns the exit status, too.
    async fn proceed(&self, link: &AttemptLink) -> anyhow::Result<(i32, AttemptEnd)> {
        let https = self.https()?;
        let clients: Vec<Https> = self.sources.iter().map(|_| https.for_another()).collect();
        let proceeded = self.proceed_by(&clients, link).await;
        for (source, https) in self.sources.iter().zip(&clients) {
            let clock = https.timing().clock;
            if clock != ClockDifference::None {
                warn!(
                    domain = %self.domain,
                    authority = ?source.authority,
                    clock = %clock,
                    "the clock of this machine differs from the authority's; correct it"
                );
            }
        }
        proceeded
    }

    /// `clients` are for the authorities, in their order.
    async fn proceed_by(
        &self,
        clients: &[Https],
        link: &AttemptLink,
    ) -> anyhow::Result<(i32, AttemptEnd)> {
        let current = self.current();
        if let Some(current) = &current {
            let next = self.until_renewal(current, &clients[current.source]).await;
            if !next.is_zero() {
                let outcome = AttemptOutcome::NotAttempted;
                return Ok((status::DONE, AttemptEnd::new(next, outcome, None)));
            }
        }
        if let Some(end) = self.too_early() {
            return Ok((status::TOO_EARLY, end));
        }
        let mut failed = Vec::new();
        for (index, (source, https)) in self.sources.iter().zip(clients).enumerate() {
            if !source.limited_for(SystemTime::now()).is_zero() {
                continue;
            }
            let replaced = current.as_ref().filter(|current| current.source == index);
            let id = replaced.and_then(|current| current.id.clone());
            let error = match self.order(source, id, https, link).await {
                Ok(next) => {
                    let end = AttemptEnd::new(next, AttemptOutcome::Issued, None);
                    return Ok((status::DONE, end));
                }
                Err(error) => error,
            };
            let authority = &source.authority;
            if self.sources.len() > 1 {
                warn!(
                    domain = %self.domain,
                    ?authority,
                    error = format!("{error:#}"),
                    "this authority issues no certificate"
                );
            }
            self.note_limit(source, https, &error);
            failed.push(format!("{authority:?}: {error:#}"));
        }
        Err(anyhow!(failed.join("; ")))
    }

    /// Notes how long the authority wants no requests for the domain, if it has said so.
    fn note_limit(&self, source: &AttemptFiles, https: &Https, error: &anyhow::Error) {
        let is_limited = order::is_about(error, order::RATE_LIMITED);
        let wait = https.timing().wait.max(order::wait_of(error));
        let wait = wait.or(is_limited.then_some(USUAL_LIMIT));
        let Some(wait) = wait.filter(|wait| !wait.is_zero()) else {
            return;
        };
        warn!(
            domain = %self.domain,
            authority = ?source.authority,
            minutes = wait.as_secs().div_ceil(60),
            "the authority asks to wait before the next attempt"
        );
        // If it is not stored, the next attempt is too early, and the authority says so again.
        if let Err(error) = source.limit(wait) {
            warn!(
                error = format!("{error:#}"),
                "cannot store how long to wait"
            );
        }
    }

    /// How long no authority wants requests for the domain.
    fn limited(&self) -> Duration {
        let now = SystemTime::now();
        let left = self.sources.iter().map(|source| source.limited_for(now));
        left.min().unwrap_or_default()
    }

    /// The end of an attempt that earlier ones forbid.
    fn too_early(&self) -> Option<AttemptEnd> {
        let (failures, limited) = (self.left(), self.limited());
        let next = failures.max(limited);
        if next.is_zero() {
            return None;
        }
        let (domain, next_attempt_in_minutes) = (&self.domain, next.as_secs().div_ceil(60));
        let why = match limited >= failures {
            true => {
                info!(
                    %domain,
                    next_attempt_in_minutes,
                    "no attempt to get a certificate, because the authority asks to wait"
                );
                "the authority asks to wait"
            }
            false => {
                info!(
                    %domain,
                    next_attempt_in_minutes,
                    "no attempt to get a certificate, because earlier ones have failed"
                );
                "earlier attempts have failed; the log has the reason"
            }
        };
        let outcome = AttemptOutcome::NotAttempted;
        Some(AttemptEnd::new(next, outcome, Some(why.into())))
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
        let read = |(source, files): (usize, &AttemptFiles)| {
            let (served, id) = files.current(&self.domain)?;
            Some(CurrentCertificate { source, served, id })
        };
        let all = self.sources.iter().enumerate().filter_map(read);
        all.max_by_key(|current| current.served.ends())
    }

    /// The time until the certificate must be renewed, or checked again. Zero for now. The
    /// authority's clock decides if it is known: by a wrong one, certificates seem to be due at
    /// once, or never.
    async fn until_renewal(&self, current: &CurrentCertificate, https: &Https) -> Duration {
        let source = &self.sources[current.source];
        let window = self.window(source, current.id.as_ref(), https).await;
        let now = https.timing().clock.correct(SystemTime::now());
        let validity = current.served.validity();
        match window {
            Ok(Some(window)) => {
                let random = RandomState::new().hash_one(0) >> 32;
                let part = random as f64 / f64::from(u32::MAX);
                validity.until_suggested(&window, part, now)
            }
            Ok(None) => validity.until_check(now),
            Err(error) => {
                let error = format!("{error:#}");
                debug!(domain = %self.domain, error, "no time of renewal from the authority");
                validity.until_check(now)
            }
        }
    }

    /// When the authority suggests to renew. None if it does not say.
    async fn window(
        &self,
        source: &AttemptFiles,
        id: Option<&CertificateIdentifier<'_>>,
        https: &Https,
    ) -> anyhow::Result<Option<RenewalWindow>> {
        let Some(credentials) = source.credentials() else {
            return Ok(None);
        };
        let builder = Account::builder_with_http(Box::new(https.clone()));
        // Its clock is known from then on.
        let account = builder.from_credentials(credentials).await?;
        let Some(id) = id else {
            return Ok(None);
        };
        match account.renewal_info(id).await {
            Ok((info, again)) => {
                let window = info.suggested_window;
                Ok(Some(RenewalWindow {
                    start: window.start.into(),
                    end: window.end.into(),
                    again,
                }))
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
                Ok(issued) => return self.take(source, https, &issued),
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
    fn take(
        &self,
        source: &AttemptFiles,
        https: &Https,
        issued: &Issued,
    ) -> anyhow::Result<Duration> {
        let text = format!("{}\n{}", issued.key.trim_end(), issued.chain);
        let (served, _) = check(&text, &self.domain).context("it cannot be used")?;
        fill(&source.new_certificate, text.as_bytes())?;
        info!(
            domain = %self.domain,
            authority = ?source.authority,
            ends = %httpdate::fmt_http_date(served.ends()),
            "certificate obtained"
        );
        let now = https.timing().clock.correct(SystemTime::now());
        let next = served.validity().until_check(now);
        ensure!(
            !next.is_zero(),
            "the new certificate is valid from {} to {}, so it had to be renewed at once; check \
             the clock of this machine",
            httpdate::fmt_http_date(served.begins()),
            httpdate::fmt_http_date(served.ends())
        );
        Ok(next)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
