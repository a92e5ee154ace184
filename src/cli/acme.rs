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
use crate::fronts::http::tls::acme::schedule::storing_pause;
use crate::fronts::http::tls::acme::unstored::Unstored;
use crate::fronts::http::tls::watch;
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
    unstored: &Arc<Unstored>,
) -> anyhow::Result<Attempt> {
    let tls = &config.tls;
    // Authorities have no certificate.
    let is_open = !tls.requires_client_certificate();
    let is_tcp = |address: &Address| matches!(address, Address::Tcp(_));
    let challenges = Challenges {
        http: config.http.listen.iter().any(is_tcp),
        tls: is_open && !tls.listen.is_empty(),
    };
    let domain = domain.into();
    Attempt::prepare(
        &config.acme,
        project,
        domain,
        challenges,
        is_asked,
        unstored,
    )
}

/// Keeps the certificates of the configuration in use valid.
pub(super) struct Renewals {
    pub project: PathBuf,
    pub keeper: Option<Arc<Client>>,
    pub tls: Option<Arc<Tls>>,
    /// Repeats failed attempts at once.
    pub repeat: Arc<Notify>,
    pub metrics: Arc<Metrics>,
    /// What this process could not store. The keeper has its own.
    pub unstored: Arc<Unstored>,
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
        // Only a restart opens a listener for HTTPS.
        let Some(tls) = self.tls.clone() else {
            return;
        };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let before = running.take().map(|before| {
            before.stop.cancel();
            before.task
        });
        let stop = CancellationToken::new();
        let host = Host {
            project: self.project.clone(),
            config: config.clone(),
            keeper: self.keeper.clone(),
            tls,
            metrics: self.metrics.clone(),
            unstored: self.unstored.clone(),
            stop: stop.clone(),
        };
        let renewals = host.run(self.repeat.clone());
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

/// What an attempt needs.
struct Host {
    project: PathBuf,
    config: Config,
    keeper: Option<Arc<Client>>,
    tls: Arc<Tls>,
    metrics: Arc<Metrics>,
    unstored: Arc<Unstored>,
    stop: CancellationToken,
}

/// A domain whose certificate is checked at a time.
struct Due {
    domain: u16,
    at: Instant,
    /// How often in a row its certificate could not be stored.
    unstored: u32,
}

impl Host {
    /// Runs until `stop` is cancelled. `repeat` repeats failed attempts at once.
    async fn run(self, repeat: Arc<Notify>) {
        let domains = &self.config.acme.domains;
        let names: BTreeSet<_> = domains.iter().map(ToString::to_string).collect();
        self.metrics.acme.retain(&names);
        // Local domains need no attempts: this machine's own authority certifies them
        // (`tls::read_renewed`).
        let public = (0..).zip(domains).filter(|(_, it)| !it.is_local());
        let mut all = Vec::new();
        for (domain, name) in public {
            self.metrics.acme.expect(&name.to_string());
            all.push(Due {
                domain,
                at: Instant::now(),
                unstored: 0,
            });
        }
        let mut is_asked = false;
        loop {
            for due in &mut all {
                if due.at <= Instant::now() {
                    let Some(pause) = self.attempt(due, is_asked).await else {
                        return;
                    };
                    due.at = Instant::now() + pause;
                }
            }
            let Some(next) = all.iter().map(|due| due.at).min() else {
                return;
            };
            is_asked = tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep_until(next) => false,
                () = repeat.notified() => {
                    all.iter_mut().for_each(|due| due.at = Instant::now());
                    true
                }
                // Attempts decide by the authority's clock whether a certificate is due.
                () = self.tls.clock_moved.notified() => {
                    all.iter_mut().for_each(|due| due.at = Instant::now());
                    false
                }
            };
        }
    }

