//! Decides which queues `surus work` serves, and boots the PHP workers that run their jobs.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail};

use super::{engine_setup, events};
use crate::config::Config;
use crate::engines;
use crate::fronts::queue::runner::Runner;
use crate::fronts::queue::{Format, Queue};
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
        match name.is_empty() {
            true => Err("the name is empty; write NAME or NAME=3".into()),
            false => Ok(Weighted {
                name: name.into(),
                weight,
            }),
        }
    }
}

/// Queues that the same workers run.
pub struct Group {
    pub format: Format,
    /// The PHP file that runs the jobs.
    handler: PathBuf,
    /// The Composer package's script that passes jobs to the handler.
    script: PathBuf,
    pub queues: Vec<Queue>,
    pub workers: usize,
}

/// The pool's name; `[pool.work]` overrides its settings.
const POOL: &str = "work";

/// The queues of the configuration and the command line.
pub fn chosen(project: &Path, config: &Config, named: &[Weighted]) -> anyhow::Result<Vec<Group>> {
    let is_laravel = project.join("artisan").is_file();
    let mut queues = config.queue.clone();
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
        queues = named.iter().map(configured).collect();
    } else if queues.is_empty() && is_laravel {
        // Its name is the application's own, which is asked later.
        queues.push(Queue {
            name: String::new(),
            ..Queue::default()
        });
    }
    if queues.is_empty() {
        bail!(
            "no queue is configured, and {} is not a Laravel application; add a [[queue]] to \
             surus.toml (docs/guides/queues.md)",
            project.display()
        );
    }
    let script = events::script(project, config)?;
    let mut groups: Vec<Group> = Vec::new();
    for queue in queues {
        check(&queue, is_laravel)?;
        let handler = handler(project, &script, &queue)?;
        match groups.iter_mut().find(|group| group.handler == handler) {
            Some(group) => group.queues.push(queue),
            None => groups.push(Group {
                format: queue.format(),
                handler,
                script: script.clone(),
                queues: vec![queue],
                workers: 0,
            }),
        }
    }
    for group in &mut groups {
        group.workers = engines::worker_count(&of_pool(config).engine)?;
    }
    Ok(groups)
}

fn check(queue: &Queue, is_laravel: bool) -> anyhow::Result<()> {
    let name = &queue.name;
    match queue.format() {
        Format::Plain if queue.handler.is_none() => {
            bail!(
                "queue {name}: its format is plain; name the PHP file that runs its jobs in \
                 queue.handler"
            )
        }
        Format::Plain if queue.source.is_none() => {
            bail!("queue {name}: name its broker in queue.source, such as \"sqlite:jobs.sqlite\"")
        }
        Format::Laravel if !is_laravel => {
            bail!(
                "queue {name}: its format is laravel, and the project has no file `artisan`; name \
                 a PHP file in queue.handler for other jobs"
            )
        }
        Format::Laravel if queue.group.is_some() => {
            bail!("queue {name}: queue.group is for the format plain")
        }
        _ => Ok(()),
    }
}

fn handler(project: &Path, script: &Path, queue: &Queue) -> anyhow::Result<PathBuf> {
    let file = match &queue.handler {
        Some(handler) => project.join(handler),
        None => {
            let library = script.parent().and_then(Path::parent);
            library
                .unwrap_or(Path::new("/"))
                .join("src/Laravel/work.php")
        }
    };
    file.canonicalize()
        .with_context(|| format!("cannot read {} (queue.handler)", file.display()))
}

fn of_pool(config: &Config) -> Config {
    config.of_pool(POOL).unwrap_or_else(|| config.clone())
}

/// Boots the workers of a group.
pub async fn boot(
    project: &Path,
    config: &Config,
    group: &Group,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Runner> {
    let mut config = of_pool(config);
    config.engine.workers = Some(group.workers);
    // No more jobs are passed to PHP than there are workers. One may wait for a new worker as long
    // as its own time limit.
    config.engine.queue_timeout = Time::seconds(900);
    let default = match group.format {
        Format::Laravel => "rewind",
        // The handler's file creates objects once, including connections, with which `rewind`
        // cannot boot.
        Format::Plain => "worker",
    };
    // No client waits for a job, so idle workers need not poll.
    config.engine.busy_poll = false;
    let root = project
        .to_str()
        .context("the project's path is not UTF-8")?;
    config.env.insert("SURUS_PROJECT".into(), root.into());
    let asked = events::pool(
        project,
        POOL,
        config,
        &group.handler,
        &group.script,
        default,
    )?;
    let engine = engine_setup::boot_one(&asked, project, metrics).await?;
    Ok(Runner::new(
        engine,
        events::script_of(project, &group.script)?,
    ))
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
    }
}
