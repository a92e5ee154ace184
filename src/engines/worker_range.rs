//! The number of workers of a pool: fixed, or a range within which it adapts to the load.

use std::ops::RangeInclusive;

use anyhow::bail;
use serde::Deserializer;
use tracing::info;

use super::{EngineEntry, PhpProgram, Settings};
use crate::observe::system::Machine;
use crate::units;

impl Settings {
    /// Sets the number of workers, in place of a number or a range of the configuration.
    pub fn fix_workers(&mut self, count: usize) {
        self.workers = Some(count);
        (self.min_workers, self.max_workers) = (None, None);
    }

    /// Whether the number of workers adapts to the load.
    pub fn scales(&self) -> bool {
        self.min_workers.is_some() || self.max_workers.is_some()
    }

    /// Begins with one worker, and has the configured number only under load.
    pub fn begin_with_one(&mut self) {
        self.max_workers = self.max_workers.or(self.workers.take());
        self.min_workers = Some(1);
    }

    /// Sets the largest number of workers.
    pub fn limit_workers(&mut self, most: usize) {
        if self.scales() {
            self.min_workers = Some(self.min_workers.unwrap_or(1).min(most));
            self.max_workers = Some(most);
        } else {
            self.workers = Some(most);
        }
    }
}

/// The range of the number of processes of the engine.
pub fn process_range(
    entry: &EngineEntry,
    settings: &Settings,
) -> anyhow::Result<RangeInclusive<usize>> {
    if settings.scales() && !matches!(entry.runs, PhpProgram::SurusPhp) {
        bail!(
            "engine.min_workers and engine.max_workers are for the engines of Surus, and the \
             processes of `{}` are another program's: set engine.workers, or `workers` of the \
             [pool] that uses this engine",
            entry.name
        );
    }
    let spare_workers = if entry.serves_one {
        settings.spare_workers
    } else {
        0
    };
    let range = worker_range(settings)?;
    Ok(range.start() + spare_workers..=range.end() + spare_workers)
}

/// The largest number of workers.
pub fn worker_count(settings: &Settings) -> anyhow::Result<usize> {
    Ok(*worker_range(settings)?.end())
}

/// The configured number of workers, or two per CPU, because PHP sometimes waits for databases.
fn worker_range(settings: &Settings) -> anyhow::Result<RangeInclusive<usize>> {
    let (min, max) = (settings.min_workers, settings.max_workers);
    if let Some(count) = settings.workers {
        if settings.scales() {
            bail!(
                "engine.workers is the number of workers, and engine.min_workers and \
                 engine.max_workers are its bounds: set either the number or the bounds"
            );
        }
        return check_workers(count).map(|()| count..=count);
    }
    if let Some(max) = max {
        let min = min.unwrap_or(1);
        if min > max {
            bail!("engine.min_workers is {min}, more than engine.max_workers, which is {max}");
        }
        check_workers(max)?;
        return check_workers(min).map(|()| min..=max);
    }
    let machine = Machine::read();
    let count = machine.worker_count();
    let count = count.max(min.unwrap_or(1));
    check_workers(count)?;
    info!(
        workers = count,
        cpus = machine.cpus,
        memory_mib = machine.memory.map(|bytes| bytes >> 20),
        "number of workers chosen (engine.workers)"
    );
    Ok(min.unwrap_or(count)..=count)
}

fn check_workers(count: usize) -> anyhow::Result<()> {
    match count {
        0 => bail!("0 workers cannot serve; PHP needs at least 1 (engine.workers)"),
        1..=4096 => Ok(()),
        _ => bail!("{count} workers are more than the 4096 that are supported (engine.workers)"),
    }
}

/// Deserializes an optional number of workers.
pub fn workers_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    units::checked_if_set(from, |count: &usize| check_workers(*count))
}

/// The same for the fewest workers of a pool.
pub fn min_workers_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    units::checked_if_set(from, |count: &usize| match count {
        0 => bail!(
            "a pool keeps at least 1 worker (engine.min_workers); php-fpm's ondemand has no \
             counterpart, and min_workers = 1 comes closest"
        ),
        _ => check_workers(*count),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engines::find;

    fn range(text: &str) -> anyhow::Result<RangeInclusive<usize>> {
        worker_range(&toml::from_str(text)?)
    }

    #[test]
    fn number_and_bounds_make_a_range() {
        assert_eq!(range("workers = 5").unwrap(), 5..=5);
        assert_eq!(range("max_workers = 5").unwrap(), 1..=5);
        assert_eq!(range("min_workers = 2\nmax_workers = 5").unwrap(), 2..=5);
        let large = range("min_workers = 3000").unwrap();
        assert_eq!((*large.start(), *large.end()), (3000, 3000));
        assert!(range("min_workers = 1").unwrap().end() >= &2);
    }

    #[test]
    fn contradictory_bounds_are_rejected() {
        for (text, part) in [
            ("workers = 2\nmax_workers = 5", "either"),
            ("min_workers = 6\nmax_workers = 5", "more than"),
            ("min_workers = 0\nmax_workers = 5", "engine.min_workers"),
            ("workers = 0", "engine.workers"),
            ("max_workers = 5000", "4096"),
        ] {
            let error = range(text).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
    }

    #[test]
    fn spare_workers_are_added_to_both_bounds() {
        let settings: Settings = toml::from_str("max_workers = 5\nspare_workers = 3").unwrap();
        let of = |name| process_range(find(name).unwrap(), &settings);
        assert_eq!(of("fork").unwrap(), 4..=8);
        assert_eq!(of("rewind").unwrap(), 1..=5);
        let error = of("roadrunner").unwrap_err().to_string();
        assert!(
            error.contains("`roadrunner`") && error.contains("engine.workers"),
            "{error}"
        );
    }

    #[test]
    fn pool_that_begins_with_one_worker_has_the_configured_number_at_most() {
        for (text, most) in [
            ("workers = 5", Some(5)),
            ("min_workers = 3\nmax_workers = 4", Some(4)),
            ("", None),
        ] {
            let mut settings: Settings = toml::from_str(text).unwrap();
            let own = *worker_range(&settings).unwrap().end();
            settings.begin_with_one();
            let most = most.unwrap_or(own);
            assert_eq!(worker_range(&settings).unwrap(), 1..=most, "{text}");
        }
    }

    #[test]
    fn command_line_overrides_a_range_and_a_limit_narrows_it() {
        let mut settings: Settings = toml::from_str("min_workers = 4\nmax_workers = 9").unwrap();
        settings.limit_workers(6);
        assert_eq!(worker_range(&settings).unwrap(), 4..=6);
        settings.limit_workers(2);
        assert_eq!(worker_range(&settings).unwrap(), 2..=2);
        settings.fix_workers(7);
        settings.limit_workers(8);
        assert_eq!(worker_range(&settings).unwrap(), 8..=8);
    }
}
