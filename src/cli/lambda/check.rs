//! `surus lambda check`: finds mistakes in a template together with this configuration.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::deployed::Deployed;
use super::runtime::EVENTS;
use crate::cli::options::Project;
use crate::cli::served::open_tree;
use crate::cli::stdout::say;
use crate::config::{self, Config};
use crate::deploy::rules;
use crate::deploy::run_settings::{BatchFailures, RunSettings};
use crate::deploy::{document, stack};
use crate::fronts::lambda::ResponseMode;
use crate::fronts::lambda::batch::{self, ReportBatchItemFailures};
use crate::observe::system::Machine;
use crate::units::Size;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: Project,
    /// Template of AWS SAM or CloudFormation [default: the project's template.yaml, .yml or .json]
    template: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let project = args.project.directory()?;
    let loaded = args.project.load()?;
    let mut certain = 0;
    let mut tell = |is_certain: bool, place: &str, text: &str| {
        certain += usize::from(is_certain);
        say!("{} {place}: {text}", if is_certain { '✗' } else { '!' });
    };

    let configuration = match &loaded.file {
        Some(file) => file.display().to_string(),
        None => project.join("surus.toml").display().to_string(),
    };
    if let Some(handler) = &loaded.config.lambda.handler
        && !project.join(handler).is_file()
    {
        tell(
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
    let file_name = || format!("{}", file.display());
    let stack = document::parse(&text)
        .and_then(|template| stack::read(&template))
        .with_context(file_name)?;
    if stack.functions.is_empty() {
        bail!("{} describes no function", file.display());
    }
    let front = open_tree(&project, &loaded.config).ok();
    let front = front.and_then(|tree| Some(tree.site.front_controller()?.filename.to_path_buf()));
    let template_dir = file.parent().unwrap_or(Path::new(".")).to_path_buf();
    let runs = |function: &stack::StackFunction| {
        let variables = function
            .environment
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        let loaded = config::load(&project, loaded.file.as_deref(), variables, None)
            .context("the function's environment in the template")?;
        let memory = function.memory.as_ref().map(|memory| memory.value);
        let deployed = Deployed::find(function, &template_dir, &project, front.as_deref())?;
        Ok(runs(&loaded.config, memory, function, &deployed))
    };
    let found = rules::find(&stack, &runs).with_context(file_name)?;
    for finding in &found {
        tell(
            finding.is_certain,
            &format!("{}:{}", file.display(), finding.line),
            &finding.text,
        );
    }
    match certain {
        0 if found.is_empty() => say!("✓ {}: no problems found", file.display()),
        0 => {}
        1 => bail!("1 error, marked ✗"),
        certain => bail!("{certain} errors, marked ✗"),
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
            "no {} in {}; name the template, or print one with surus lambda template sam",
            names.join(", "),
            project.display()
        )
    })
}

/// The number of workers in all pools of a function with `memory` MB.
fn workers(config: &Config, memory: Option<u64>) -> u64 {
    // One event at a time.
    let application = config.engine.workers.unwrap_or(1);
    let lambda = &config.lambda;
    if lambda.handler.is_none() && lambda.batch == batch::BatchMode::Whole {
        return application as u64;
    }
    let pool = config.for_pool(EVENTS);
    let pool = pool.as_ref().unwrap_or(config);
    let for_events = pool.engine.workers.unwrap_or(match lambda.batch {
        batch::BatchMode::Whole => 1,
        // The estimate assumes two CPUs; with more memory there are more.
        batch::BatchMode::Record => Machine {
            cpus: 2.0,
            is_limited: true,
            memory: memory.map(|mib| mib << 20),
        }
        .worker_count(),
    });
    // Only the zip tells whether there is also an application.
    application.max(for_events) as u64
}

fn runs(
    config: &Config,
    memory: Option<u64>,
    function: &stack::StackFunction,
    deployed: &Deployed,
) -> RunSettings {
    let lambda = &config.lambda;
    let limit = config
        .php
        .get("memory_limit")
        .map_or("128M".into(), |value| value.entries().concat());
    RunSettings {
        streams: lambda.mode == ResponseMode::Stream,
        workers: workers(config, memory),
        memory_limit: limit.parse::<Size>().ok().map(|limit| limit.0 >> 20),
        deadline_margin: lambda.deadline_margin.0,
        record_timeout: lambda.record_timeout.map(|time| time.0),
        failures: match (lambda.batch, lambda.report_batch_item_failures) {
            (batch::BatchMode::Whole, _) => BatchFailures::Handler,
            (batch::BatchMode::Record, ReportBatchItemFailures::On) => BatchFailures::Reported,
            (batch::BatchMode::Record, ReportBatchItemFailures::Off) => BatchFailures::Unreported,
        },
        handler: deployed.handler(function, lambda.handler.as_deref()),
        code: deployed.code.clone(),
        sends_base64: lambda.mode == ResponseMode::Buffered
            && !lambda.binary_media_types.is_empty(),
    }
}
