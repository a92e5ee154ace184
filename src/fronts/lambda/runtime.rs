//! Life cycle of a function: start-up, events, shutdown.

use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::connection::RuntimeConnection;
use super::error;
use super::error::FunctionError;
use super::freeze::FreezeWatch;
use super::function::Function;
use super::invocation::Invocation;
use super::runtime_api::RuntimeApi;
use super::{Settings, extension, snapshot};

/// What Lambda tells a process at its start.
#[derive(Debug, Clone)]
pub struct Environment {
    /// `host:port` of the Runtime API.
    pub api: String,
    pub initialization: Initialization,
    /// Concurrent events; more than one only on managed instances.
    pub concurrency: usize,
    /// The application's directory.
    pub directory: String,
    /// When this process started.
    pub began: Instant,
}

/// Why Lambda starts the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialization {
    /// An event waits for it.
    OnDemand,
    /// In advance, before an event needs it.
    Ahead,
    /// To take a snapshot.
    SnapStart,
}

impl Initialization {
    /// `AWS_LAMBDA_INITIALIZATION_TYPE`.
    pub fn parse(text: &str) -> Initialization {
        match text {
            "snap-start" => Initialization::SnapStart,
            "provisioned-concurrency" | "lambda-managed-instances" => Initialization::Ahead,
            _ => Initialization::OnDemand,
        }
    }
}

/// Lambda sends SIGKILL 300 ms after SIGTERM if there is another extension, else after 500 ms;
/// after 600 ms on managed instances.
const BUDGET: Duration = Duration::from_millis(250);
const MANAGED_BUDGET: Duration = Duration::from_millis(500);

/// Boots the function and serves its events until Lambda or `shutdown` ends it. Lambda already
/// knows of a returned error; the caller only logs it.
pub async fn run(
    environment: &Environment,
    settings: &Settings,
    boot: impl Future<Output = anyhow::Result<Function>>,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let function = OnceLock::new();
    let mut served = pin!(serve(environment, settings, boot, &function));
    tokio::select! {
        result = &mut served => return result,
        () = shutdown => {}
    }
    info!("Lambda is shutting this environment down");
    let Some(function): Option<&Arc<Function>> = function.get() else {
        return Ok(());
    };
    // No new event begins; running events may finish within the budget.
    let drained = join_all(function.engines().map(|engine| engine.drain()));
    let budget = match environment.concurrency {
        1 => BUDGET,
        _ => MANAGED_BUDGET,
    };
    tokio::select! {
        _ = drained => {}
        () = tokio::time::sleep(budget) => {
            warn!("shutdown timeout exceeded; in-flight events abandoned");
        },
        result = served => result?,
    }
    Ok(())
}

async fn serve(
    environment: &Environment,
    settings: &Settings,
    boot: impl Future<Output = anyhow::Result<Function>>,
    booted: &OnceLock<Arc<Function>>,
) -> anyhow::Result<()> {
    let connection = RuntimeConnection::new(&environment.api)?;
    let register = async {
        if settings.extension {
            extension::register(connection.another()).await;
        }
    };
    let mut api = RuntimeApi::new(connection.another(), environment.directory.clone());
    let mut boot = pin!(boot);
    let left = settings
        .init_timeout
        .0
        .checked_sub(environment.began.elapsed());
    let limit = match environment.initialization {
        Initialization::OnDemand => left.unwrap_or_default(),
        _ => Duration::MAX,
    };
    // An extension must register before the start-up is over, however late it is.
    let (_, begun) = tokio::join!(register, tokio::time::timeout(limit, &mut boot));
    let (first, function) = match begun {
        Ok(Ok(function)) => (None, function),
        Ok(Err(error)) => {
            api.fail_init(&FunctionError::new(error::INIT, format!("{error:#}")))
                .await?;
            return Err(error);
        }
        Err(_) => {
            warn!(
                "PHP is still booting; asking Lambda for the first event meanwhile \
                 (lambda.init_timeout)"
            );
            let (first, function) = boot_late(&mut api, settings, boot).await?;
            (Some(first), function)
        }
    };
    let function = booted.get_or_init(|| Arc::new(function)).clone();
    if environment.initialization == Initialization::SnapStart {
        snapshot::take(&mut api, &function).await?;
    }
    info!(
        took_ms = environment.began.elapsed().as_millis() as u64,
        "ready"
    );
    if environment.concurrency < 2 {
        return serve_events(api, &function, first).await;
    }
    let mut slots = JoinSet::new();
    let mut first = first;
    for _ in 0..environment.concurrency {
        let (api, function, first) = (api.another(), function.clone(), first.take());
        slots.spawn(async move { serve_events(api, &function, first).await });
    }
    // The first loop that fails ends them all.
    match slots.join_next().await {
        Some(ended) => ended.context("an event loop failed")?,
        None => Ok(()),
    }
}

/// Fetches events while PHP boots; each waits as long as its deadline allows.
async fn boot_late(
    api: &mut RuntimeApi,
    settings: &Settings,
    mut boot: Pin<&mut impl Future<Output = anyhow::Result<Function>>>,
) -> anyhow::Result<(Invocation, Function)> {
    let mut booted = None;
    loop {
        let invocation = {
            let mut next = pin!(api.next());
            loop {
                tokio::select! {
                    next = &mut next => break next?,
                    result = &mut boot, if booted.is_none() => booted = Some(result),
                }
            }
        };
        let now = Instant::now();
        let limit =
            invocation.deadline - invocation.deadline_margin(settings.deadline_margin.0, now);
        let result = match booted.take() {
            Some(result) => Ok(result),
            None => tokio::time::timeout_at(limit.into(), &mut boot).await,
        };
        match result {
            Ok(Ok(function)) => return Ok((invocation, function)),
            Ok(Err(error)) => {
                let function_error = FunctionError::new(error::INIT, format!("{error:#}"));
                api.fail(&invocation, &function_error).await?;
                return Err(error);
            }
            Err(_) => {
                let message =
                    "PHP is still booting; raise the function's timeout or shorten the boot";
                let function_error = FunctionError::new(error::TIMED_OUT, message);
                api.fail(&invocation, &function_error).await?;
            }
        }
    }
}

/// Serves events one after the other.
async fn serve_events(
    mut api: RuntimeApi,
    function: &Function,
    first: Option<Invocation>,
) -> anyhow::Result<()> {
    if let Some(first) = first {
        function.serve(&mut api, &first, None).await?;
    }
    loop {
        let (next, thawed) = FreezeWatch::begin().wait(api.next()).await;
        let next = next?;
        if let Some(thawed) = thawed {
            info!(seconds = thawed.as_secs(), "resumed after a freeze");
        }
        function.serve(&mut api, &next, thawed).await?;
    }
}
