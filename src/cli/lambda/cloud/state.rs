//! The function as it is on AWS.

use std::collections::HashMap;

use anyhow::{Context, bail};
use aws_sdk_lambda::Client;
use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;
use aws_sdk_lambda::types::{EventSourceMappingConfiguration, PackageType};

use super::failure::{explain, is_missing};
use super::wanted::Wanted;

/// What there is before a deployment.
#[derive(Default)]
pub struct State {
    /// `$LATEST`; None if there is no such function.
    pub latest: Option<GetFunctionConfigurationOutput>,
    pub alias: Option<Alias>,
    pub url: Option<Url>,
    /// Ids of the statements in the policy of the alias.
    pub permissions: Vec<String>,
    pub mapping: Option<EventSourceMappingConfiguration>,
}

pub struct Alias {
    pub version: String,
    pub revision: Option<String>,
    /// The version's configuration.
    pub configuration: GetFunctionConfigurationOutput,
}

pub struct Url {
    pub address: String,
    pub invoke_mode: String,
    pub is_public: bool,
}

impl State {
    pub async fn read(lambda: &Client, wanted: &Wanted) -> anyhow::Result<State> {
        let name = &wanted.name;
        let asked = format!("cannot read the function {name}");
        let Some(latest) = configuration(lambda, name, None).await.context(asked)? else {
            return Ok(State::default());
        };
        if latest.package_type() == Some(&PackageType::Image) {
            bail!(
                "the function {name} is a container image, which a zip cannot replace; deploy \
                 under another name (--name), or delete it with aws lambda delete-function"
            );
        }
        let alias = alias(lambda, wanted).await;
        let alias = alias.with_context(|| format!("cannot read the alias {}", wanted.alias))?;
        let is_there = alias.is_some();
        let url = match wanted.url && is_there {
            true => url(lambda, wanted)
                .await
                .context("cannot read the function URL")?,
            false => None,
        };
        let permissions = match wanted.url && is_there {
            true => permissions(lambda, wanted)
                .await
                .context("cannot read the policy of the function")?,
            false => Vec::new(),
        };
        let mapping = match &wanted.queue {
            Some(queue) => mapping(lambda, name, queue)
                .await
                .context("cannot read the event source mappings")?,
            None => None,
        };
        Ok(State {
            latest: Some(latest),
            alias,
            url,
            permissions,
            mapping,
        })
    }
}

/// The configuration of `$LATEST`, or of a version or an alias.
pub async fn configuration(
    lambda: &Client,
    name: &str,
    qualifier: Option<&str>,
) -> anyhow::Result<Option<GetFunctionConfigurationOutput>> {
    let asked = lambda.get_function_configuration().function_name(name);
    let asked = asked.set_qualifier(qualifier.map(str::to_string));
    match asked.send().await {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(explain(error)),
    }
}

async fn alias(lambda: &Client, wanted: &Wanted) -> anyhow::Result<Option<Alias>> {
    let asked = lambda.get_alias().function_name(&wanted.name);
    let alias = match asked.name(&wanted.alias).send().await {
        Ok(alias) => alias,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(explain(error)),
    };
    let version = alias.function_version().context("it has no version")?;
    let configuration = configuration(lambda, &wanted.name, Some(version)).await?;
    Ok(Some(Alias {
        version: version.into(),
        revision: alias.revision_id().map(str::to_string),
        configuration: configuration.with_context(|| format!("version {version} is missing"))?,
    }))
}

async fn url(lambda: &Client, wanted: &Wanted) -> anyhow::Result<Option<Url>> {
    let asked = lambda
        .get_function_url_config()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias);
    match asked.send().await {
        Ok(url) => Ok(Some(Url {
            address: url.function_url().into(),
            invoke_mode: url
                .invoke_mode()
                .map_or("BUFFERED", |it| it.as_str())
                .into(),
            is_public: url.auth_type().as_str() == "NONE",
        })),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(explain(error)),
    }
}

async fn permissions(lambda: &Client, wanted: &Wanted) -> anyhow::Result<Vec<String>> {
    let asked = lambda
        .get_policy()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias);
    let policy = match asked.send().await {
        Ok(found) => found.policy.unwrap_or_default(),
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        Err(error) => return Err(explain(error)),
    };
    let policy: serde_json::Value = serde_json::from_str(&policy)?;
    let statements = policy["Statement"].as_array().into_iter().flatten();
    let ids = statements.filter_map(|statement| statement["Sid"].as_str());
    Ok(ids.map(str::to_string).collect())
}

/// The mapping from the queue to this function, whichever version or alias it calls.
async fn mapping(
    lambda: &Client,
    name: &str,
    queue: &str,
) -> anyhow::Result<Option<EventSourceMappingConfiguration>> {
    let pages = lambda.list_event_source_mappings().event_source_arn(queue);
    let mut pages = pages.into_paginator().items().send();
    while let Some(mapping) = pages.try_next().await.map_err(explain)? {
        let arn = mapping.function_arn().unwrap_or_default();
        // arn:aws:lambda:REGION:ACCOUNT:function:NAME[:ALIAS]
        if arn.split(':').nth(6) == Some(name) {
            return Ok(Some(mapping));
        }
    }
    Ok(None)
}

/// The variables of a function.
pub fn variables(function: &GetFunctionConfigurationOutput) -> HashMap<String, String> {
    let environment = function.environment();
    let variables = environment.and_then(|it| it.variables()).cloned();
    variables.unwrap_or_default()
}
