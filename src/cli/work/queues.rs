//! Decides which queues `surus work` serves, and boots the PHP workers that run their jobs.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};

use super::engine_setup::{self, PoolConfig};
use super::{events, schedules};
use crate::config::{Config, IniValue, SCHEDULE_POOL, WORK_POOL};
use crate::engines::{self, BootsIn, WorkerMode};
use crate::fronts::queue::runner::Runner;
use crate::fronts::queue::{Format, Queue, Schedule};
use crate::observe::metrics::Metrics;
use crate::units::Time;

/// A queue of the command line.
#[derive(Debug, Clone)]
pub struct Weighted {
    name: String,
    weight: Option<usize>,
}

impl FromStr for Weighted {
    type Err = String;

    fn from_str(text: &str) -> Result<Weighted, String> {
        let (name, weight) = match text.rsplit_once('=') {
            None => (text, None),
            Some((name, weight)) => {
                let weight = weight
                    .parse()
                    .ok()
                    .filter(|weight| (1..=1000).contains(weight));
                let wrong = "the weight is not a number from 1 to 1000; write NAME=3";
                (name, Some(weight.ok_or(wrong)?))
            }
        };
        match name {
            "" => Err("the name is empty; write NAME or NAME=3".into()),
            // In `queue:work`, commas separate queues.
            name if name.contains(',') => {
                Err("it has a comma; write --queue for each queue: --queue a --queue b".into())
            }
            name => Ok(Weighted {
                name: name.into(),
                weight,
            }),
        }
    }
}

/// Queues and schedules that the same workers run.
#[derive(Clone)]
pub struct Group {
    /// None if it runs commands.
    pub php: Option<Php>,
    pub queues: Vec<Queue>,
    pub schedules: Vec<Schedule>,
    /// Whether it runs the schedule of the Laravel application.
    pub is_schedule_of_laravel: bool,
    pub workers: usize,
}

/// What the workers of a group run.
#[derive(Clone)]
pub struct Php {
    /// `[pool.work]` or `[pool.schedule]`, which override settings.
    pool: &'static str,
    /// The engine if none is configured.
    engine: &'static str,
    /// The PHP file that runs the jobs.
    handler: PathBuf,
    /// The Composer package's script that passes jobs to the handler.
    script: PathBuf,
    /// The handler is a worker of RoadRunner, which needs neither that package nor that script.
    is_roadrunner: bool,
}

impl Group {
    /// Whether Surus asks its PHP while jobs run: which events are due, which jobs have failed.
    pub fn is_asked(&self) -> bool {
        let queues = &self.queues;
        self.is_schedule_of_laravel || queues.iter().any(|it| it.format().is_frameworks())
    }

    /// The names of its queues and schedules.
    pub fn names(&self) -> String {
        let queues = self.queues.iter().map(|queue| match queue.name.as_str() {
            "" => "those of the application",
            name => name,
        });
        let schedules = self.schedules.iter().map(|entry| entry.name.as_str());
        let of_laravel = self.is_schedule_of_laravel.then_some(schedules::LARAVEL);
        let all: Vec<_> = queues.chain(schedules).chain(of_laravel).collect();
        all.join(", ")
    }
}

impl fmt::Display for Php {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handler.display().fmt(f)
    }
}

/// How many events of a Laravel application's schedule run at once.
const SCHEDULE_WORKERS: usize = 2;

