//! Tests that only the learner's own boot uses pages that are not compared yet.

use std::sync::Mutex;

use super::*;
use crate::cli::engine_setup;
use crate::config::Config;
use crate::engine::{Pending, Report};
use crate::engines::Found;
use crate::event::{Event, Failure, Response};
use crate::observe::status::EngineStatus;

/// An engine whose PHP exits during the learner's boot, so that it boots by itself.
struct CrashingEngine {
    learned: Arc<learned::Learned>,
    recovering: Arc<tokio::sync::Mutex<()>>,
    /// The learner's boot does not end.
    hangs: bool,
    /// The pages of the learner's boot, and of the recovery.
    boots: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Engine for CrashingEngine {
    fn handle(&self, _: Box<Event>) -> Pending<'_, Result<Response, Failure>> {
        Box::pin(async { Err(Failure::Busy("PHP is restarting")) })
    }

    fn prepare(&self) -> Pending<'_, anyhow::Result<Prepared>> {
        let (learned, boots) = (self.learned.clone(), self.boots.clone());
        let recovering = self.recovering.clone();
        boots.lock().unwrap().push(learned.pages());
        tokio::spawn(async move {
            let _recovering = recovering.lock().await;
            boots.lock().unwrap().push(learned.pages());
        });
        let hangs = self.hangs;
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(Prepared::new(|| Ok(())))
        })
    }

    fn hold_recovery(&self) -> Pending<'_, Option<OwnedMutexGuard<()>>> {
        let recovering = self.recovering.clone();
        Box::pin(async move { Some(recovering.lock_owned().await) })
    }

    fn drain(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    fn report(&self) -> Report {
        Report::default()
    }

    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }
}

#[tokio::test(start_paused = true)]
async fn recovery_during_the_learners_boot_uses_no_page_that_is_not_compared() {
    let project = tempfile::tempdir().unwrap();
    let project = project.path();
    std::fs::write(project.join("index.php"), "<?php").unwrap();
    let text = "engine.name = 'rewind'\nengine.script = 'index.php'\n";
    let config: Config = toml::from_str(text).unwrap();
    let site = Arc::new(engine_setup::open_site(project, &config).unwrap());
    let page = "http://localhost/page".to_owned();
    for hangs in [false, true] {
        let mut pools = engine_setup::pools(project, &config, &[]).unwrap();
        let pool_config = pools.remove(0);
        let engine = Arc::new(CrashingEngine {
            learned: pool_config.learned.clone(),
            recovering: Arc::default(),
            hangs,
            boots: Arc::default(),
        });
        let found = Found {
            program: "/surus-php".into(),
            loader: None,
            workers: 1..=1,
            busy_poll: Duration::ZERO,
            user: None,
        };
        let of_learner = site.clone();
        let learner = Learner {
            project: project.to_path_buf(),
            planned: engine_setup::plan_with(pool_config, project, found),
            keeper: None,
            engine: engine.clone(),
            booting: Arc::default(),
            site: Box::new(move || of_learner.clone()),
        };
        let probes = Probes::new(&[], &site, Instant::now() + LONGEST).await;
        let reload = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            drop(learner.booting.lock().await);
        };
        let pages = [page.clone()];
        let fails = async { learner.boot(&pages, &probes).await.is_err() };
        let (fails, ()) = tokio::join!(fails, reload);
        assert_eq!(fails, hangs, "a reload ends it");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let boots = engine.boots.lock().unwrap().clone();
        assert_eq!(boots, [pages.to_vec(), Vec::new()], "{hangs}");
    }
}
