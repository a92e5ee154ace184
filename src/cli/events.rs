//! The pool that runs a handler of events that are not HTTP: for `surus lambda` and `surus work`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::engine_setup::{self, PoolConfig};
use crate::app::detect::DetectedApplication;
use crate::config::Config;
use crate::engines::Warmup;
use crate::event::Script;

/// The script that passes events to the handler.
pub fn script(project: &Path, config: &Config) -> anyhow::Result<PathBuf> {
    let program =
        env::current_exe().context("cannot determine the path of the surus executable")?;
    let program_dir = program.parent().unwrap_or(Path::new("/"));
    let places = match &config.lambda.script {
        Some(script) => vec![project.join(script)],
        None => vec![
            project.join("vendor/surus/surus/lambda/events.php"),
            program_dir.join("php/lambda/events.php"),
            program_dir.join("../share/surus/php/lambda/events.php"),
        ],
    };
    if let Some(found) = places.iter().find_map(|place| place.canonicalize().ok()) {
        return Ok(found);
    }
    let places: Vec<_> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    bail!(
        "cannot find the PHP file that passes events to the handler at {}; install it (composer \
         require surus/surus) or name it in lambda.script",
        places.join(", ")
    )
}

/// Makes a pool of a configuration. `default` is the engine if none is configured.
pub fn pool(
    project: &Path,
    name: &'static str,
    mut config: Config,
    handler: &Path,
    script: &Path,
    default: &str,
) -> anyhow::Result<PoolConfig> {
    config.engine.script = Some(script.to_path_buf());
    // The handler boots the application, if it needs it.
    config.application = DetectedApplication::Own;
    config.engine.warmup = Warmup::off();
    if config.engine.name.is_none() && is_library(script) {
        config.engine.name = Some(default.into());
    }
    let handler = handler
        .to_str()
        .context("the handler's path is not UTF-8")?;
    config.env.insert(HANDLER.to_string(), handler.to_string());
    let project_dir = project
        .to_str()
        .context("the project's path is not UTF-8")?;
    config.env.insert(PROJECT.into(), project_dir.into());
    Ok(PoolConfig {
        name,
        entry: engine_setup::chosen(project, &config)?,
        config,
        learned: Default::default(),
    })
}

/// The script that passes events to the handler, for the engine.
pub fn script_of(project: &Path, script: &Path) -> anyhow::Result<Script> {
    Ok(Script {
        root: project
            .to_str()
            .context("the project's path is not UTF-8")?
            .into(),
        filename: script.into(),
        name: "/events".into(),
        path_info: Default::default(),
        query: None,
        rewritten: None,
    })
}

/// Whether it is the Composer package's script. Other scripts may not support booting.
fn is_library(script: &Path) -> bool {
    let text = std::fs::read_to_string(script).unwrap_or_default();
    text.contains(r"Surus\Lambda\Runner::serve(")
}

/// The variable in which the PHP library finds the handler's file.
const HANDLER: &str = "SURUS_HANDLER";
/// The variable in which it finds the project's directory, where events begin.
const PROJECT: &str = "SURUS_PROJECT";
