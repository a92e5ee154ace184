//! `surus leaks`: lists what requests leave behind in a process that serves many.

use std::sync::Arc;

use anyhow::Context;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;

use super::engine_setup;
use super::engine_setup::PoolConfig;
use super::options::{PhpArgs, Project};
use super::warm_ups;
use crate::app::site::Site;
use crate::cli::stdout::say;
use crate::engine::Engine;
use crate::engines;
use crate::event::Event;
use crate::observe::log;
use crate::observe::metrics::Metrics;

#[derive(Debug, clap::Args)]
pub struct Leaks {
    #[command(flatten)]
    project: Project,
    #[command(flatten)]
    php: PhpArgs,
    /// Request to examine: /path?query, or a whole URL if the application checks its host; may be
    /// repeated
    #[arg(long = "url", value_name = "URL", default_value = "/")]
    urls: Vec<String>,
    /// Number of requests before the one that is examined, because what is loaded once is not a
    /// leak
    #[arg(long, value_name = "N", default_value_t = 2)]
    before: u32,
}

/// Only its workers keep what requests leave.
const ENGINE: &str = "worker";

pub fn run(leaks: Leaks) -> anyhow::Result<()> {
    let project = leaks.project.directory()?;
    let loaded = leaks.php.load(&leaks.project, Some(ENGINE))?;
    log::start(&log::Settings {
        level: "warn".into(),
        ..loaded.config.log.clone()
    })?;
    let mut config = loaded.config;
    config.engine.fix_workers(1);
    config.engine.max_requests = 0;
    config.engine.reports_leaks = true;
    let site = engine_setup::open_site(&project, &config)?;
    let pool_config = PoolConfig {
        name: ENGINE,
        entry: engines::find(ENGINE)?,
        config,
        learned: Default::default(),
    };
    super::block_on(async {
        let metrics = Arc::new(Metrics::default());
        let pool = engine_setup::boot_one(&pool_config, &project, &metrics).await;
        let pool = pool.context(
            "`surus leaks` boots the application on `worker`, with a script that calls \
             surus_serve() (engine.script)",
        )?;
        for url in &leaks.urls {
            let mut status = StatusCode::OK;
            for _ in 0..=leaks.before {
                status = ask(&*pool, warm_ups::get(url, &site)?)
                    .await
                    .with_context(|| format!("GET {url}"))?
                    .0;
            }
            say!("GET {url}: {status}");
            match leavings(&*pool, url, &site).await? {
                None => say!("  its process exited during the request; see the error above"),
                Some(_) if status.is_client_error() || status.is_server_error() => {
                    say!("  not examined: the request failed");
                }
                Some(left) if left.is_empty() => say!("  leaves nothing behind"),
                Some(left) => left.lines().for_each(|line| say!("  {line}")),
            }
        }
        pool.drain().await;
        Ok(())
    })
}

/// What the previous request left behind; `None` if its process has exited.
async fn leavings(pool: &dyn Engine, url: &str, site: &Site) -> anyhow::Result<Option<String>> {
    let mut event = warm_ups::get(url, site)?;
    let headers = event.request.headers_mut();
    headers.insert("surus-leaks", HeaderValue::from_static("1"));
    let (status, text) = ask(pool, event).await?;
    Ok((status != StatusCode::GONE).then_some(text))
}

async fn ask(pool: &dyn Engine, event: Event) -> anyhow::Result<(StatusCode, String)> {
    let response = pool.handle(Box::new(event)).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
