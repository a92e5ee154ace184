//! `surus init`: tries the engines with an application, and writes a commented `surus.toml`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};

use super::bench::{self, Tried};
use super::engine_setup;
use super::options::Project;
use crate::app::detect::DetectedApplication;
use crate::cli::stdout::{print, say};

/// Columns of a comment.
const COLUMNS: usize = 90;

/// Settings that many users change, with their purpose.
const OTHERS: &str = "\
#workers = 4                      # PHP processes; not set: two per CPU
#warmup = \"learn\"                # Symfony, Laravel: learn the pages, instead of a list

#[http]
#listen = [\"0.0.0.0:80\"]          # not set: 127.0.0.1:8080
#trusted_proxies = [\"10.0.0.0/8\"] # proxies whose X-Forwarded-* headers count

#[env]
#APP_ENV = \"production\"           # PHP sees these variables only (engine.clear_env)

#[php]
#memory_limit = \"256M\"
";

#[derive(Debug, clap::Args)]
pub struct Init {
    /// Directory of the application
    #[arg(default_value = ".", value_name = "DIR")]
    dir: PathBuf,
    /// Path that visitors request; several may follow
    #[arg(long = "path", value_name = "PATH", num_args = 1.., default_value = "/")]
    paths: Vec<String>,
    /// Header to send; may be repeated [default: 'Host: localhost']
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
}

pub fn run(args: Init) -> anyhow::Result<()> {
    let named = args.dir.display().to_string();
    let project = Project::new(args.dir, None);
    let directory = project.directory()?;
    let file = directory.join("surus.toml");
    if file.symlink_metadata().is_ok() {
        bail!(
            "{} exists, and `surus init` overwrites nothing; `surus bench app {named}` measures \
             the engines",
            file.display()
        );
    }
    let cannot = || format!("cannot write {}", file.display());
    // The engines take a minute.
    tempfile::tempfile_in(&directory).with_context(cannot)?;
    let mut config = project.load()?.config;
    engine_setup::look_at_application(&directory, &mut config);
    let application = name(&config.application);
    let tried = bench::try_engines(project, args.paths, args.headers)?;
    let text = text(&application, &tried)?;
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).open(&file);
    created
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(cannot)?;
    print(&text);
    say!(
        "\nwritten to {}; `surus serve {named}` reads it, but with --config, as in the packaged \
         systemd units, it does not",
        file.display()
    );
    Ok(())
}

fn name(application: &DetectedApplication) -> String {
    match application {
        DetectedApplication::Known(framework)
        | DetectedApplication::NotBootable { framework, .. } => framework.to_string(),
        DetectedApplication::Own => "an application with a boot script of its own".into(),
        DetectedApplication::Unknown => "a PHP application".into(),
    }
}

/// The file. Fails if no engine can be recommended.
fn text(application: &str, tried: &Tried) -> anyhow::Result<String> {
    let Some(advice) = &tried.advice else {
        let engines = tried.engines.join("; ");
        bail!("no engine served every request as the reference does: {engines}");
    };
    let mut text = comment(&format!(
        "For {application}, by `surus init`. surus.toml.example has all settings. To see what \
         would run: surus check"
    ));
    text.push_str("\n[engine]\n");
    text.push_str(&comment(&tried.requests));
    for line in &tried.engines {
        text.push_str(&comment(&format!("- {line}")));
    }
    for reason in &advice.reasons {
        text.push_str(&comment(reason));
    }
    for line in advice.lines.iter().filter(|line| *line != "[engine]") {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(OTHERS);
    Ok(text)
}

/// Text as lines of a comment.
fn comment(text: &str) -> String {
    // TOML has no control characters in comments.
    let text = text.replace(char::is_control, " ");
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        if length == 0 || length + word.chars().count() >= COLUMNS {
            lines.push_str(if lines.is_empty() { "#" } else { "\n#" });
            length = 1;
        }
        lines.push(' ');
        lines.push_str(word);
        length += 1 + word.chars().count();
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn written_file_is_a_configuration_with_the_recommended_engine() {
        let advice = surus_measure::Advice {
            title: "Recommended: rewind".into(),
            reasons: vec!["It isolates: a request finds nothing \u{1b}[31m.\nname = 1".into()],
            file: String::new(),
            lines: vec!["[engine]".into(), "name = \"rewind\"".into()],
        };
        let tried = Tried {
            advice: Some(advice),
            engines: vec!["classic: 12.3 ms, the reference".into()],
            requests: "GET /; 2 rounds".into(),
        };
        let text = text("Laravel 12.1", &tried).unwrap();
        let config: Config = toml::from_str(&text).unwrap();
        assert_eq!(config.engine.name.as_deref(), Some("rewind"));
        let uncommented = text.replace("\n#[", "\n[").replace("\n#w", "\nw");
        assert!(uncommented.contains("\nworkers = 4"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_written_if_no_engine_can_be_recommended() {
        let tried = Tried {
            advice: None,
            engines: vec!["classic: cannot run it: 500".into()],
            requests: String::new(),
        };
        let error = text("a PHP application", &tried).unwrap_err().to_string();
        assert!(error.contains("classic: cannot run it: 500"), "{error}");
    }
}
