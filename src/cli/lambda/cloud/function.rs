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
use super::state::{configuration, variables};
use super::wanted::Wanted;

/// How often, and how many times, AWS is asked whether an update has ended.
pub const PAUSE: Duration = Duration::from_secs(1);
pub const PAUSES: usize = 600;

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
    // Another deployment may be in progress. If an update has failed, this one may mend it.
    finish(lambda, &wanted.name, None).await?;
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

pub async fn update_configuration(lambda: &Client, wanted: &Wanted) -> anyhow::Result<()> {
    let latest = finish(lambda, &wanted.name, None).await?;
    let update = lambda
        .update_function_configuration()
        .function_name(&wanted.name)
        .runtime(Runtime::from(RUNTIME))
        .handler(&wanted.handler)
        .set_role(wanted.role.clone())
        .memory_size(wanted.memory)
        .timeout(wanted.timeout)
        .environment(environment(variables(&latest), wanted));
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

/// Waits until AWS has finished what was asked of it, and fails if that failed.
async fn settle(lambda: &Client, name: &str, version: Option<&str>) -> anyhow::Result<()> {
    judge(&finish(lambda, name, version).await?)
}

/// Waits until AWS has finished, successfully or not.
async fn finish(
    lambda: &Client,
    name: &str,
    version: Option<&str>,
) -> anyhow::Result<GetFunctionConfigurationOutput> {
    for _ in 0..PAUSES {
        let found = configuration(lambda, name, version).await?;
        let found = found.with_context(|| format!("the function {name} has been deleted"))?;
        if !is_in_progress(&found) {
            return Ok(found);
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("AWS still updates the function {name} after ten minutes; deploy again later")
}

fn is_in_progress(function: &GetFunctionConfigurationOutput) -> bool {
    function.state() == Some(&Lifecycle::Pending)
        || function.last_update_status() == Some(&LastUpdateStatus::InProgress)
}

fn judge(function: &GetFunctionConfigurationOutput) -> anyhow::Result<()> {
    let failed = |what: &str, reason: Option<&str>| {
        let reason = reason.unwrap_or("AWS gives no reason");
        Err(anyhow!("AWS could not {what} the function: {reason}"))
    };
    // An `Inactive` function becomes active with the next invocation.
    if function.state() == Some(&Lifecycle::Failed) {
        return failed("create", function.state_reason());
    }
    if function.last_update_status() == Some(&LastUpdateStatus::Failed) {
        return failed("update", function.last_update_status_reason());
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn function_is_finished_when_created_and_updated() {
        let finished = |state: Lifecycle, update: LastUpdateStatus| {
            let function = GetFunctionConfigurationOutput::builder()
                .state(state)
                .state_reason("no subnet")
                .last_update_status(update)
                .last_update_status_reason("wrong image")
                .build();
            let judged = judge(&function).map_err(|error| error.to_string());
            (!is_in_progress(&function), judged)
        };
        use {LastUpdateStatus as Update, Lifecycle::*};
        assert_eq!(finished(Active, Update::Successful), (true, Ok(())));
        assert_eq!(finished(Inactive, Update::Successful), (true, Ok(())));
        assert!(!finished(Pending, Update::Successful).0);
        assert!(!finished(Active, Update::InProgress).0);
        // An update that failed can be followed by another.
        let (is_finished, judged) = finished(Active, Update::Failed);
        let error = judged.unwrap_err();
        assert!(is_finished && error.contains("update the function: wrong image"));
        let (is_finished, judged) = finished(Failed, Update::Successful);
        let error = judged.unwrap_err();
        assert!(is_finished && error.contains("create the function: no subnet"));
    }
}
