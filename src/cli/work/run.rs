//! Runs the queues until a signal stops them: boots PHP, opens brokers, reloads and drains.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::open::{self, Booted};
use super::{WorkPart, memory_trim, revalidation, stdout};
use crate::cli::stop_signals::StopSignals;
use crate::config::reread::ConfigOrigin;
use crate::engine::{Change, Engine, Pending};
use crate::fronts::admin::{self, Admin, SiteEngines};
use crate::fronts::queue::backoff;
use crate::fronts::queue::crash_counts::CrashCounts;
use crate::fronts::queue::front::{self, Front, Interrupted};
use crate::keeper::Client;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::reopen::{Logs, SiteLogs};
use crate::observe::status::SiteStatus;

/// The process that runs the queues.
pub enum Host {
    /// `surus work`, which ends when something fails at its start.
    Own,
    /// A process of the keeper, which reopens its logs.
    Keeper(Arc<Client>),
    /// That of `surus serve`, which reopens its logs, and may end the queues.
    Server(CancellationToken),
}

impl Host {
    /// Returns when the queues must end without a signal.
    async fn ended(&self) {
        match self {
            Host::Own => std::future::pending().await,
            Host::Keeper(keeper) => keeper.lost().await,
            Host::Server(end) => end.cancelled().await,
        }
    }
}

/// What the admin listener shows and reloads.
#[derive(Default)]
struct State {
    engines: Vec<Arc<dyn Engine>>,
    fronts: Vec<Arc<Front>>,
    /// Why no jobs run.
    error: Option<String>,
}

type Shared = Arc<Mutex<State>>;

/// Queues that ran this long did not fail at their start.
const SETTLED: Duration = Duration::from_secs(60);

/// Runs jobs until a signal, then lets them finish. In [`Host::Own`], what fails at the start ends
/// it; otherwise it is tried again.
pub async fn run(part: WorkPart, host: Host) -> anyhow::Result<()> {
    let mut stop_signals = StopSignals::listen()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut usr1 = signal(SignalKind::user_defined1())?;
    let mut usr2 = signal(SignalKind::user_defined2())?;
    let logs = Logs::remember(SiteLogs::default());
    let metrics = Arc::new(Metrics::default());
    let state = Shared::default();
    set(&state, |state| {
        state.error = Some("the queues are starting".into());
    });
    let reload = {
        let state = state.clone();
        Arc::new(move || reload(&state))
    };
    let reload_on_request = {
        let (state, origin) = (state.clone(), part.origin.clone());
        Arc::new(move || requested_reload(&state, &origin))
    };
    let bound = part.admin.context("there is no admin listener")?;
    let admin_listener = bound.listen()?;
    let admin = Arc::new(Admin {
        project: part.project.clone(),
        sites: {
            let state = state.clone();
            Arc::new(move || vec![site(&state)])
        },
        queues: {
            let state = state.clone();
            Arc::new(move || get(&state, |state| state.fronts.clone()))
        },
        metrics: metrics.clone(),
        draining: AtomicBool::new(false),
        dashboard: Arc::default(),
        reload: {
            let reload_on_request = reload_on_request.clone();
            Box::new(move || reload_on_request())
        },
    });
    info!(address = admin_listener.name(), "admin listener");
    let admin_task = tokio::spawn(admin::run(admin_listener, admin.clone()));
    if !matches!(host, Host::Server(_)) {
        tokio::spawn(memory_trim::run(metrics.clone()));
    }
    let stop = CancellationToken::new();
    let kept = part.crash_counts;
    let file = kept.as_ref().map(|kept| kept.file.try_clone());
    let crash_counts = Arc::new(CrashCounts::read(file.transpose()?));
    let driven = tokio::spawn(drive(
        Started {
            project: part.project,
            config: part.config,
            groups: part.groups,
            metrics,
            state: state.clone(),
            crash_counts: crash_counts.clone(),
            tries_again: !matches!(host, Host::Own),
            stop: stop.clone(),
        },
        reload.clone(),
    ));
    tokio::pin!(driven);
    let ended = loop {
        let start_reload = || {
            let reload = reload_on_request();
            tokio::spawn(async move {
                if let Err(error) = reload.await {
                    error!(error = format!("{error:#}"), "the reload failed");
                }
            });
        };
        tokio::select! {
            _ = hangup.recv() => start_reload(),
            _ = usr2.recv() => start_reload(),
            _ = usr1.recv(), if matches!(host, Host::Own) => {
                if let Err(error) = logs.reopen() {
                    warn!(%error, "cannot reopen the logs");
                }
            }
            () = stop_signals.recv() => break None,
            () = host.ended() => break None,
            ended = &mut driven => break Some(ended),
        }
    };
    stop_signals.has_begun();
    admin.draining.store(true, Ordering::Release);
    crash_counts.end();
    stop.cancel();
    let ended = match ended {
        Some(ended) => Some(ended),
        None => {
            info!("shutting down: running jobs finish; a second signal exits immediately");
            tokio::select! {
                ended = &mut driven => Some(ended),
                () = stop_signals.recv() => {
                    warn!("second signal received; exiting immediately");
                    driven.abort();
                    None
                }
            }
        }
    };
    admin_task.abort();
    let _ = admin_task.await;
    drop((admin, reload));
    // With the last engine, PHP's processes end.
    set(&state, |state| *state = State::default());
    let interrupted = match ended {
        Some(ended) => ended.context("the queues failed")??,
        None => Vec::new(),
    };
    for left in interrupted {
        left.release().await;
    }
    crash_counts.close();
    Ok(())
}

