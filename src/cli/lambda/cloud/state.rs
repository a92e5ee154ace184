//! The function as it is on AWS.

use std::collections::HashMap;

use anyhow::{Context, bail};
use aws_sdk_lambda::Client;
use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;
use aws_sdk_lambda::types::{
    AliasRoutingConfiguration, EventSourceMappingConfiguration, FunctionResponseType, PackageType,
};

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
    /// Other versions with their shares of the traffic.
    pub weights: HashMap<String, f64>,
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
        let failure = format!("cannot read the function {name}");
        let Some(latest) = configuration(lambda, name, None).await.context(failure)? else {
            return Ok(State::default());
        };
        check(&latest, name)?;
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
            Some(queue) => mapping(lambda, wanted, queue)
                .await
                .context("cannot connect the queue")?,
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

/// Rejects functions that a deployment could not update without loss.
fn check(latest: &GetFunctionConfigurationOutput, name: &str) -> anyhow::Result<()> {
    if latest.package_type() == Some(&PackageType::Image) {
        bail!(
            "the function {name} is a container image, which a zip cannot replace; deploy under \
             another name (--name), or delete it with aws lambda delete-function"
        );
    }
    if let Some(error) = latest.environment().and_then(|it| it.error()) {
        bail!(
            "AWS does not show the variables of the function {name} ({}), so an update would \
             delete them; your credentials need kms:Decrypt for the function's key",
            error.error_code().unwrap_or("error without a code")
        );
    }
    Ok(())
}

/// The configuration of `$LATEST`, or of a version or an alias.
pub async fn configuration(
    lambda: &Client,
    name: &str,
    qualifier: Option<&str>,
) -> anyhow::Result<Option<GetFunctionConfigurationOutput>> {
    let request = lambda.get_function_configuration().function_name(name);
    let request = request.set_qualifier(qualifier.map(str::to_string));
    match request.send().await {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(explain(error)),
    }
}

async fn alias(lambda: &Client, wanted: &Wanted) -> anyhow::Result<Option<Alias>> {
    let request = lambda.get_alias().function_name(&wanted.name);
    let alias = match request.name(&wanted.alias).send().await {
        Ok(alias) => alias,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(explain(error)),
    };
    let version = alias.function_version().context("it has no version")?;
    let configuration = configuration(lambda, &wanted.name, Some(version)).await?;
    Ok(Some(Alias {
        version: version.into(),
        revision: alias.revision_id().map(str::to_string),
        weights: weights(alias.routing_config()),
        configuration: configuration.with_context(|| format!("version {version} is missing"))?,
    }))
}

fn weights(routing: Option<&AliasRoutingConfiguration>) -> HashMap<String, f64> {
    let weights = routing.and_then(|it| it.additional_version_weights());
    weights.cloned().unwrap_or_default()
}

async fn url(lambda: &Client, wanted: &Wanted) -> anyhow::Result<Option<Url>> {
    let request = lambda
        .get_function_url_config()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias);
    match request.send().await {
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
    let request = lambda
        .get_policy()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias);
    let policy = match request.send().await {
        Ok(found) => found.policy.unwrap_or_default(),
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        Err(error) => return Err(explain(error)),
    };
    let policy: serde_json::Value = serde_json::from_str(&policy)?;
    let statements = policy["Statement"].as_array().into_iter().flatten();
    let ids = statements.filter_map(|statement| statement["Sid"].as_str());
    Ok(ids.map(str::to_string).collect())
}

/// The mapping from the queue to this function.
async fn mapping(
    lambda: &Client,
    wanted: &Wanted,
    queue: &str,
) -> anyhow::Result<Option<EventSourceMappingConfiguration>> {
    let pages = lambda.list_event_source_mappings().event_source_arn(queue);
    let mut pages = pages.into_paginator().items().send();
    let mut found = Vec::new();
    while let Some(mapping) = pages.try_next().await.map_err(explain)? {
        found.push(mapping);
    }
    choose(found, &wanted.name, &wanted.alias)
}

