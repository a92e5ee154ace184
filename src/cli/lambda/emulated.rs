//! Options of the emulated function, shared by `surus lambda dev` and `surus lambda invoke`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::config;
use crate::emulator::cgroup::Cgroup;
use crate::emulator::fault_injection::{Faults, Injection};
use crate::emulator::{EmulatedFunction, Initialization, LogFormat, Resources, Runtime};
use crate::observe::log;
use crate::units::Time;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Memory of the function in MB; determines its share of a CPU
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    memory: u64,
    /// Timeout of the function
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Time,
    /// Name of the function [default: the directory's name]
    #[arg(long)]
    name: Option<String>,
    /// Value of `_HANDLER`, which names the function's handler
    #[arg(long, default_value = "index.php")]
    handler: String,
    /// Environment variable of the function; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Executable to start instead of `surus lambda DIR`; it must use the Runtime API
    #[arg(long, value_name = "FILE")]
    bootstrap: Option<PathBuf>,
    /// Directory with executables of extensions, like /opt/extensions
    #[arg(long, value_name = "DIR")]
    extensions: Option<PathBuf>,
    /// Initialize before the first event (provisioned concurrency)
    #[arg(long, conflicts_with_all = ["snapstart", "managed"])]
    provisioned: bool,
    /// Take a snapshot before the first event, and restore it
    #[arg(long, conflicts_with = "managed")]
    snapstart: bool,
    /// Emulate a managed instance with N concurrent events
    #[arg(long, value_name = "N")]
    managed: Option<usize>,
    /// Format of the log: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = log_format)]
    log_format: LogFormat,
    /// Inject a fault into every event or every Nth: freeze, timeout, 410, 413, 500, slow-next,
    /// duplicate, kill-worker, out-of-memory, read-only; may be repeated
    #[arg(long, value_name = "NAME[@N]")]
    fault: Vec<Injection>,
    /// Do not limit the function's CPU and memory
    #[arg(long)]
    unlimited: bool,
    /// Fail if the function's CPU and memory cannot be limited, instead of running without limits
    #[arg(long, conflicts_with = "unlimited")]
    require_limits: bool,
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text.to_ascii_lowercase().as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json".into()),
    }
}

impl Options {
    /// The function in this directory. Its log goes to stderr.
    pub fn function(&self, project: &Path) -> anyhow::Result<EmulatedFunction> {
        let directory = std::path::absolute(project)?;
        if !directory.is_dir() {
            bail!(
                "{} is not a directory; name the application's directory",
                directory.display()
            );
        }
        if !(128..=10_240).contains(&self.memory) {
            bail!("--memory {}: Lambda accepts 128 to 10240 MB", self.memory);
        }
        if self.timeout.0.is_zero() || self.timeout > Time::seconds(900) {
            bail!("--timeout {}: Lambda accepts 1s to 15m", self.timeout);
        }
        let name = directory.file_name().map(|name| name.to_string_lossy());
        let name = self.name.clone().or(name.map(|name| name.into_owned()));
        let (program, arguments) = match &self.bootstrap {
            Some(file) => (std::path::absolute(file)?, Vec::new()),
            None => {
                let program = std::env::current_exe()
                    .context("cannot determine the path of the surus executable")?;
                let arguments = vec!["lambda".to_string(), directory.display().to_string()];
                (program, arguments)
            }
        };
        let mut function = EmulatedFunction::new(Runtime::Command {
            program,
            arguments,
            directory,
        });
        if let Some(name) = name {
            function.name = name;
        }
        function.handler.clone_from(&self.handler);
        function.memory = self.memory;
        function.timeout = self.timeout.0;
        function.log_format = match self.managed {
            // Managed instances log JSON only.
            Some(_) => LogFormat::Json,
            None => self.log_format,
        };
        function.extensions.clone_from(&self.extensions);
        function.faults = Faults::new(self.fault.clone());
        function.initialization = match self.managed {
            Some(0) => bail!("--managed 0: expected the number of concurrent events"),
            Some(concurrency) => Initialization::ManagedInstances { concurrency },
            None if self.snapstart => Initialization::SnapStart,
            None if self.provisioned => Initialization::Provisioned,
            None => Initialization::OnDemand,
        };
        // The environment passes Surus's settings and the user's credentials to the function.
        function.variables.extend(config::env::read()?);
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
        ] {
            if let Ok(value) = std::env::var(name) {
                function.variables.insert(name.to_owned(), value);
            }
        }
        for variable in &self.env {
            let Some((name, value)) = variable.split_once('=') else {
                bail!("--env {variable}: expected NAME=VALUE");
            };
            function.variables.insert(name.into(), value.into());
        }
        function.keeps_log = false;
        function.sink = Some(Arc::new(|line: &str| log::print(format_args!("{line}\n"))));
        if !self.unlimited {
            let permitted = Cgroup::try_out(self.memory);
            function.resources = self.resources(permitted)?;
        }
        Ok(function)
    }
    /// What the function gets, if control groups are permitted or not.
    fn resources(&self, permitted: anyhow::Result<()>) -> anyhow::Result<Resources> {
        let Err(error) = permitted else {
            return Ok(Resources::Limited);
        };
        let message = format!(
            "cannot limit the function to {:.2} CPU and {} MB, because control groups are not \
             permitted here ({error:#})",
            Cgroup::share(self.memory),
            self.memory
        );
        if self.require_limits {
            bail!("{message}; run as root on a machine that permits them (--require-limits)");
        }
        log::print(format_args!(
            "surus: {message}; --unlimited hides this message\n"
        ));
        Ok(Resources::Unlimited)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    #[test]
    fn limits_that_are_not_permitted_are_an_error_if_they_are_required() {
        let options = |args: &[&str]| {
            let command = Options::augment_args(clap::Command::new("surus"));
            let all = ["surus", "--memory", "128"].iter().chain(args);
            Options::from_arg_matches(&command.try_get_matches_from(all).unwrap()).unwrap()
        };
        let refused = || Err(anyhow::anyhow!("read-only file system"));
        let (may, must) = (options(&[]), options(&["--require-limits"]));
        assert!(may.resources(refused()).is_ok());
        let error = must.resources(refused()).unwrap_err().to_string();
        let expected = "cannot limit the function to 0.07 CPU and 128 MB, because control groups \
                        are not permitted here (read-only file system); ";
        assert!(error.starts_with(expected), "{error}");
        assert!(error.ends_with("(--require-limits)"), "{error}");
        assert!(must.resources(Ok(())).is_ok());
    }
}
