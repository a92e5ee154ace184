//! Creates and updates the function and its versions.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use aws_sdk_lambda::Client;
use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::{
    Architecture, Environment, FunctionCode, LastUpdateStatus, Runtime, State as Lifecycle,
};
use aws_sdk_s3::primitives::ByteStream;

use super::failure::explain;
use super::plan::RUNTIME;
use super::state::{State, configuration, variables};
use super::wanted::Wanted;

/// How often, and how many times, AWS is asked whether an update has ended.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSES: usize = 600;

/// Stores the zip in the bucket, unless it is there.
pub async fn upload(s3: &aws_sdk_s3::Client, wanted: &Wanted) -> anyhow::Result<()> {
    let bucket = wanted.bucket.as_deref().context("no bucket")?;
    let key = wanted.key();
    let there = s3.head_object().bucket(bucket).key(&key).send().await;
    if there.is_ok() {
        return Ok(());
    }
    let body = ByteStream::from(wanted.zip.content()?);
    let sent = s3.put_object().bucket(bucket).key(key).body(body);
    sent.send().await.map_err(explain)?;
    Ok(())
}

pub async fn create(lambda: &Client, wanted: &Wanted) -> anyhow::Result<()> {
    let role = wanted.role.as_deref().context("no role")?;
    let code = match &wanted.bucket {
        Some(bucket) => FunctionCode::builder()
            .s3_bucket(bucket)
            .s3_key(wanted.key()),
        None => FunctionCode::builder().zip_file(Blob::new(wanted.zip.content()?)),
    };
    let environment = environment(HashMap::new(), wanted);
    let created = lambda
        .create_function()
        .function_name(&wanted.name)
        .runtime(Runtime::from(RUNTIME))
        .architectures(Architecture::from(wanted.zip.architecture))
        .handler(&wanted.handler)
        .role(role)
        .memory_size(wanted.memory)
        .timeout(wanted.timeout)
        .environment(environment)
        .code(code.build());
    created.send().await.map_err(explain)?;
    settle(lambda, &wanted.name, None).await
}

pub async fn update_code(lambda: &Client, wanted: &Wanted) -> anyhow::Result<()> {
    // Another deployment may be in progress.
    settle(lambda, &wanted.name, None).await?;
    let update = lambda
        .update_function_code()
        .function_name(&wanted.name)
        .architectures(Architecture::from(wanted.zip.architecture));
    let update = match &wanted.bucket {
        Some(bucket) => update.s3_bucket(bucket).s3_key(wanted.key()),
        None => update.zip_file(Blob::new(wanted.zip.content()?)),
    };
    update.send().await.map_err(explain)?;
    settle(lambda, &wanted.name, None).await
}

pub async fn update_configuration(
    lambda: &Client,
    wanted: &Wanted,
    state: &State,
) -> anyhow::Result<()> {
    settle(lambda, &wanted.name, None).await?;
    let there = state.latest.as_ref().map(variables).unwrap_or_default();
    let update = lambda
        .update_function_configuration()
        .function_name(&wanted.name)
        .runtime(Runtime::from(RUNTIME))
        .handler(&wanted.handler)
        .set_role(wanted.role.clone())
        .memory_size(wanted.memory)
        .timeout(wanted.timeout)
        .environment(environment(there, wanted));
    update.send().await.map_err(explain)?;
    settle(lambda, &wanted.name, None).await
}

/// Publishes a version and returns its number. Lambda returns the last one if nothing has changed.
pub async fn publish(lambda: &Client, wanted: &Wanted) -> anyhow::Result<String> {
    let published = lambda
        .publish_version()
        .function_name(&wanted.name)
        .code_sha256(&wanted.zip.sha256);
    let published = published.send().await.map_err(explain)?;
    let version = published.version.context("AWS has named no version")?;
    settle(lambda, &wanted.name, Some(&version)).await?;
    Ok(version)
}

fn environment(mut there: HashMap<String, String>, wanted: &Wanted) -> Environment {
    there.extend(wanted.environment.clone());
    Environment::builder().set_variables(Some(there)).build()
}

/// Waits until AWS has finished what was asked of it.
async fn settle(lambda: &Client, name: &str, version: Option<&str>) -> anyhow::Result<()> {
    for _ in 0..PAUSES {
        let found = configuration(lambda, name, version).await?;
        let found = found.with_context(|| format!("the function {name} has been deleted"))?;
        if is_settled(&found)? {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("AWS still updates the function {name} after ten minutes; deploy again later")
}

fn is_settled(function: &GetFunctionConfigurationOutput) -> anyhow::Result<bool> {
    let failed = |what: &str, reason: Option<&str>| {
        let reason = reason.unwrap_or("AWS gives no reason");
        anyhow!("AWS could not {what} the function: {reason}")
    };
    match function.state() {
        Some(Lifecycle::Pending) => return Ok(false),
        Some(Lifecycle::Failed) => return Err(failed("create", function.state_reason())),
        // `Inactive` becomes active with the next invocation.
        _ => {}
    }
    match function.last_update_status() {
        Some(LastUpdateStatus::InProgress) => Ok(false),
        Some(LastUpdateStatus::Failed) => {
            Err(failed("update", function.last_update_status_reason()))
        }
        _ => Ok(true),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn function_is_settled_when_created_and_updated() {
        let settled = |state: Lifecycle, update: LastUpdateStatus| {
            let function = GetFunctionConfigurationOutput::builder()
                .state(state)
                .state_reason("no subnet")
                .last_update_status(update)
                .last_update_status_reason("wrong image");
            is_settled(&function.build()).map_err(|error| error.to_string())
        };
        use {LastUpdateStatus as Update, Lifecycle::*};
        assert_eq!(settled(Active, Update::Successful), Ok(true));
        assert_eq!(settled(Inactive, Update::Successful), Ok(true));
        assert_eq!(settled(Pending, Update::Successful), Ok(false));
        assert_eq!(settled(Active, Update::InProgress), Ok(false));
        let error = settled(Failed, Update::Successful).unwrap_err();
        assert!(error.contains("create the function: no subnet"), "{error}");
        let error = settled(Active, Update::Failed).unwrap_err();
        assert!(
            error.contains("update the function: wrong image"),
            "{error}"
        );
    }
}
