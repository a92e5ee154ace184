//! Makes queues of schedules: those of `surus.toml`, and that of a Laravel application.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tracing::info;

use crate::fronts::queue::command::Program;
use crate::fronts::queue::front::Consumer;
use crate::fronts::queue::runner::{JobProgram, Runner};
use crate::fronts::queue::source::Source;
use crate::fronts::queue::{Format, Queue, Schedule};

/// Leases mean nothing here: nothing else takes these jobs.
const LEASE: Duration = Duration::from_secs(90);
/// The name of the queue of a Laravel application's schedule.
pub const LARAVEL: &str = "schedule";
/// The time limit of an event of Laravel's schedule.
const LIMIT: u64 = 24 * 3600;

/// Checks what can be checked before PHP boots.
pub fn check(schedules: &[Schedule]) -> anyhow::Result<()> {
    for (at, entry) in schedules.iter().enumerate() {
        let name = &entry.name;
        ensure!(
            !name.is_empty(),
            "the {}. [[schedule]] has no schedule.name",
            at + 1
        );
        ensure!(
            !schedules[..at].iter().any(|other| other.name == *name),
            "two [[schedule]] have the name {name}"
        );
        ensure!(
            entry.handler.is_some() == entry.command.is_empty(),
            "schedule {name}: name either a PHP file in schedule.handler or a schedule.command"
        );
        timetable(entry)?;
    }
    Ok(())
}

/// The queue of an entry. Without a runner it runs a command.
pub fn consumer(
    entry: Schedule,
    project: &Path,
    runner: Option<&Arc<Runner>>,
) -> anyhow::Result<Consumer> {
    let source = timetable(&entry)?;
    let runs = match runner {
        Some(runner) => JobProgram::Php(runner.clone()),
        None => JobProgram::Command(Program {
            words: entry.command.clone(),
            directory: project.into(),
        }),
    };
    info!(name = entry.name, cron = entry.cron, "schedule entry read");
    Ok(Consumer {
        queue: entry.queue(),
        connection: String::new(),
        source,
        lease: LEASE,
        runs,
    })
}

/// The queue of the application's own schedule.
pub fn of_laravel(runner: &Arc<Runner>) -> anyhow::Result<Consumer> {
    Ok(Consumer {
        queue: Queue {
            name: LARAVEL.into(),
            format: Some(Format::Plain),
            timeout: crate::units::Time::seconds(LIMIT),
            tries: Some(1),
            ..Queue::default()
        },
        connection: String::new(),
        source: laravel_source(runner)?,
        lease: LEASE,
        runs: JobProgram::Php(runner.clone()),
    })
}

#[cfg(feature = "schedule")]
fn timetable(entry: &Schedule) -> anyhow::Result<Arc<dyn Source>> {
    use crate::fronts::queue::sources::schedule::{ScheduleEntry, Timetable};
    use anyhow::Context;
    let now = jiff::Timestamp::now();
    let timetable = Timetable::new(&entry.cron, entry.timezone.as_deref(), now);
    let timetable = timetable.with_context(|| format!("schedule {}", entry.name))?;
    Ok(Arc::new(ScheduleEntry::new(&entry.name, timetable)))
}

#[cfg(feature = "schedule")]
fn laravel_source(runner: &Arc<Runner>) -> anyhow::Result<Arc<dyn Source>> {
    use crate::fronts::queue::sources::schedule::LaravelSchedule;
    Ok(Arc::new(LaravelSchedule::new(runner.clone())))
}

#[cfg(not(feature = "schedule"))]
fn timetable(_: &Schedule) -> anyhow::Result<Arc<dyn Source>> {
    anyhow::bail!("this surus is built without schedules; build it with the feature `schedule`")
}

#[cfg(not(feature = "schedule"))]
fn laravel_source(_: &Arc<Runner>) -> anyhow::Result<Arc<dyn Source>> {
    anyhow::bail!("this surus is built without schedules; build it with the feature `schedule`")
}
