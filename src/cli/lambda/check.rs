//! `surus lambda check`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::options::Project;
use crate::config::{self, Config};
use crate::deploy::findings::{self, Failures, Runs};
use crate::deploy::{document, stack};
use crate::fronts::lambda::Mode;
use crate::fronts::lambda::batch::{self, PartialBatch};
use crate::units::Size;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: Project,
    /// Template of AWS SAM or CloudFormation; template.yaml, .yml or .json of the project when not given
    template: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let project = args.project.directory()?;
    let loaded = args.project.load()?;
    let mut certain = 0;
    let mut say = |is_certain: bool, place: &str, text: &str| {
        certain += usize::from(is_certain);
        println!("{} {place}: {text}", if is_certain { '✗' } else { '!' });
    };

    let configuration = match &loaded.file {
        Some(file) => file.display().to_string(),
        None => project.join("surus.toml").display().to_string(),
    };
    if let Some(handler) = &loaded.config.lambda.handler
        && !project.join(handler).is_file()
    {
        say(
            true,
            &configuration,
            &format!(
                "[lambda] handler names {}, which does not exist",
                handler.display()
            ),
        );
    }
    let file = template(&project, args.template.as_deref())?;
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let place = || format!("{}", file.display());
    let stack = document::parse(&text)
        .and_then(|template| stack::read(&template))
        .with_context(place)?;
    if stack.functions.is_empty() {
        bail!("{} describes no function", file.display());
    }
    let runs = |environment: &BTreeMap<String, String>| {
        let variables = environment
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        let loaded = config::load(&project, loaded.file.as_deref(), variables)
            .context("the environment of the function in the template")?;
        Ok(runs(&loaded.config))
    };
    let found = findings::find(&stack, &runs).with_context(place)?;
    for finding in &found {
        say(
            finding.is_certain,
            &format!("{}:{}", file.display(), finding.line),
            &finding.text,
        );
    }
    match certain {
        0 if found.is_empty() => println!("✓ {}: nothing found", file.display()),
        0 => {}
        1 => bail!("1 thing would go wrong, marked ✗"),
        certain => bail!("{certain} things would go wrong, marked ✗"),
    }
    Ok(())
}

fn template(project: &Path, named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_path_buf());
    }
    let names = ["template.yaml", "template.yml", "template.json"];
    let mut all = names.iter().map(|name| project.join(name));
    all.find(|path| path.is_file()).with_context(|| {
        format!(
            "there is no {} in {}; name the template, or print one: surus lambda template sam",
            names.join(", "),
            project.display()
        )
    })
}

fn runs(config: &Config) -> Runs {
    let lambda = &config.lambda;
    let limit = config
        .php
        .get("memory_limit")
        .map_or("128M".into(), ToString::to_string);
    Runs {
        streams: lambda.mode == Mode::Stream,
        // As the runtime has them: one event at a time.
        workers: config.engine.workers.unwrap_or(1) as u64,
        memory_limit: limit.parse::<Size>().ok().map(|limit| limit.0 >> 20),
        reserve: lambda.reserve.0,
        record_timeout: lambda.record_timeout.map(|time| time.0),
        failures: match (lambda.batch, lambda.partial_batch) {
            (batch::Mode::Whole, _) => Failures::Handler,
            (batch::Mode::Record, PartialBatch::On) => Failures::Told,
            (batch::Mode::Record, PartialBatch::Off) => Failures::Untold,
        },
    }
}
