//! SnapStart: hooks before the snapshot and after each restore.

use anyhow::{Context, bail};
use tracing::info;

use super::error;
use super::error::FunctionError;
use super::function::Function;
use super::runtime_api::RuntimeApi;

/// Returns in a process that was restored from the snapshot.
pub async fn take(api: &mut RuntimeApi, function: &Function) -> anyhow::Result<()> {
    let hooks = &function.settings.before_snapshot;
    if let Err(error) = call(function, hooks, "before_snapshot").await {
        let error = error.context("before the snapshot (lambda.before_snapshot)");
        let function_error = FunctionError::new(error::BEFORE_SNAPSHOT, format!("{error:#}"));
        api.fail_init(&function_error).await?;
        return Err(error);
    }
    info!("ready for the snapshot");
    api.restored().await?;
    info!("restored from a snapshot");
    if let Err(error) = restored(function).await {
        let error = error.context("after the restore (lambda.after_restore)");
        let function_error = FunctionError::new(error::AFTER_RESTORE, format!("{error:#}"));
        api.fail_restore(&function_error).await?;
        return Err(error);
    }
    Ok(())
}

/// All copies of a snapshot begin with the same memory: random numbers and seeds in it would repeat
/// in every copy, and its connections are broken. So every engine restarts its workers.
async fn restored(function: &Function) -> anyhow::Result<()> {
    for engine in function.engines() {
        engine.restart_workers().await?;
    }
    call(function, &function.settings.after_restore, "after_restore").await
}

/// Requests the URLs and runs the callbacks that the handler has registered for the moment.
async fn call(function: &Function, urls: &[String], moment: &'static str) -> anyhow::Result<()> {
    for url in urls {
        let status = function
            .call(url)
            .await
            .with_context(|| format!("GET {url}"))?;
        if !status.is_success() {
            bail!("GET {url}: {status}; see the log for the cause");
        }
    }
    let result = function.run_callbacks(moment).await;
    result.with_context(|| format!("the handler's {moment}"))
}
