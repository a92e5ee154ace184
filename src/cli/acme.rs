//! Keeps the certificates of `acme.domains` valid: starts an attempt for each domain when one is
//! due, and answers the authority for it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{anyhow, bail};
use rustls::crypto::ring;
use surus_sys::seqpacket::Seqpacket;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::config::Config;
use crate::fronts::address::Address;
use crate::fronts::http::Tls;
use crate::fronts::http::tls::acme::attempt::{Attempt, Challenges};
use crate::fronts::http::tls::acme::link::{
    AttemptEnd, AttemptLink, AttemptMessage, AttemptOutcome,
};
use crate::fronts::http::tls::{ClientCertificate, watch};
use crate::keeper::Client;
use crate::launcher::{Launcher, ProcessSignal};
use crate::observe::metrics::Metrics;
use crate::observe::printable::printable;
use crate::observe::status::AcmeStatus;

/// The pause after an attempt that has not said when the next one is useful.
const PAUSE: Duration = Duration::from_secs(300);

/// An attempt's own limit is shorter (`TIMEOUT` in `attempt.rs`).
const JOB_TIMEOUT: Duration = Duration::from_secs(900);

/// Why an attempt ends early.
const STOPPED: &str = "the settings of the attempt are no longer in use";

/// In the process that owns the state directory.
pub(super) fn prepare(
    project: &Path,
    config: &Config,
    domain: u16,
    is_asked: bool,
) -> anyhow::Result<Attempt> {
    let tls = &config.tls;
    // Authorities have no certificate.
    let is_open = tls.client_ca.is_none() || tls.client_certificate == ClientCertificate::Optional;
    let is_tcp = |address: &Address| matches!(address, Address::Tcp(_));
    let challenges = Challenges {
        http: config.http.listen.iter().any(is_tcp),
        tls: is_open && !tls.listen.is_empty(),
    };
    Attempt::prepare(&config.acme, project, domain.into(), challenges, is_asked)
}

/// Keeps the certificates of the configuration in use valid.
pub(super) struct Renewals {
    pub project: PathBuf,
    pub keeper: Option<Arc<Client>>,
    pub tls: Option<Arc<Tls>>,
    /// Repeats failed attempts at once.
    pub repeat: Arc<Notify>,
    pub metrics: Arc<Metrics>,
    pub running: Mutex<Option<RunningRenewals>>,
}

/// The task of a configuration.
pub(super) struct RunningRenewals {
    /// Cancelled when the task must end.
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Renewals {
    /// Begins with the domains of a configuration, once the task of another one has ended: two
    /// attempts at once would fail.
    pub fn start(&self, config: &Config) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let before = running.take().map(|before| {
            before.stop.cancel();
            before.task
        });
        let stop = CancellationToken::new();
        let renewals = run(
            self.project.clone(),
            config.clone(),
            self.keeper.clone(),
            self.tls.clone(),
            self.repeat.clone(),
            self.metrics.clone(),
            stop.clone(),
        );
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                // An error says that it has panicked.
                let _ = before.await;
            }
            renewals.await;
        });
        *running = Some(RunningRenewals { stop, task });
    }
}

/// Runs until `stop` is cancelled. `repeat` repeats failed attempts at once.
async fn run(
    project: PathBuf,
    config: Config,
    keeper: Option<Arc<Client>>,
    tls: Option<Arc<Tls>>,
    repeat: Arc<Notify>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let names: BTreeSet<_> = config
        .acme
        .domains
        .iter()
        .map(ToString::to_string)
        .collect();
    metrics.acme.retain(&names);
    let (Some(tls), false) = (tls, config.acme.domains.is_empty()) else {
        return;
    };
    let host = Host {
        project,
        config,
        keeper,
        tls,
        metrics,
        stop,
    };
    // Local domains need no attempts: this machine's own authority certifies them
    // (`tls::read_renewed`).
    let public = (0..)
        .zip(&host.config.acme.domains)
        .filter(|(_, it)| !it.is_local());
    let mut due: Vec<(u16, Instant)> = Vec::new();
    for (domain, name) in public {
        host.metrics.acme.expect(&name.to_string());
        due.push((domain, Instant::now()));
    }
    let mut is_asked = false;
    loop {
        for (domain, due) in &mut due {
            if *due <= Instant::now() {
                let Some(pause) = host.attempt(*domain, is_asked).await else {
                    return;
                };
                *due = Instant::now() + pause;
            }
        }
        let Some(next) = due.iter().map(|(_, due)| *due).min() else {
            return;
        };
        is_asked = tokio::select! {
            () = host.stop.cancelled() => return,
            () = tokio::time::sleep_until(next) => false,
            () = repeat.notified() => {
                due.iter_mut().for_each(|(_, due)| *due = Instant::now());
                true
            }
            // Attempts decide by the authority's clock whether a certificate is due.
            () = host.tls.clock_moved.notified() => {
                due.iter_mut().for_each(|(_, due)| *due = Instant::now());
                false
            }
        };
    }
}

/// What an attempt needs.
struct Host {
    project: PathBuf,
    config: Config,
    keeper: Option<Arc<Client>>,
    tls: Arc<Tls>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
}