    /// Runs one attempt. Returns the time to the next one; None if there is none.
    async fn attempt(&self, due: &mut Due, is_asked: bool) -> Option<Duration> {
        let done = self.start(due.domain, is_asked).await;
        self.tls.answers.withdraw();
        if self.stop.is_cancelled() {
            return None;
        }
        let name = self.config.acme.domains.get(usize::from(due.domain));
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
        let unstored = self.tls.unstored(&name);
        let end = match &unstored {
            Some(why) => {
                due.unstored = due.unstored.saturating_add(1);
                self.metrics.acme.store_failed(&name);
                unstored_end(&name, done, why, due.unstored)
            }
            None => {
                due.unstored = 0;
                let is_served = reloaded.ok().map(|()| self.has_certificate(&name));
                stored_end(&name, done, is_served)
            }
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let acme = &self.metrics.acme;
        let status = AcmeStatus {
            domain: name.clone(),
            next: (now.unwrap_or_default() + end.next).as_secs(),
            reason: end.reason.map(|text| printable(&text).into_owned()),
            is_unstored: unstored.is_some(),
        };
        match end.outcome {
            AttemptOutcome::NotAttempted if unstored.is_none() => acme.set_next(status),
            _ => acme.set_last(status),
        }
        match end.outcome {
            AttemptOutcome::NotAttempted => {}
            outcome => {
                let is_issued = outcome == AttemptOutcome::Issued;
                self.metrics.acme.attempted(&name, is_issued);
            }
        }
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
            let (project, config) = (&self.project, &self.config);
            let attempt = prepare(project, config, domain, is_asked, &self.unstored)?;
            let run = async { tokio::join!(attempt.run(theirs), listen) };
            let (status, listened) = tokio::select! {
                ended = run => ended,
                () = self.stop.cancelled() => bail!(STOPPED),
            };
            attempt.keep(&config.acme, project, Some(status), false);
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

/// The end of an attempt whose result is stored, as far as is known. `is_served` says whether the
/// domain has a certificate; None if they cannot be reloaded. An issued certificate that is neither
/// stored nor served counts as failed: otherwise the domain would have none for half a day.
fn stored_end(
    domain: &str,
    done: anyhow::Result<AttemptEnd>,
    is_served: Option<bool>,
) -> AttemptEnd {
    let failed = |why| AttemptEnd::new(PAUSE, AttemptOutcome::Failed, Some(why));
    match done {
        Ok(end) if end.outcome == AttemptOutcome::Issued => match is_served {
            Some(true) => end,
            Some(false) => failed("the certificate was issued and is lost (acme.directory)".into()),
            // The next attempt stores it if that has failed.
            None => AttemptEnd { next: PAUSE, ..end },
        },
        Ok(end) => end,
        Err(error) => {
            let error = format!("{error:#}");
            error!(
                domain,
                next_attempt_in_minutes = PAUSE.as_secs() / 60,
                error,
                "cannot start to get a certificate"
            );
            failed(error)
        }
    }
}

/// The end of an attempt whose certificate is served from memory, because it cannot be stored, for
/// the given number of times in a row. The next attempt stores it before it does anything else.
fn unstored_end(
    domain: &str,
    done: anyhow::Result<AttemptEnd>,
    why: &str,
    failures: u32,
) -> AttemptEnd {
    let next = storing_pause(failures);
    let outcome = match done {
        // The owner of the store has logged it.
        Ok(end) => end.outcome,
        Err(error) => {
            let error = format!("{error:#}");
            error!(
                domain,
                next_attempt_in_minutes = next.as_secs() / 60,
                error,
                "no attempt to get a certificate, and the one in use is in memory only"
            );
            AttemptOutcome::NotAttempted
        }
    };
    AttemptEnd::new(next, outcome, Some(why.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86400);

    fn end(outcome: AttemptOutcome) -> anyhow::Result<AttemptEnd> {
        Ok(AttemptEnd::new(DAY, outcome, None))
    }

    #[test]
    fn attempt_whose_certificate_is_lost_has_failed_and_is_repeated_soon() {
        let lost = stored_end("a.example", end(AttemptOutcome::Issued), Some(false));
        assert_eq!((lost.outcome, lost.next), (AttemptOutcome::Failed, PAUSE));
        assert!(lost.reason.unwrap().contains("acme.directory"));
        for (outcome, is_served, next) in [
            (AttemptOutcome::Issued, Some(true), DAY),
            // Nothing says whether it is stored.
            (AttemptOutcome::Issued, None, PAUSE),
            (AttemptOutcome::NotAttempted, Some(false), DAY),
            (AttemptOutcome::Failed, Some(false), DAY),
        ] {
            let kept = stored_end("a.example", end(outcome), is_served);
            assert_eq!((kept.outcome, kept.next), (outcome, next), "{is_served:?}");
        }
        let started = stored_end("a.example", Err(anyhow!("no socket")), Some(true));
        assert_eq!(started.outcome, AttemptOutcome::Failed);
        assert_eq!(started.reason.unwrap(), "no socket");
    }

    #[test]
    fn certificate_that_is_not_stored_counts_as_issued_once_and_is_stored_again_soon() {
        let minutes = |number: u64| Duration::from_secs(60 * number);
        let first = unstored_end("a.example", end(AttemptOutcome::Issued), "full", 1);
        assert_eq!(first.outcome, AttemptOutcome::Issued);
        assert_eq!(
            (first.next, first.reason.unwrap()),
            (minutes(1), "full".to_owned())
        );
        for (failures, pause) in [(2, 5), (3, 15), (100, 15)] {
            let error = Err(anyhow!("no socket"));
            let again = unstored_end("a.example", error, "full", failures);
            assert_eq!(again.outcome, AttemptOutcome::NotAttempted);
            assert_eq!(again.next, minutes(pause));
            assert_eq!(again.reason.unwrap(), "full");
        }
    }
}