/// What [`drive`] starts with.
struct Started {
    project: PathBuf,
    config: crate::config::Config,
    groups: Vec<super::queues::Group>,
    metrics: Arc<Metrics>,
    state: Shared,
    crash_counts: Arc<CrashCounts>,
    tries_again: bool,
    stop: CancellationToken,
}

/// Boots PHP, opens the brokers, and runs jobs until the end. Returns what could not finish.
async fn drive(
    of: Started,
    reload: Arc<impl Fn() -> Pending<'static, anyhow::Result<()>> + Send + Sync + 'static>,
) -> anyhow::Result<Vec<Interrupted>> {
    let boot = || open::boot(&of.project, &of.config, &of.groups, &of.metrics);
    let Some(booted) = again(&of, boot).await? else {
        return Ok(Vec::new());
    };
    let engines: Vec<Arc<dyn Engine>> = booted
        .iter()
        .filter_map(|(_, runner)| Some(runner.as_ref()?.engine.clone()))
        .collect();
    set(&of.state, |state| state.engines = engines.clone());
    // Queues serve no files.
    let moved = |_| -> Pending<'static, Change> { Box::pin(std::future::pending()) };
    let revalidation = revalidation::run(engines, moved, move || reload());
    let mut ended = std::pin::pin!(open_and_run(&of, &booted));
    tokio::select! {
        ended = &mut ended => ended,
        () = revalidation => ended.await,
    }
}

/// Runs the jobs of booted groups, again if the queues fail.
async fn open_and_run(of: &Started, booted: &Booted) -> anyhow::Result<Vec<Interrupted>> {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let open = || {
            open::open(
                &of.project,
                &of.config,
                booted,
                &of.metrics,
                &of.crash_counts,
            )
        };
        let Some(fronts) = again(of, open).await? else {
            return Ok(Vec::new());
        };
        set(&of.state, |state| {
            state.fronts = fronts.clone();
            state.error = None;
        });
        let error = match run_fronts(fronts, of).await {
            Ok(interrupted) => return Ok(interrupted),
            Err(error) if !of.tries_again => return Err(error),
            Err(error) => format!("{error:#}"),
        };
        error!(error, "the queues failed; starting them again");
        set(&of.state, |state| {
            state.fronts.clear();
            state.error = Some(error);
        });
        failures = match began.elapsed() > SETTLED {
            true => 1,
            false => failures + 1,
        };
        tokio::select! {
            () = tokio::time::sleep(backoff::pause(failures)) => {}
            () = of.stop.cancelled() => {}
        }
    }
}

