//! Settings of `surus work`: `[work]`, `[[queue]]` and `[[schedule]]`.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use super::rate::JobRate;
use crate::fronts::address::Address;
use crate::units::{self, Size, Time};

/// `[work]`: what all queues share.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Run the queues and schedules in `surus serve`, too.
    pub serve: bool,
    /// Where to listen for health checks, metrics and reloads; a unix socket named after the
    /// project when not set.
    pub admin_listen: Option<Address>,
    /// Serve the queues strictly in their order instead of by weight: a job begins only if all
    /// queues before its own are empty.
    pub strict: bool,
    /// Run the schedule of the Laravel application.
    pub schedule: bool,
    /// How long running jobs may take to finish after SIGTERM.
    pub shutdown_timeout: Time,
    /// A job that has killed or blocked this many workers is buried.
    #[serde(deserialize_with = "losses")]
    pub max_losses: usize,
    /// The longest job that PHP gets, with Messenger's headers. A longer one is buried unread.
    #[serde(deserialize_with = "max_payload")]
    pub max_payload: Size,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            serve: false,
            admin_listen: None,
            strict: false,
            schedule: false,
            shutdown_timeout: Time::seconds(30),
            max_losses: 3,
            max_payload: Size(32 << 20),
        }
    }
}

/// One `[[queue]]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// The queue's name at its broker; of `messenger`, the transport's.
    pub name: String,
    /// The broker: `sqlite:database/database.sqlite`, `sqs:`, or the URL of a server, such as
    /// `redis://127.0.0.1:6379`. Not set: that of the Laravel application.
    pub source: Option<String>,
    /// On Redis: what all keys begin with. Not set: Laravel's, else nothing.
    pub prefix: Option<String>,
    /// The table of waiting jobs, in Laravel's format. Not set: Laravel's, else `jobs`.
    pub table: Option<String>,
    /// The table of buried jobs. Not set: Laravel's, else `failed_jobs`.
    pub failed_table: Option<String>,
    /// What the jobs are. Not set: `plain` if there is a handler, else the framework's: `laravel`
    /// or `messenger`.
    pub format: Option<Format>,
    /// The PHP file that handles `plain` jobs: the same as `lambda.handler`. For `roadrunner` the
    /// worker script; not set: `engine.script`.
    pub handler: Option<PathBuf>,
    /// For `roadrunner`: the name of the pipeline that workers see. Not set: `name`.
    pub pipeline: Option<String>,
    /// The share of PHP's time that this queue gets while others have jobs, too.
    #[serde(deserialize_with = "weight")]
    pub weight: usize,
    /// How many jobs of this queue may run at once. Not set: as many as there are workers.
    pub concurrency: Option<usize>,
    /// How often its jobs may begin, such as `10/s`. Not set: as often as workers are free.
    pub rate: Option<JobRate>,
    /// Time limit of a job that has none of its own.
    #[serde(deserialize_with = "timeout")]
    pub timeout: Time,
    /// How long a job stays reserved if this process crashes; it is extended while the job waits or
    /// runs. Not set: Laravel's `retry_after`, Messenger's `redeliver_timeout` or
    /// `visibility_timeout`, else 90 s.
    #[serde(deserialize_with = "lease")]
    pub lease: Option<Time>,
    /// How often a job is tried that does not say it itself; 0 for no limit. Not set: 3 for
    /// `plain` and `roadrunner`, 1 for `laravel`.
    pub tries: Option<u32>,
    /// The pause before the next try of a job that does not say it itself. Not set: for `plain` and
    /// `roadrunner` 1 s, doubled with each try up to an hour; none for `laravel`.
    pub backoff: Option<Time>,
    /// On `plain`: jobs with the same value of this key run in order, also when one fails and is
    /// tried again.
    pub group: Option<String>,
}

/// What the jobs of a queue are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON for a handler, as on Lambda.
    Plain,
    /// Laravel's jobs.
    Laravel,
    /// The messages of a transport of Symfony Messenger.
    Messenger,
    /// Jobs for a worker of RoadRunner.
    RoadRunner,
}

impl Format {
    /// Whether the framework of an application decides how a job ends, and records failures.
    pub fn is_frameworks(self) -> bool {
        matches!(self, Format::Laravel | Format::Messenger)
    }
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            name: "default".into(),
            source: None,
            prefix: None,
            table: None,
            failed_table: None,
            format: None,
            handler: None,
            pipeline: None,
            weight: 1,
            concurrency: None,
            rate: None,
            timeout: Time::seconds(60),
            lease: None,
            tries: None,
            backoff: None,
            group: None,
        }
    }
}

impl Queue {
    pub fn format(&self) -> Format {
        let plain = || self.handler.as_ref().map(|_| Format::Plain);
        self.format.or_else(plain).unwrap_or(Format::Laravel)
    }
}

/// One `[[schedule]]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// The entry's name, in messages, metrics and for the handler.
    pub name: String,
    /// When it runs: minute, hour, day of the month, month, day of the week; seconds may come
    /// first.
    pub cron: String,
    /// The time zone of `cron`. Not set: that of the machine.
    pub timezone: Option<String>,
    /// The PHP file that runs, as in `[[queue]]`.
    pub handler: Option<PathBuf>,
    /// The command that runs in the project's directory, in place of a handler.
    pub command: Vec<String>,
    /// Time limit of a run.
    #[serde(deserialize_with = "time_limit")]
    pub timeout: Time,
    /// How often a run is tried; 0 for no limit.
    pub tries: u32,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule {
            name: String::new(),
            cron: String::new(),
            timezone: None,
            handler: None,
            command: Vec::new(),
            timeout: Time::seconds(3600),
            tries: 1,
        }
    }
}

impl Schedule {
    /// The queue whose jobs are the runs: one runs at a time.
    pub fn queue(&self) -> Queue {
        Queue {
            name: self.name.clone(),
            format: Some(Format::Plain),
            handler: self.handler.clone(),
            concurrency: Some(1),
            timeout: self.timeout,
            tries: Some(self.tries),
            ..Queue::default()
        }
    }
}

fn losses<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("work.max_losses", 1..=100, from)
}

fn max_payload<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
    units::size("work.max_payload", Size(1 << 10)..=Size(1 << 30), from)
}

fn weight<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("queue.weight", 1..=1000, from)
}

fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("queue.timeout", from)
}

fn time_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("schedule.timeout", from)
}

/// Tables have whole seconds, and a lease must be extended before it ends.
fn lease<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
    units::checked_if_set(from, |lease: &Time| {
        anyhow::ensure!(
            *lease >= Time::seconds(3),
            "queue.lease is {lease}; it can be 3s or longer"
        );
        Ok(())
    })
}
