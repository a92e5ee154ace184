//! The catalogue of engines, from which help, error messages and documentation are made.

use serde::{Deserialize, Deserializer};

use super::external::ProgramKind;

/// An engine with the properties that users compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineEntry {
    pub name: &'static str,
    pub what_happens: &'static str,
    /// When the application boots.
    pub boots: &'static str,
    /// What one request can leave behind for the next.
    pub survives: &'static str,
    pub boots_in: BootsIn,
    /// Each process serves one event.
    pub serves_one: bool,
    /// Memory that one event changes is invisible to the next.
    pub isolates: bool,
    pub runs: PhpProgram,
}

/// Which process boots a script before it serves. The script calls `surus_serve()`, on `roadrunner`
/// the packages of RoadRunner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootsIn {
    /// None: each request runs a script of its own.
    Nothing,
    /// The master process, from which the workers are forked.
    Master,
    /// Each worker.
    Worker,
}

/// Which PHP an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhpProgram {
    /// `surus-php`.
    SurusPhp,
    /// An installed PHP.
    External(ProgramKind),
}

impl EngineEntry {
    /// Whether a script boots before requests are served.
    pub fn boots_script(&self) -> bool {
        self.boots_in != BootsIn::Nothing
    }

    /// Whether requests run PHP files or functions. Workers of RoadRunner get them as messages.
    pub fn runs_scripts(&self) -> bool {
        self.runs != PhpProgram::External(ProgramKind::RoadRunner)
    }

    /// Whether it runs PHP as it is installed, without surus-php.
    pub fn is_external(&self) -> bool {
        matches!(self.runs, PhpProgram::External(_))
    }

    /// Whether its processes wait for events instead of being started for each.
    pub fn is_standing(&self) -> bool {
        !matches!(self.runs, PhpProgram::External(way) if way.starts_per_request())
    }
}

/// All engines of this build. `--help`, error messages, the table of docs/reference/engines.md and
/// the contract tests are made from it.
pub const CATALOGUE: &[EngineEntry] = &[
    EngineEntry {
        name: "classic",
        what_happens: "surus-php: request startup, script, request shutdown",
        boots: "per request",
        survives: "OPcache",
        boots_in: BootsIn::Nothing,
        serves_one: false,
        isolates: true,
        runs: PhpProgram::SurusPhp,
    },
    EngineEntry {
        name: "worker",
        what_happens: "surus-php boots a script in each of n processes, which then serves \
        requests in a loop",
        boots: "once per worker",
        survives: "everything, until recycled",
        boots_in: BootsIn::Worker,
        serves_one: false,
        isolates: false,
        runs: PhpProgram::SurusPhp,
    },
    EngineEntry {
        name: "standby",
        what_happens: "surus-php boots the script, waits, serves one request, exits; a spare is \
        always ready",
        boots: "once per request, ahead of it",
        survives: "nothing",
        boots_in: BootsIn::Worker,
        serves_one: true,
        isolates: true,
        runs: PhpProgram::SurusPhp,
    },
    EngineEntry {
        name: "fork",
        what_happens: "the booted prototype process forks workers ahead of time; each serves one \
        request",
        boots: "once",
        survives: "nothing (copy-on-write)",
        boots_in: BootsIn::Master,
        serves_one: true,
        isolates: true,
        runs: PhpProgram::SurusPhp,
    },
    EngineEntry {
        name: "rewind",
        what_happens: "boots once, serves a request, restores all memory, serves the next",
        boots: "once",
        survives: "nothing but OPcache",
        boots_in: BootsIn::Master,
        serves_one: false,
        isolates: true,
        runs: PhpProgram::SurusPhp,
    },
    EngineEntry {
        name: "fpm",
        what_happens: "FastCGI to a php-fpm that Surus starts, or to the one at \
            engine.php_fpm_address",
        boots: "per request",
        survives: "OPcache",
        boots_in: BootsIn::Nothing,
        serves_one: false,
        isolates: true,
        runs: PhpProgram::External(ProgramKind::Fpm),
    },
    EngineEntry {
        name: "builtin",
        what_happens: "HTTP to servers that Surus starts with `php -S`",
        boots: "per request",
        survives: "OPcache",
        boots_in: BootsIn::Nothing,
        serves_one: false,
        isolates: true,
        runs: PhpProgram::External(ProgramKind::Builtin),
    },
    EngineEntry {
        name: "cgi",
        what_happens: "php-cgi, started for each request",
        boots: "per request",
        survives: "nothing",
        boots_in: BootsIn::Nothing,
        serves_one: true,
        isolates: true,
        runs: PhpProgram::External(ProgramKind::Cgi),
    },
    EngineEntry {
        name: "cli",
        what_happens: "php, started for each request",
        boots: "per request",
        survives: "nothing",
        boots_in: BootsIn::Nothing,
        serves_one: true,
        isolates: true,
        runs: PhpProgram::External(ProgramKind::Cli),
    },
    EngineEntry {
        name: "roadrunner",
        what_happens: "n unmodified PHP workers of RoadRunner, asked by its own protocol",
        boots: "once per worker",
        survives: "everything, until recycled",
        boots_in: BootsIn::Worker,
        serves_one: false,
        isolates: false,
        runs: PhpProgram::External(ProgramKind::RoadRunner),
    },
];

/// The entry of that name; the error lists the known names.
pub fn find(name: &str) -> anyhow::Result<&'static EngineEntry> {
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