/// Chooses the mapping to the alias, else one to a version or to `$LATEST`. Fails if the queue
/// sends its messages to another alias, which would lose them.
fn choose(
    mappings: Vec<EventSourceMappingConfiguration>,
    name: &str,
    alias: &str,
) -> anyhow::Result<Option<EventSourceMappingConfiguration>> {
    let mut unnamed = None;
    let mut other = None;
    for mapping in mappings {
        // arn:aws:lambda:REGION:ACCOUNT:function:NAME[:QUALIFIER]
        let arn = mapping.function_arn().unwrap_or_default().to_string();
        let mut words = arn.split(':').skip(6);
        if words.next() != Some(name) {
            continue;
        }
        match words.next() {
            Some(qualifier) if qualifier == alias => return Ok(Some(mapping)),
            None | Some("$LATEST") => unnamed = Some(mapping),
            Some(version) if version.bytes().all(|it| it.is_ascii_digit()) => {
                unnamed = Some(mapping);
            }
            Some(qualifier) => other = Some((qualifier.to_string(), mapping)),
        }
    }
    if unnamed.is_none()
        && let Some((qualifier, mapping)) = other
    {
        bail!(
            "the queue sends its messages to the alias {qualifier} of {name}; name another queue \
             (--queue), or move this one with aws lambda update-event-source-mapping --uuid {} \
             --function-name {name}:{alias}",
            mapping.uuid().unwrap_or("UUID")
        );
    }
    Ok(unnamed)
}

/// Whether a mapping deletes only the messages that the function does not report.
pub fn reports_failures(mapping: &EventSourceMappingConfiguration) -> bool {
    let types = mapping.function_response_types();
    types.contains(&FunctionResponseType::ReportBatchItemFailures)
}

/// The variables of a function.
pub fn variables(function: &GetFunctionConfigurationOutput) -> HashMap<String, String> {
    let environment = function.environment();
    let variables = environment.and_then(|it| it.variables()).cloned();
    variables.unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use aws_sdk_lambda::types::{EnvironmentError, EnvironmentResponse};

    use super::*;

    #[test]
    fn function_whose_variables_are_hidden_is_not_updated() {
        let error = EnvironmentError::builder().error_code("AccessDeniedException");
        let hidden = EnvironmentResponse::builder().error(error.build()).build();
        let function = GetFunctionConfigurationOutput::builder().environment(hidden);
        let error = check(&function.build(), "shop").unwrap_err().to_string();
        assert!(error.contains("kms:Decrypt"), "{error}");
        let image = GetFunctionConfigurationOutput::builder().package_type(PackageType::Image);
        let error = check(&image.build(), "shop").unwrap_err().to_string();
        assert!(error.contains("container image"), "{error}");
        let zip = GetFunctionConfigurationOutput::builder().build();
        assert!(check(&zip, "shop").is_ok());
    }

    #[test]
    fn queue_of_another_alias_is_not_taken_away() {
        let chosen = |functions: &[&str]| {
            let mapping = |function: &&str| {
                EventSourceMappingConfiguration::builder()
                    .function_arn(format!("arn:aws:lambda:eu-west-1:1:function:{function}"))
                    .uuid(*function)
                    .build()
            };
            let mappings = functions.iter().map(mapping).collect();
            choose(mappings, "shop", "staging")
                .map(|it| it.map(|it| it.uuid.unwrap()))
                .map_err(|error| error.to_string())
        };
        let is = |name: &str| Ok(Some(name.to_string()));
        assert_eq!(chosen(&[]), Ok(None));
        assert_eq!(chosen(&["other:live", "shopping"]), Ok(None));
        assert_eq!(chosen(&["shop", "shop:staging"]), is("shop:staging"));
        for movable in ["shop", "shop:$LATEST", "shop:7"] {
            assert_eq!(chosen(&["shop:live", movable]), is(movable));
        }
        let error = chosen(&["shop:live"]).unwrap_err();
        assert!(error.contains("to the alias live of shop"), "{error}");
        assert!(error.contains("--uuid shop:live"), "{error}");
    }
}