/// The queues and schedules of the configuration and the command line.
pub fn chosen(project: &Path, config: &Config, named: &[Weighted]) -> anyhow::Result<Vec<Group>> {
    let is_laravel = project.join("artisan").is_file();
    if config.work.schedule && !is_laravel {
        bail!(
            "work.schedule is for Laravel applications, and {} has no file `artisan`; use \
             [[schedule]]",
            project.display()
        );
    }
    schedules::check(&config.schedule)?;
    check_names(config, named)?;
    let is_symfony = !is_laravel && project.join("bin/console").is_file();
    let mut queues = named_queues(config, named, is_laravel || is_symfony);
    for queue in queues
        .iter_mut()
        .filter(|it| it.handler.is_none() && is_symfony)
    {
        queue.format.get_or_insert(Format::Messenger);
    }
    if queues.is_empty() && config.schedule.is_empty() && !config.work.schedule {
        bail!(
            "no queue is configured, and {} is not an application of Laravel or Symfony; add \
             a [[queue]] to surus.toml (docs/guides/queues.md)",
            project.display()
        );
    }
    let mut groups: Vec<Group> = Vec::new();
    let workers = engines::worker_count(&for_pool(config, WORK_POOL).engine)?;
    for queue in queues {
        check(&queue, is_laravel, is_symfony)?;
        let script = || events::script(project, config);
        let php = match (queue.format(), &queue.handler) {
            (Format::RoadRunner, handler) => of_roadrunner(project, config, &queue.name, handler)?,
            (_, Some(handler)) => of_handler(project, script()?, handler)?,
            (Format::Messenger, None) => of_framework(script()?, WORK_POOL, "Symfony/work.php")?,
            (_, None) => of_framework(script()?, WORK_POOL, "Laravel/work.php")?,
        };
        let group = group(&mut groups, Some(php));
        group.workers = workers;
        group.queues.push(queue);
    }
    for entry in &config.schedule {
        let php = match &entry.handler {
            Some(handler) => {
                let script = events::script(project, config)?;
                Some(of_handler(project, script, handler)?)
            }
            None => None,
        };
        let group = group(&mut groups, php);
        group.schedules.push(entry.clone());
        if group.queues.is_empty() {
            group.workers = match group.php {
                Some(_) => workers.min(group.schedules.len()),
                None => group.schedules.len(),
            };
        }
    }
    if config.work.schedule {
        let script = events::script(project, config)?;
        let php = of_framework(script, SCHEDULE_POOL, "Laravel/schedule.php")?;
        let group = group(&mut groups, Some(php));
        let pool = config.pool.get(SCHEDULE_POOL);
        group.workers = pool.and_then(|it| it.workers).unwrap_or(SCHEDULE_WORKERS);
        group.is_schedule_of_laravel = true;
    }
    Ok(groups)
}

/// Checks that no two queues have the same name. Metrics, the commands of `surus work` and the
/// counts of crashes know a queue by its name alone, whatever its source.
fn check_names(config: &Config, named: &[Weighted]) -> anyhow::Result<()> {
    let queues = config.queue.iter().map(|queue| queue.name.as_str());
    let schedules = config.schedule.iter().map(|entry| entry.name.as_str());
    if let Some(name) = twice(queues.chain(schedules)) {
        bail!(
            "queue {name}: two of [[queue]] and [[schedule]], or two pipelines of .rr.yaml, have \
             this name, by which metrics and `surus work pause` know a queue; remove one of them, \
             or serve it by another `surus work`, with a configuration (--config) and a \
             work.admin_listen of its own"
        );
    }
    if let Some(name) = twice(named.iter().map(|named| named.name.as_str())) {
        bail!("queue {name}: --queue names it twice; name it once, such as --queue {name}=2");
    }
    Ok(())
}

/// The first name that has occurred before.
fn twice<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.find(|name| !seen.insert(*name))
}

/// The queues of the command line, else of the configuration, else the framework's.
fn named_queues(config: &Config, named: &[Weighted], has_own: bool) -> Vec<Queue> {
    let queues = &config.queue;
    if !named.is_empty() {
        let configured = |named: &Weighted| {
            let found = queues.iter().find(|queue| queue.name == named.name);
            let mut queue = found.cloned().unwrap_or_else(|| Queue {
                name: named.name.clone(),
                ..Queue::default()
            });
            queue.weight = named.weight.unwrap_or(queue.weight);
            queue
        };
        return named.iter().map(configured).collect();
    }
    match queues.is_empty() && has_own {
        // The names are the application's own, which is asked later.
        true => vec![Queue {
            name: String::new(),
            ..Queue::default()
        }],
        false => queues.clone(),
    }
}

