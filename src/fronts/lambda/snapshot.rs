//! SnapStart: what happens before the snapshot is taken, and where it is restored.

use anyhow::{Context, bail};
use tracing::info;

use super::fault::{self, Fault};
use super::function::Function;
use super::runtime_api::RuntimeApi;

/// Returns in a process that was restored from the snapshot.
pub async fn take(api: &mut RuntimeApi, function: &Function) -> anyhow::Result<()> {
    let hooks = &function.settings.before_snapshot;
    if let Err(error) = call(function, hooks, "before_snapshot").await {
        let error = error.context("before the snapshot (lambda.before_snapshot)");
        let fault = Fault::new(fault::BEFORE_SNAPSHOT, format!("{error:#}"));
        api.fail_init(&fault).await?;
        return Err(error);
    }
    info!("ready for the snapshot");
    api.restored().await?;
    info!("restored from a snapshot");
    if let Err(error) = restored(function).await {
        let error = error.context("after the restore (lambda.after_restore)");
        let fault = Fault::new(fault::AFTER_RESTORE, format!("{error:#}"));
        api.fail_restore(&fault).await?;
        return Err(error);
    }
    Ok(())
}

/// Every copy of the snapshot begins with the same memory. What has random numbers in it, or what they are made of, would give out the
/// same in each copy, and connections are dead in all of them.
async fn restored(function: &Function) -> anyhow::Result<()> {
    for engine in function.engines() {
        engine.renew().await?;
    }
    call(function, &function.settings.after_restore, "after_restore").await
}

/// Requests the URLs, and has the handler do what it has registered for the moment.
async fn call(function: &Function, urls: &[String], moment: &'static str) -> anyhow::Result<()> {
    for url in urls {
        let status = function
            .call(url)
            .await
            .with_context(|| format!("GET {url}"))?;
        if !status.is_success() {
            bail!("GET {url}: {status}; the log may say why");
        }
    }
    let told = function.tell(moment).await;
    told.with_context(|| format!("the handler's {moment}"))
}
