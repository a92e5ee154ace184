//! Changes the alias, the function URL and the queue, which send events to a version.

use std::collections::HashMap;

use anyhow::{Context, bail};
use aws_sdk_lambda::Client;
use aws_sdk_lambda::types::{
    AliasRoutingConfiguration, EventSourceMappingConfiguration, FunctionResponseType,
    FunctionUrlAuthType, InvokeMode,
};

use super::failure::explain;
use super::function::{PAUSE, PAUSES};
use super::plan::Permission;
use super::state::Alias;
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
        Some(alias) => {
            // All of the traffic, even if someone had divided it.
            let undivided = HashMap::new();
            let revision = alias.revision.as_deref();
            move_alias(lambda, wanted, version, undivided, revision).await
        }
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

/// `weights`: other versions with their shares of the traffic. `revision`: the one that the alias
/// must still have.
pub async fn move_alias(
    lambda: &Client,
    wanted: &Wanted,
    version: &str,
    weights: HashMap<String, f64>,
    revision: Option<&str>,
) -> anyhow::Result<()> {
    let routing = AliasRoutingConfiguration::builder();
    let routing = routing.set_additional_version_weights(Some(weights));
    let moved = lambda
        .update_alias()
        .function_name(&wanted.name)
        .name(&wanted.alias)
        .function_version(version)
        .routing_config(routing.build())
        .set_revision_id(revision.map(str::to_string));
    moved.send().await.map_err(explain)?;
    Ok(())
}

/// The version that the alias calls now, and the alias's revision.
pub async fn current(
    lambda: &Client,
    wanted: &Wanted,
) -> anyhow::Result<(Option<String>, Option<String>)> {
    let request = lambda.get_alias().function_name(&wanted.name);
    let alias = request.name(&wanted.alias).send().await.map_err(explain)?;
    Ok((alias.function_version, alias.revision_id))
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

pub async fn update_url(lambda: &Client, wanted: &Wanted, mode: &str) -> anyhow::Result<()> {
    let updated = lambda
        .update_function_url_config()
        .function_name(&wanted.name)
        .qualifier(&wanted.alias)
        .invoke_mode(InvokeMode::from(mode));
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

fn response_types(reports: bool) -> Vec<FunctionResponseType> {
    match reports {
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
        .set_function_response_types(Some(response_types(wanted.reports_failures)));
    created.send().await.map_err(explain)?;
    Ok(())
}

/// Changes the receiver of messages, or whether failures are reported. The batch size and other
/// settings stay. Waits until AWS has finished.
pub async fn update_mapping(
    lambda: &Client,
    mapping: &EventSourceMappingConfiguration,
    function: Option<String>,
    reports: bool,
) -> anyhow::Result<()> {
    let uuid = mapping.uuid().context("the mapping has no id")?;
    let updated = lambda
        .update_event_source_mapping()
        .uuid(uuid)
        .set_function_name(function)
        .set_function_response_types(Some(response_types(reports)));
    updated.send().await.map_err(explain)?;
    for _ in 0..PAUSES {
        let request = lambda.get_event_source_mapping().uuid(uuid).send();
        let now = request.await.map_err(explain)?;
        if !matches!(now.state(), Some("Enabling" | "Disabling" | "Updating")) {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("AWS still updates the event source mapping {uuid} after ten minutes; deploy again later")
}