/// Tries until it succeeds, with growing pauses. None if the queues end before.
async fn again<T, F>(of: &Started, attempt: impl Fn() -> F) -> anyhow::Result<Option<T>>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let mut reported = None;
    for failures in 1.. {
        let error = tokio::select! {
            result = attempt() => match result {
                Ok(done) => return Ok(Some(done)),
                Err(error) if !of.tries_again => return Err(error),
                Err(error) => format!("{error:#}"),
            },
            () = of.stop.cancelled() => return Ok(None),
        };
        // PHP may have printed times and ids of processes.
        let reason = error.replace(|char: char| char.is_ascii_digit(), "");
        if reported.as_ref() != Some(&reason) {
            error!(error, "the queues cannot be started; trying again");
            reported = Some(reason);
        }
        set(&of.state, |state| state.error = Some(error));
        tokio::select! {
            () = tokio::time::sleep(backoff::pause(failures)) => {}
            () = of.stop.cancelled() => return Ok(None),
        }
    }
    Ok(None)
}

async fn run_fronts(fronts: Vec<Arc<Front>>, of: &Started) -> anyhow::Result<Vec<Interrupted>> {
    log::has_started();
    let mut running = JoinSet::new();
    for front in fronts {
        for consumer in &front.consumers {
            let (queue, weight) = (&consumer.queue.name, consumer.queue.weight);
            match of.tries_again {
                // stdout is the access log of `surus serve`.
                true => info!(queue, weight, "working on a queue"),
                false => {
                    stdout::announce(format_args!("working on queue {queue} (weight {weight})"));
                }
            }
        }
        running.spawn(front::run(front, of.stop.clone()));
    }
    let mut interrupted = Vec::new();
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(left) => interrupted.push(left),
            Err(error) if of.stop.is_cancelled() => {
                error!(%error, "the front end of a queue failed");
            }
            Err(error) => return Err(error).context("the front end of a queue failed"),
        }
    }
    // Without any queue there is nothing to do but wait.
    of.stop.cancelled().await;
    Ok(interrupted)
}

/// The reload that an operator asks for. Fails if the configuration of jobs has changed since the
/// start.
fn requested_reload(
    state: &Shared,
    origin: &Option<Arc<ConfigOrigin>>,
) -> Pending<'static, anyhow::Result<()>> {
    let (state, origin) = (state.clone(), origin.clone());
    Box::pin(async move {
        if let Some(origin) = origin {
            tokio::task::spawn_blocking(move || origin.check_for_work()).await??;
        }
        reload(&state).await
    })
}

/// Boots all engines again, and switches if all have booted.
fn reload(state: &Shared) -> Pending<'static, anyhow::Result<()>> {
    let state = state.clone();
    Box::pin(async move {
        let (engines, error) = get(&state, |state| (state.engines.clone(), state.error.clone()));
        if let Some(error) = error.filter(|_| engines.is_empty()) {
            bail!("no jobs run yet: {error}");
        }
        let mut prepared = Vec::new();
        for engine in &engines {
            prepared.push(engine.prepare().await?);
        }
        for prepared in prepared {
            prepared.change_over()?;
        }
        info!("reloaded");
        Ok(())
    })
}

fn site(state: &Shared) -> SiteEngines {
    get(state, |state| SiteEngines {
        status: SiteStatus {
            is_queues: true,
            error: state.error.clone(),
            ..SiteStatus::default()
        },
        engines: state.engines.clone(),
    })
}

fn get<T>(state: &Shared, read: impl FnOnce(&State) -> T) -> T {
    read(&state.lock().unwrap_or_else(PoisonError::into_inner))
}

fn set(state: &Shared, change: impl FnOnce(&mut State)) {
    change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
}