impl Host {
    /// Runs one attempt. Returns the time to the next one; None if there is none.
    async fn attempt(&self, domain: u16, is_asked: bool) -> Option<Duration> {
        let done = self.start(domain, is_asked).await;
        self.tls.answers.withdraw();
        if self.stop.is_cancelled() {
            return None;
        }
        let name = self.config.acme.domains.get(usize::from(domain));
        let name = name.map(ToString::to_string).unwrap_or_default();
        let mut reloaded = watch::reload(&self.tls).await;
        if reloaded.is_ok() && !self.has_certificate(&name) {
            // Another source of certificates may have taken over during the first one.
            reloaded = watch::reload(&self.tls).await;
        }
        if let Err(error) = &reloaded {
            warn!(
                error = format!("{error:#}"),
                "cannot reload the certificates; the current ones stay in use"
            );
        }
        let end = done.unwrap_or_else(|error| {
            let error = format!("{error:#}");
            error!(
                domain = name,
                next_attempt_in_minutes = PAUSE.as_secs() / 60,
                error,
                "cannot start to get a certificate"
            );
            AttemptEnd::new(PAUSE, AttemptOutcome::Failed, Some(error))
        });
        let is_missing = reloaded.is_ok() && !self.has_certificate(&name);
        let end = if_stored(end, is_missing);
        match end.outcome {
            AttemptOutcome::NotAttempted => {}
            outcome => {
                let is_issued = outcome == AttemptOutcome::Issued;
                self.metrics.acme.attempted(&name, is_issued);
            }
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.metrics.acme.set_last(AcmeStatus {
            domain: name,
            next: (now.unwrap_or_default() + end.next).as_secs(),
            reason: end.reason.map(|text| printable(&text).into_owned()),
        });
        Some(end.next)
    }

    /// Whether a certificate for the domain is served, though it may have ended.
    fn has_certificate(&self, domain: &str) -> bool {
        let served = self.metrics.certificates();
        let mut names = served.iter().flat_map(|served| &served.names);
        names.any(|name| name == domain)
    }

    async fn start(&self, domain: u16, is_asked: bool) -> anyhow::Result<AttemptEnd> {
        let (ours, theirs) = Seqpacket::blocking_pair()?;
        let link = AttemptLink::new(ours)?;
        let listen = tokio::time::timeout(JOB_TIMEOUT, self.listen(link));
        let Some(keeper) = &self.keeper else {
            let attempt = prepare(&self.project, &self.config, domain, is_asked)?;
            let run = async { tokio::join!(attempt.run(theirs), listen) };
            let (status, listened) = tokio::select! {
                ended = run => ended,
                () = self.stop.cancelled() => bail!(STOPPED),
            };
            attempt.keep(&self.config.acme, &self.project, Some(status), false);
            return listened?;
        };
        let mut process = keeper.acme(domain, is_asked, theirs).await?;
        let listened = tokio::select! {
            listened = listen => listened.unwrap_or_else(|late| Err(late.into())),
            () = self.stop.cancelled() => Err(anyhow!(STOPPED)),
        };
        if listened.is_err() {
            keeper.signal(process.pid(), None, ProcessSignal::KillGroup);
        }
        // The keeper has stored the result by then.
        process.wait().await?;
        listened
    }

    /// Answers the authority until the attempt ends. An attempt that says nothing has failed. An
    /// error ends the attempt, too: it has no front end then.
    async fn listen(&self, link: AttemptLink) -> anyhow::Result<AttemptEnd> {
        let nothing = "the attempt has ended without a reason".to_owned();
        let mut end = AttemptEnd::new(PAUSE, AttemptOutcome::Failed, Some(nothing));
        while let Some(message) = link.next().await? {
            match message {
                AttemptMessage::Answer(answer) => {
                    let provider = ring::default_provider();
                    self.tls.answers.give(&answer, &provider)?;
                    link.confirm().await?;
                }
                AttemptMessage::End(last) => end = last.bounded(),
            }
        }
        Ok(end)
    }
}

/// The end of an attempt. If the domain has no certificate, one that was issued could not be
/// stored, and the attempt has failed: otherwise the domain would have none for half a day.
fn if_stored(end: AttemptEnd, is_missing: bool) -> AttemptEnd {
    if end.outcome != AttemptOutcome::Issued || !is_missing {
        return end;
    }
    let why = "the certificate was issued and could not be stored (acme.directory)";
    AttemptEnd::new(PAUSE, AttemptOutcome::Failed, Some(why.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn attempt_whose_certificate_is_not_stored_has_failed_and_is_repeated_soon() {
        let day = Duration::from_secs(86400);
        let end = |outcome| AttemptEnd::new(day, outcome, None);
        let lost = if_stored(end(AttemptOutcome::Issued), true);
        assert_eq!((lost.outcome, lost.next), (AttemptOutcome::Failed, PAUSE));
        assert!(lost.reason.unwrap().contains("acme.directory"));
        for (outcome, is_missing) in [
            (AttemptOutcome::Issued, false),
            (AttemptOutcome::NotAttempted, true),
            (AttemptOutcome::Failed, true),
        ] {
            let kept = if_stored(end(outcome), is_missing);
            assert_eq!((kept.outcome, kept.next), (outcome, day));
        }
    }
}
