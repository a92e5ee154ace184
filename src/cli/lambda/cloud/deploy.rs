//! `surus lambda deploy`: creates or updates a function from its zip.

use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use aws_config::SdkConfig;
use aws_sdk_lambda::Client;

use super::plan::{Described, Step, steps};
use super::rollback::{BegunDeployment, Rollback};
use super::state::State;
use super::wanted::Wanted;
use super::{function, smoke, traffic};
use crate::cli::lambda::cloud_options::Deploy;
use crate::cli::stdout::say;
use crate::cli::stop_signals::StopSignals;
use crate::observe::log;

pub fn run(args: Deploy) -> anyhow::Result<()> {
    let project = args.target.project.directory()?;
    let config = args.target.load()?;
    let name = args.target.function_name(&project, &config);
    let wanted = Wanted::new(&args, name, &config)?;
    crate::cli::block_on(async {
        let sdk = args.target.connect(&config).await?;
        let lambda = Client::new(&sdk);
        let state = State::read(&lambda, &wanted).await?;
        if state.latest.is_none() && wanted.role.is_none() {
            bail!(no_role(&wanted.name));
        }
        let steps = steps(&wanted, &state);
        if args.dry_run {
            for step in &steps {
                say!("would {}", Described(step, &wanted, &state));
            }
            if steps.is_empty() {
                say!("nothing to do: {} is up to date", wanted.name);
            }
            return Ok(());
        }
        let mut deployment = Deployment {
            url: state.url.as_ref().map(|url| url.address.clone()),
            version: None,
            begun: BegunDeployment::default(),
            wanted: &wanted,
            state: &state,
            lambda,
            sdk,
        };
        if steps.is_empty() {
            tell(format_args!("{} is up to date\n", wanted.name));
        }
        let mut stop = StopSignals::listen()?;
        for step in &steps {
            deployment.take(step, &mut stop).await?;
        }
        if let Some(url) = deployment.url {
            say!("{url}");
        }
        Ok(())
    })
}

/// Progress goes to stderr, so that stdout has the URL alone.
fn tell(text: impl std::fmt::Display) {
    log::print(text);
}

struct Deployment<'a> {
    wanted: &'a Wanted,
    state: &'a State,
    lambda: Client,
    sdk: SdkConfig,
    /// The published version.
    version: Option<String>,
    begun: BegunDeployment,
    url: Option<String>,
}

impl Deployment<'_> {
    /// Takes a step. If it fails or is interrupted, what is live goes back to what it was.
    async fn take(&mut self, step: &Step, stop: &mut StopSignals) -> anyhow::Result<()> {
        let text = Described(step, self.wanted, self.state).to_string();
        tell(format_args!("{text} … "));
        let began = Instant::now();
        let outcome = tokio::select! {
            outcome = self.attempt(step) => outcome,
            () = stop.recv() => Err(anyhow!("interrupted")),
        };
        match outcome {
            Ok(done) => {
                let seconds = began.elapsed().as_secs_f32();
                tell(format_args!("{done}{seconds:.1} s\n"));
                Ok(())
            }
            Err(error) => {
                tell("failed\n");
                let rollback = self.rollback();
                let consequence = tokio::select! {
                    consequence = rollback.run() => consequence,
                    () = stop.recv() => self.interrupted_again(),
                };
                Err(error.context(format!("cannot {text}; {consequence}")))
            }
        }
    }

    fn rollback(&self) -> Rollback<'_> {
        Rollback {
            lambda: &self.lambda,
            wanted: self.wanted,
            state: self.state,
            begun: &self.begun,
            version: self.version.as_deref(),
        }
    }

    fn interrupted_again(&self) -> String {
        let (function, alias) = (&self.wanted.name, &self.wanted.alias);
        format!(
            "not rolled back, because of another interruption; aws lambda get-alias \
             --function-name {function} --name {alias} shows which version is live"
        )
    }

    /// Returns the message for the user.
    async fn attempt(&mut self, step: &Step) -> anyhow::Result<String> {
        let (lambda, wanted, state) = (&self.lambda, self.wanted, self.state);
        let version = || self.version.as_deref().context("no version");
        let mapping = || state.mapping.as_ref().context("no mapping");
        match step {
            Step::ReportFailures => traffic::update_mapping(lambda, mapping()?, None, true).await?,
            Step::Upload => {
                function::upload(&aws_sdk_s3::Client::new(&self.sdk), wanted).await?;
            }
            Step::Create => function::create(lambda, wanted).await?,
            Step::UpdateCode => function::update_code(lambda, wanted).await?,
            Step::UpdateConfiguration(_) => {
                function::update_configuration(lambda, wanted).await?;
            }
            Step::Publish => {
                let version = function::publish(lambda, wanted).await?;
                let progress = format!("version {version}, ");
                self.version = Some(version);
                return Ok(progress);
            }
            Step::Smoke => {
                let host = self.url.as_deref().and_then(smoke::host);
                smoke::request(lambda, wanted, version()?, host).await?;
            }
            Step::Point => {
                self.begun.alias = true;
                traffic::point(lambda, wanted, state.alias.as_ref(), version()?).await?;
            }
            Step::CreateUrl => self.url = Some(traffic::create_url(lambda, wanted).await?),
            Step::UpdateUrl => {
                self.begun.url = true;
                traffic::update_url(lambda, wanted, wanted.invoke_mode()).await?;
            }
            Step::Permit(permission) => traffic::permit(lambda, wanted, *permission).await?,
            Step::CreateMapping => traffic::create_mapping(lambda, wanted).await?,
            Step::UpdateMapping => {
                self.begun.mapping = true;
                let function = format!("{}:{}", wanted.name, wanted.alias);
                let reports = wanted.reports_failures;
                traffic::update_mapping(lambda, mapping()?, Some(function), reports).await?;
            }
        }
        Ok(String::new())
    }
}

fn no_role(name: &str) -> String {
    let trust = concat!(
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","#,
        r#""Principal":{"Service":"lambda.amazonaws.com"}}]}"#,
    );
    format!(
        "the function {name} does not exist yet, and needs an execution role: name one with \
         --role (deploy.role); these commands create one:\n\
         aws iam create-role --role-name {name} --assume-role-policy-document '{trust}'\n\
         aws iam attach-role-policy --role-name {name} --policy-arn \
         arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
    )
}
