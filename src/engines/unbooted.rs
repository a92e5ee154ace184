//! Serves an application that cannot be booted with another engine, and boots it if that works
//! later: some minutes after the start, or at a reload.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::boot_lock::BootLock;
use crate::engine::{Change, Engine, Pending, Prepared, Report};
use crate::event::{Event, Failure, Response};
use crate::observe::status::EngineStatus;

/// Boots the application.
pub type BootFunction =
    Arc<dyn Fn() -> Pending<'static, anyhow::Result<Arc<dyn Engine>>> + Send + Sync>;

/// Seconds before each boot that follows the failed one. After the start of a machine, a database
/// may be late.
const PAUSES: [u64; 6] = [2, 4, 8, 16, 32, 64];

/// The engine that serves, and the way to the one that was asked for.
pub struct Unbooted {
    /// The pool's name.
    name: &'static str,
    boot: BootFunction,
    slot: Arc<EngineSlot>,
    /// Cancelled when the pool ends.
    ended: CancellationToken,
}

struct EngineSlot {
    current: ArcSwap<CurrentEngine>,
    /// Wakes those who wait for the previous engine when another one serves.
    switched: watch::Sender<()>,
}

struct CurrentEngine {
    engine: Arc<dyn Engine>,
    /// The name of the engine, if it serves instead of the one that was asked for.
    instead: Option<&'static str>,
}

impl Unbooted {
    /// `engine`, whose name is `instead`, serves the pool `name` until `boot` succeeds. `booting`
    /// is the lock of the site's boots.
    pub fn new(
        name: &'static str,
        engine: Arc<dyn Engine>,
        instead: &'static str,
        boot: BootFunction,
        booting: Arc<BootLock>,
    ) -> Unbooted {
        let instead = Some(instead);
        let slot = Arc::new(EngineSlot {
            current: ArcSwap::from_pointee(CurrentEngine { engine, instead }),
            switched: watch::Sender::default(),
        });
        let ended = CancellationToken::new();
        let tries = try_again(name, boot.clone(), booting, slot.clone());
        tokio::spawn(ended.clone().run_until_cancelled_owned(tries));
        Unbooted {
            name,
            boot,
            slot,
            ended,
        }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        self.slot.current.load().engine.clone()
    }
}

impl Drop for Unbooted {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Boots the application after each of the pauses, until that or a reload succeeds.
async fn try_again(
    name: &'static str,
    boot: BootFunction,
    booting: Arc<BootLock>,
    slot: Arc<EngineSlot>,
) {
    for seconds in PAUSES {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let _booting = booting.lock_in_background().await;
        if slot.current.load().instead.is_none() {
            return;
        }
        let booted = tokio::select! {
            booted = boot() => booted,
            // A reload boots it, too.
            () = booting.wanted() => continue,
        };
        match booted {
            Ok(engine) => return slot.serve_with(name, engine),
            Err(error) => debug!(
                engine = name,
                error = format!("{error:#}"),
                "the application still cannot be booted"
            ),
        }
    }
}

impl EngineSlot {
    /// Serves with the engine that was asked for. The other one finishes its requests.
    fn serve_with(&self, name: &'static str, engine: Arc<dyn Engine>) {
        let instead = None;
        let before = (self.current).swap(Arc::new(CurrentEngine { engine, instead }));
        self.switched.send_replace(());
        info!(engine = name, "application booted");
        tokio::spawn(async move { before.engine.drain().await });
    }
}

impl Engine for Unbooted {
    fn handle(&self, event: Box<Event>) -> Pending<'_, Result<Response, Failure>> {
        let engine = self.engine();
        Box::pin(async move { engine.handle(event).await })
    }

    fn prepare(&self) -> Pending<'_, anyhow::Result<Prepared>> {
        Box::pin(async {
            let current = self.slot.current.load_full();
            let Some(instead) = current.instead else {
                return current.engine.prepare().await;
            };
            let engine = match (self.boot)().await {
                Ok(engine) => engine,
                Err(error) => {
                    warn!(
                        engine = self.name,
                        error = format!("{error:#}"),
                        instead,
                        "the application still cannot be booted; another engine goes on serving it"
                    );
                    return current.engine.prepare().await;
                }
            };
            let (name, slot) = (self.name, self.slot.clone());
            Ok(Prepared::new(move || {
                slot.serve_with(name, engine);
                Ok(())
            }))
        })
    }

    fn hold_recovery(&self) -> Pending<'_, Option<OwnedMutexGuard<()>>> {
        let engine = self.engine();
        Box::pin(async move { engine.hold_recovery().await })
    }

    fn outdated(&self, known: Option<u64>) -> Pending<'_, Change> {
        let mut switched = self.slot.switched.subscribe();
        Box::pin(async move {
            loop {
                let engine = self.engine();
                tokio::select! {
                    change = engine.outdated(known) => return change,
                    // It cannot fail, because `self` has the sender.
                    _ = switched.changed() => {}
                }
            }
        })
    }

    fn boots(&self) -> Option<watch::Receiver<u64>> {
        self.engine().boots()
    }

    fn is_outdated(&self) -> Pending<'_, bool> {
        let engine = self.engine();
        Box::pin(async move { engine.is_outdated().await })
    }

    fn restart_workers(&self) -> Pending<'_, anyhow::Result<()>> {
        let engine = self.engine();
        Box::pin(async move { engine.restart_workers().await })
    }

    fn drain(&self) -> Pending<'_, ()> {
        self.ended.cancel();
        let engine = self.engine();
        Box::pin(async move { engine.drain().await })
    }

    fn retire(&self) -> Pending<'_, ()> {
        self.ended.cancel();
        let engine = self.engine();
        Box::pin(async move { engine.retire().await })
    }

    fn ready(&self) -> Result<(), String> {
        self.engine().ready()
    }

    fn report(&self) -> Report {
        self.engine().report()
    }

    fn capacity(&self) -> Option<watch::Receiver<usize>> {
        self.engine().capacity()
    }

    fn status(&self) -> EngineStatus {
        let current = self.slot.current.load();
        EngineStatus {
            instead: current.instead.map(str::to_string),
            ..current.engine.status()
        }
    }
}
