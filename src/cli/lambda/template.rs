//! `surus lambda template`: prints a template for a deployment tool.

use std::path::Path;

use anyhow::{Context, bail};

use crate::cli::options::Project;
use crate::cli::stdout;
use crate::config::Config;
use crate::deploy::{
    API_SECONDS, Function, Http, TriggerQueue, cdk, dockerfile, sam, serverless, terraform,
};
use crate::engines;
use crate::fronts::lambda::ResponseMode;
use crate::package::extensions;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Deployment tool
    tool: Tool,
    #[command(flatten)]
    project: Project,
    /// Name of the function [default: the project directory's name]
    #[arg(long)]
    name: Option<String>,
    /// Trigger for HTTP requests [default: url, or none with --queue]
    #[arg(long)]
    http: Option<Http>,
    /// Queue that triggers the function
    #[arg(long)]
    queue: Option<TriggerQueue>,
    /// Memory in MB; CPU is proportional, 1769 MB are one CPU
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    memory: u32,
    /// Timeout in seconds [default: 28 behind an HTTP API, otherwise 60]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// x86_64 or arm64 [default: this machine's]
    #[arg(long, value_parser = ["x86_64", "arm64"])]
    architecture: Option<String>,
    /// Environment variable of the function, as NAME=VALUE; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Zip that `surus lambda package` has built
    #[arg(long, value_name = "FILE", default_value = "function.zip")]
    zip: String,
    /// PHP extension in addition to those of composer.json, for the Dockerfile; may be repeated
    #[arg(long = "extension", value_name = "NAME")]
    extensions: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// AWS SAM
    Sam,
    /// Terraform and OpenTofu
    Terraform,
    /// AWS CDK, in TypeScript
    Cdk,
    /// Serverless Framework and osls
    Serverless,
    /// A container image on Debian
    Dockerfile,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let project = args.project.directory()?;
    let config = args.project.load()?.config;
    if args.tool == Tool::Dockerfile {
        stdout::print(image(&args, &project, &config)?);
        return Ok(());
    }
    let function = function(&args, &project, &config)?;
    function.check()?;
    let text = match args.tool {
        Tool::Sam => sam::template(&function),
        Tool::Terraform => terraform::template(&function),
        Tool::Cdk => cdk::template(&function),
        Tool::Serverless | Tool::Dockerfile => serverless::template(&function),
    };
    stdout::print(text);
    Ok(())
}

fn function(args: &Args, project: &Path, config: &Config) -> anyhow::Result<Function> {
    let http = match (args.http, args.queue) {
        (Some(http), _) => http,
        (None, Some(_)) => Http::None,
        (None, None) => Http::Url,
    };
    let mut environment = std::collections::BTreeMap::new();
    for entry in &args.environment {
        let (name, value) = entry
            .split_once('=')
            .with_context(|| format!("--env {entry}: expected NAME=VALUE"))?;
        environment.insert(name.to_string(), value.to_string());
    }
    if config.lambda.handler.is_none() && args.queue.is_some() {
        bail!(
            "--queue: the function needs a PHP file for its messages; name it in surus.toml: \
             [lambda] handler = \"…\""
        );
    }
    let handler = handler_of(config)?;
    let default_timeout = if http == Http::Api {
        API_SECONDS - 2
    } else {
        60
    };
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x86_64",
    };
    Ok(Function {
        name: args.name.clone().unwrap_or_else(|| name_of(project)),
        handler,
        architecture: args
            .architecture
            .clone()
            .unwrap_or_else(|| architecture.into()),
        memory: args.memory,
        timeout: args.timeout.unwrap_or(default_timeout),
        http,
        queue: args.queue,
        streams: config.lambda.mode == ResponseMode::Stream,
        environment,
        zip: args.zip.clone(),
    })
}

/// `_HANDLER` of a function.
pub fn handler_of(config: &Config) -> anyhow::Result<String> {
    match &config.lambda.handler {
        Some(file) => {
            let name = file.to_str().context("lambda.handler is not UTF-8")?;
            Ok(name.into())
        }
        // Lambda requires a value but does not use it.
        None => Ok("bootstrap".into()),
    }
}

/// `/srv/My_Shop 2` → `my-shop-2`.
pub fn name_of(project: &Path) -> String {
    let name = project
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    let words = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-");
    if name.is_empty() {
        "application".into()
    } else {
        name
    }
}

fn image(args: &Args, project: &Path, config: &Config) -> anyhow::Result<String> {
    let program = engines::surus_php::find(config.engine.surus_php.as_deref())?;
    let mut requested = config.package.extensions.clone();
    requested.extend(args.extensions.iter().cloned());
    dockerfile::write(&program, &extensions::wanted(project, &requested)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_name_is_the_directory_name() {
        for (path, name) in [
            ("/srv/shop", "shop"),
            ("/srv/My_Shop 2", "my-shop-2"),
            ("/", "application"),
        ] {
            assert_eq!(name_of(Path::new(path)), name);
        }
    }
}
