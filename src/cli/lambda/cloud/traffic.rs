//! What sends events to a version: the alias, the function URL and the queue.

use std::collections::HashMap;

use anyhow::Context;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::types::{
    AliasRoutingConfiguration, FunctionResponseType, FunctionUrlAuthType, InvokeMode,
};

use super::failure::explain;
use super::plan::Permission;
use super::state::{Alias, State};
use super::wanted::Wanted;
use crate::deploy::BATCH;

/// Creates the alias, or moves it to this version.
pub async fn point(
    lambda: &Client,
    wanted: &Wanted,
    before: Option<&Alias>,
    version: &str,
) -> anyhow::Result<()> {
    match before {
        Some(alias) => move_alias(lambda, wanted, version, alias.revision.as_deref()).await,
        None => {
            let created = lambda
                .create_alias()
                .function_name(&wanted.name)
                .name(&wanted.alias)
                .function_version(version);
            created.send().await.map_err(explain)?;
            Ok(())
        }
    }
}

/// `revision`: the one that the alias must still have.
pub async fn move_alias(
    lambda: &Client,
    wanted: &Wanted,
    version: &str,
    revision: Option<&str>,
) -> anyhow::Result<()> {
    // All of the traffic, even if someone had divided it.
    let undivided = AliasRoutingConfiguration::builder();
    let undivided = undivided.set_additional_version_weights(Some(HashMap::new()));
    let moved = lambda
        .update_alias()
        .function_name(&wanted.name)
        .name(&wanted.alias)
        .function_version(version)
        .routing_config(undivided.build())
        .set_revision_id(revision.map(str::to_string));
    moved.send().await.map_err(explain)?;
    Ok(())
}

/// Creates the URL and returns it.
pub async fn create_url(lambda: &Client, wanted: &Wanted) -> anyhow::Result<String> {
    let created = lambda
        .create_function_url_config()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias)
        .auth_type(FunctionUrlAuthType::None)
        .invoke_mode(InvokeMode::from(wanted.invoke_mode()));
    Ok(created.send().await.map_err(explain)?.function_url)
}

pub async fn update_url(lambda: &Client, wanted: &Wanted) -> anyhow::Result<()> {
    let updated = lambda
        .update_function_url_config()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias)
        .invoke_mode(InvokeMode::from(wanted.invoke_mode()));
    updated.send().await.map_err(explain)?;
    Ok(())
}

/// Lets the public call the URL.
pub async fn permit(
    lambda: &Client,
    wanted: &Wanted,
    permission: Permission,
) -> anyhow::Result<()> {
    let added = lambda
        .add_permission()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias)
        .statement_id(permission.id())
        .action(permission.action())
        .principal("*");
    let added = match permission {
        Permission::Url => added.function_url_auth_type(FunctionUrlAuthType::None),
        Permission::Function => added.invoked_via_function_url(true),
    };
    added.send().await.map_err(explain)?;
    Ok(())
}

fn response_types(wanted: &Wanted) -> Vec<FunctionResponseType> {
    match wanted.reports_failures {
        true => vec![FunctionResponseType::ReportBatchItemFailures],
        false => Vec::new(),
    }
}

pub async fn create_mapping(lambda: &Client, wanted: &Wanted) -> anyhow::Result<()> {
    let queue = wanted.queue.as_deref().context("no queue")?;
    let created = lambda
        .create_event_source_mapping()
        .event_source_arn(queue)
        .function_name(format!("{}:{}", wanted.name, wanted.alias))
        .batch_size(BATCH as i32)
        .set_function_response_types(Some(response_types(wanted)));
    created.send().await.map_err(explain)?;
    Ok(())
}

/// Keeps the batch size and other settings of the mapping.
pub async fn update_mapping(lambda: &Client, wanted: &Wanted, state: &State) -> anyhow::Result<()> {
    let mapping = state.mapping.as_ref().context("no mapping")?;
    let updated = lambda
        .update_event_source_mapping()
        .set_uuid(mapping.uuid.clone())
        .function_name(format!("{}:{}", wanted.name, wanted.alias))
        .set_function_response_types(Some(response_types(wanted)));
    updated.send().await.map_err(explain)?;
    Ok(())
}
