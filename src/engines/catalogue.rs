//! The catalogue of engines, from which help, error messages and documentation are made.

use serde::{Deserialize, Deserializer};

use super::external::Way;

/// An engine with the properties that users compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub name: &'static str,
    /// The name of the concept in other publications.
    pub published_as: &'static str,
    pub what_happens: &'static str,
    /// When the application boots.
    pub boots: &'static str,
    /// What one event can leave behind for the next.
    pub survives: &'static str,
    /// Boots a script ahead of the events; the script calls `surus_serve()`, on `roadrunner` the
    /// packages of RoadRunner.
    pub boots_script: bool,
    /// Each process serves one event.
    pub serves_one: bool,
    /// Memory that one event changes is invisible to the next.
    pub isolates: bool,
    pub runs: Runs,
}

/// Which PHP an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// `surus-php`.
    Ours,
    /// An installed PHP.
    Stock(Way),
}

impl Entry {
    /// Whether requests run PHP files or functions. Workers of RoadRunner get them as messages.
    pub fn runs_scripts(&self) -> bool {
        self.runs != Runs::Stock(Way::RoadRunner)
    }

    /// Whether its processes wait for events instead of being started for each.
    pub fn is_standing(&self) -> bool {
        !matches!(self.runs, Runs::Stock(way) if way.starts_per_event())
    }
}

/// All engines of this build. `--help`, error messages, the README's table and the contract tests
/// are made from it.
pub const CATALOGUE: &[Entry] = &[
    Entry {
        name: "classic",
        published_as: "G; php-fpm semantics",
        what_happens: "surus-php: request startup, script, request shutdown",
        boots: "per event",
        survives: "OPcache",
        boots_script: false,
        serves_one: false,
        isolates: true,
        runs: Runs::Ours,
    },
    Entry {
        name: "worker",
        published_as: "A; RoadRunner, FrankenPHP, Swoole style",
        what_happens: "surus-php boots a script in each of n processes, which then serves events \
        in a loop",
        boots: "once per worker",
        survives: "everything, until recycled",
        boots_script: true,
        serves_one: false,
        isolates: false,
        runs: Runs::Ours,
    },
    Entry {
        name: "standby",
        published_as: "C",
        what_happens: "surus-php boots the script, waits, serves one event, dies; a spare is \
        always ready",
        boots: "per event, before the caller comes",
        survives: "nothing",
        boots_script: true,
        serves_one: true,
        isolates: true,
        runs: Runs::Ours,
    },
    Entry {
        name: "fork",
        published_as: "D",
        what_happens: "the booted prototype process forks children ahead of time; each serves one \
        event",
        boots: "once",
        survives: "nothing (copy-on-write)",
        boots_script: true,
        serves_one: true,
        isolates: true,
        runs: Runs::Ours,
    },
    Entry {
        name: "rewind",
        published_as: "nobody",
        what_happens: "boots once, serves, puts every written page back, serves again",
        boots: "once",
        survives: "nothing but OPcache",
        boots_script: true,
        serves_one: false,
        isolates: true,
        runs: Runs::Ours,
    },
    Entry {
        name: "fpm",
        published_as: "E; fe-php's FPM mode",
        what_happens: "FastCGI to a php-fpm that Surus starts, or to the one at engine.php_fpm_address",
        boots: "per event",
        survives: "OPcache",
        boots_script: false,
        serves_one: false,
        isolates: true,
        runs: Runs::Stock(Way::Fpm),
    },
    Entry {
        name: "builtin",
        published_as: "F",
        what_happens: "HTTP to servers that Surus starts with `php -S`",
        boots: "per event",
        survives: "OPcache",
        boots_script: false,
        serves_one: false,
        isolates: true,
        runs: Runs::Stock(Way::Builtin),
    },
    Entry {
        name: "cgi",
        published_as: "H",
        what_happens: "php-cgi, started for each event",
        boots: "per event",
        survives: "nothing",
        boots_script: false,
        serves_one: true,
        isolates: true,
        runs: Runs::Stock(Way::Cgi),
    },
    Entry {
        name: "cli",
        published_as: "B; Bref 0.2; fe-php's CLI mode",
        what_happens: "php, started for each event",
        boots: "per event",
        survives: "nothing",
        boots_script: false,
        serves_one: true,
        isolates: true,
        runs: Runs::Stock(Way::Cli),
    },
    Entry {
        name: "roadrunner",
        published_as: "RoadRunner",
        what_happens: "frames of RoadRunner to n of its PHP workers, unmodified",
        boots: "once per worker",
        survives: "everything, until recycled",
        boots_script: true,
        serves_one: false,
        isolates: false,
        runs: Runs::Stock(Way::RoadRunner),
    },
];

/// The entry of that name; the error lists the known names.
pub fn find(name: &str) -> anyhow::Result<&'static Entry> {
    CATALOGUE
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            let names: Vec<_> = CATALOGUE.iter().map(|entry| entry.name).collect();
            anyhow::anyhow!(
                "unknown engine `{name}`; known engines: {}",
                names.join(", ")
            )
        })
}

/// Deserializes an optional engine name from the configuration.
pub fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    if let Some(name) = &name {
        find(name).map_err(serde::de::Error::custom)?;
    }
    Ok(name)
}