/// The group with this handler, which is new if there is none.
fn group(groups: &mut Vec<Group>, php: Option<Php>) -> &mut Group {
    let handler = |php: &Option<Php>| php.as_ref().map(|it| it.handler.clone());
    let wanted = handler(&php);
    let found = groups
        .iter()
        .position(|group| handler(&group.php) == wanted);
    let at = found.unwrap_or_else(|| {
        groups.push(Group {
            php,
            queues: Vec::new(),
            schedules: Vec::new(),
            is_schedule_of_laravel: false,
            workers: 0,
        });
        groups.len() - 1
    });
    &mut groups[at]
}

fn check(queue: &Queue, is_laravel: bool, is_symfony: bool) -> anyhow::Result<()> {
    let name = &queue.name;
    if queue.pipeline.is_some() && queue.format() != Format::RoadRunner {
        bail!("queue {name}: queue.pipeline is for the format roadrunner")
    }
    match queue.format() {
        Format::Plain if queue.handler.is_none() => {
            bail!(
                "queue {name}: its format is plain; name the PHP file that runs its jobs in \
                 queue.handler"
            )
        }
        Format::Plain | Format::RoadRunner if queue.source.is_none() => {
            bail!("queue {name}: name its broker in queue.source, such as \"sqlite:jobs.sqlite\"")
        }
        Format::Laravel if !is_laravel => {
            bail!(
                "queue {name}: its format is laravel, and the project has no file `artisan`; name \
                 a PHP file in queue.handler for other jobs"
            )
        }
        Format::Laravel | Format::Messenger | Format::RoadRunner if queue.group.is_some() => {
            bail!("queue {name}: queue.group is for the format plain")
        }
        Format::Messenger if !is_symfony => {
            bail!(
                "queue {name}: its format is messenger, and the project has no file `bin/console`; \
                 name a PHP file in queue.handler for other jobs"
            )
        }
        Format::Messenger => {
            let set = [
                ("source", queue.source.is_some()),
                ("prefix", queue.prefix.is_some()),
                ("table", queue.table.is_some()),
                ("failed_table", queue.failed_table.is_some()),
                ("tries", queue.tries.is_some()),
                ("backoff", queue.backoff.is_some()),
            ];
            match set.iter().find(|(_, is_set)| *is_set) {
                Some((name_of_setting, _)) => bail!(
                    "queue {name}: queue.{name_of_setting} is for other formats; Messenger's \
                     transport and retry strategy say it (framework.messenger)"
                ),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A handler of the user's. Its file creates objects once, including connections, with which
/// `rewind` cannot boot.
fn of_handler(project: &Path, script: PathBuf, handler: &Path) -> anyhow::Result<Php> {
    let handler = project.join(handler);
    let found = handler.canonicalize();
    Ok(Php {
        pool: WORK_POOL,
        engine: "worker",
        handler: found.with_context(|| format!("cannot read {} (handler)", handler.display()))?,
        script,
        is_roadrunner: false,
    })
}

/// A worker of RoadRunner: the queue's, else that of the server (`server.command` of `.rr.yaml`).
fn of_roadrunner(
    project: &Path,
    config: &Config,
    queue: &str,
    handler: &Option<PathBuf>,
) -> anyhow::Result<Php> {
    let script = handler
        .clone()
        .or(for_pool(config, WORK_POOL).engine.script);
    let script = script.with_context(|| {
        format!(
            "queue {queue}: its format is roadrunner; name the worker script in queue.handler, or \
             in engine.script"
        )
    })?;
    let handler = project.join(script);
    let found = handler.canonicalize();
    let handler = found.with_context(|| format!("cannot read {} (handler)", handler.display()))?;
    Ok(Php {
        pool: WORK_POOL,
        engine: ROADRUNNER,
        script: handler.clone(),
        handler,
        is_roadrunner: true,
    })
}

/// The only engine of such workers.
const ROADRUNNER: &str = "roadrunner";

/// A handler of the Composer package.
fn of_framework(script: PathBuf, pool: &'static str, file: &str) -> anyhow::Result<Php> {
    let library = script.parent().and_then(Path::parent);
    let handler = library.unwrap_or(Path::new("/")).join("src").join(file);
    let found = handler.canonicalize();
    Ok(Php {
        pool,
        engine: "rewind",
        handler: found.with_context(|| format!("cannot read {}", handler.display()))?,
        script,
        is_roadrunner: false,
    })
}

fn for_pool(config: &Config, name: &str) -> Config {
    config.for_pool(name).unwrap_or_else(|| config.clone())
}

/// Boots the workers of a group.
pub async fn boot(
    project: &Path,
    config: &Config,
    php: &Php,
    workers: usize,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Runner> {
    let mut config = for_pool(config, php.pool);
    config.engine.limit_workers(workers);
    // No more jobs are passed to PHP than there are workers. One may wait for a new worker as long
    // as its own time limit.
    config.engine.queue_timeout = Time::seconds(900);
    // No client waits for a job, so idle workers need not poll.
    config.engine.busy_poll = false;
    if php.is_roadrunner {
        config.engine.name = Some(ROADRUNNER.into());
        config.engine.roadrunner_mode = WorkerMode::Jobs;
    }
    // As under php-cli: `queue.timeout` limits a job.
    let limit = config.php.entry("max_execution_time".into());
    limit.or_insert(IniValue::Integer(0));
    let pool_config = events::pool(
        project,
        php.pool,
        config,
        &php.handler,
        &php.script,
        php.engine,
    )?;
    let booted = engine_setup::boot_one(&pool_config, project, metrics).await;
    Ok(Runner::new(
        booted.map_err(|error| with_other_engines(error, &pool_config))?,
        events::script_of(project, &php.script)?,
    ))
}

/// Adds which engines refuse no boot: their workers share nothing of it.
fn with_other_engines(error: anyhow::Error, pool_config: &PoolConfig) -> anyhow::Error {
    let (engine, pool) = (pool_config.entry.name, pool_config.name);
    match pool_config.entry.boots_in {
        BootsIn::Master => anyhow!(
            "{error:#}; if only the engine `{engine}` refuses this boot, run the jobs on `worker` \
             or `classic` (pool.{pool}.engine, or --engine of `surus work`)"
        ),
        BootsIn::Nothing | BootsIn::Worker => error,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_written_with_or_without_a_weight() {
        let read = |text: &str| {
            text.parse::<Weighted>()
                .map(|read| (read.name, read.weight))
        };
        assert_eq!(read("default"), Ok(("default".into(), None)));
        assert_eq!(read("high=3"), Ok(("high".into(), Some(3))));
        assert_eq!(read("a=b=3"), Ok(("a=b".into(), Some(3))));
        for wrong in ["", "=3", "high=", "high=0", "high=1001", "high=x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for several in ["high,low", "high,low=3"] {
            assert!(
                read(several)
                    .unwrap_err()
                    .contains("write --queue for each")
            );
        }
    }

    #[test]
    fn name_of_two_queues_is_rejected_whatever_their_sources() {
        let check = |config: &str, named: &[&str]| {
            let config = toml::from_str(config).unwrap();
            let named: Vec<Weighted> = named.iter().map(|name| name.parse().unwrap()).collect();
            check_names(&config, &named).map_err(|error| error.to_string())
        };
        let queue = |name: &str, source: &str| format!("[[queue]]\nname = '{name}'\n{source}\n");
        let one = queue("mail", "source = 'sqlite:a.sqlite'");
        let same = queue("mail", "source = 'redis://127.0.0.1'");
        let schedule = "[[schedule]]\nname = 'mail'\n";
        assert_eq!(check(&one, &["mail=2", "other"]), Ok(()));
        assert_eq!(check(&format!("{one}{}", queue("other", "")), &[]), Ok(()));
        for second in [&same, schedule] {
            let error = check(&format!("{one}{second}"), &["other"]).unwrap_err();
            assert!(
                error.contains("queue mail: two of [[queue]]") && error.contains("--config"),
                "{error}"
            );
        }
        let error = check(&one, &["mail", "mail=2"]).unwrap_err();
        assert!(error.contains("--queue names it twice"), "{error}");
    }
}
