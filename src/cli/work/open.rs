//! Boots the PHP of all groups of queues, and opens the brokers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::watch;
use tracing::info;

use super::brokers::Brokers;
use super::queues::{self, Group};
use super::{describe, laravel, messenger, schedules};
use crate::config::Config;
use crate::fronts::queue::crash_counts::CrashCounts;
use crate::fronts::queue::front::{Consumer, Front};
use crate::fronts::queue::runner::Runner;
use crate::fronts::queue::{Format, Queue};
use crate::observe::metrics::Metrics;

/// Groups whose PHP has booted. Those that run commands have no runner.
pub type Booted = Vec<(Group, Option<Arc<Runner>>)>;

/// Boots PHP for all queues.
pub async fn boot(
    project: &Path,
    config: &Config,
    groups: &[Group],
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Booted> {
    let mut booted = Vec::new();
    for group in groups {
        // One for questions, such as which events are due: long jobs may take all others.
        let workers = group.workers + usize::from(group.is_asked());
        let runner = match &group.php {
            Some(php) => Some(queues::boot(project, config, php, workers, metrics).await?),
            None => None,
        };
        booted.push((group.clone(), runner.map(Arc::new)));
    }
    Ok(booted)
}

/// Opens the brokers of all queues.
pub async fn open(
    project: &Path,
    config: &Config,
    groups: &Booted,
    metrics: &Arc<Metrics>,
    crash_counts: &Arc<CrashCounts>,
) -> anyhow::Result<Vec<Arc<Front>>> {
    let mut brokers = Brokers::new(project, &config.work);
    let mut fronts = Vec::new();
    for (group, runner) in groups {
        let consumers = match runner {
            None => {
                let entries = group.schedules.iter().cloned();
                let consumers = entries.map(|entry| schedules::consumer(entry, project, None));
                consumers.collect::<anyhow::Result<_>>()?
            }
            Some(runner) => consumers(project, config, &mut brokers, runner, group.clone()).await?,
        };
        let paused = vec![false; consumers.len()];
        let flags = || -> Vec<AtomicBool> {
            let all = consumers.iter();
            all.map(|_| AtomicBool::new(false)).collect()
        };
        let (unsettled, resting) = (flags(), flags());
        fronts.push(Arc::new(Front {
            workers: group.workers,
            consumers,
            settings: config.work.clone(),
            metrics: metrics.clone(),
            suspects: Default::default(),
            crash_counts: crash_counts.clone(),
            unsettled,
            paused: watch::Sender::new(paused),
            resting,
        }));
    }
    Ok(fronts)
}

/// Opens the queues that the same PHP workers serve.
async fn consumers(
    project: &Path,
    config: &Config,
    brokers: &mut Brokers,
    runner: &Arc<Runner>,
    group: Group,
) -> anyhow::Result<Vec<Consumer>> {
    let mut consumers: Vec<Consumer> = Vec::new();
    brokers.workers = group.workers;
    let is_laravel = |queue: &Queue| queue.format() == Format::Laravel;
    let is_sync = |application: &laravel::LaravelApplication| application.driver == "sync";
    let application = match group.queues.iter().any(is_laravel) {
        true => Some(describe::ask(runner).await?),
        false => None,
    };
    let is_messenger = |queue: &Queue| queue.format() == Format::Messenger;
    let messenger: Option<messenger::Messenger> = match group.queues.iter().any(is_messenger) {
        true => Some(describe::ask(runner).await?),
        false => None,
    };
    let has_schedules = config.work.schedule || !config.schedule.is_empty();
    for queue in group.queues {
        if let Some(messenger) = messenger.as_ref().filter(|_| is_messenger(&queue)) {
            for (queue, transport) in messenger.chosen(queue)? {
                consumers.push(brokers.transport(queue, transport, runner).await?);
            }
            continue;
        }
        if has_schedules && queue.name.is_empty() && application.as_ref().is_some_and(is_sync) {
            info!("no queue is served: the application runs its jobs itself (QUEUE_CONNECTION)");
            continue;
        }
        let opened = brokers.consumer(queue, application.as_ref(), runner).await;
        consumers.push(opened?);
    }
    for entry in group.schedules {
        consumers.push(schedules::consumer(entry, project, Some(runner))?);
    }
    if group.is_schedule_of_laravel {
        consumers.push(schedules::of_laravel(runner)?);
    }
    let status = runner.engine.status();
    info!(
        php = status.php,
        workers = group.workers,
        queues = consumers.len(),
        "PHP is ready"
    );
    Ok(consumers)
}
