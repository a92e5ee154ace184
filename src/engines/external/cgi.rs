//! The engine `cgi`: starts php-cgi for each event (RFC 3875).

use super::command::{PhpLaunch, ProcessInputs};
use super::exchange::Exchange;
use super::process::OneEvent;
use super::runtime_dir::RuntimeDir;
use super::slots::ProcessSlots;
use super::{PhpSpec, StartedPhp, no_slot, variables};
use crate::engine::Pending;
use crate::event::{Event, Failure};
use crate::observe::status::WorkerStatus;

pub struct Cgi {
    launch: PhpLaunch,
    slots: ProcessSlots,
    /// Keeps the directory with the settings.
    _runtime_dir: RuntimeDir,
}

impl Cgi {
    pub fn new(spec: &PhpSpec, runtime_dir: RuntimeDir) -> anyhow::Result<Cgi> {
        Ok(Cgi {
            launch: PhpLaunch::new(spec, &runtime_dir)?,
            slots: ProcessSlots::new(spec.workers),
            _runtime_dir: runtime_dir,
        })
    }
}

impl StartedPhp for Cgi {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            let mut env = Vec::new();
            for (name, value) in variables::from_event(event)? {
                env.extend_from_slice(&[&name[..], b"=", &value, b"\0"].concat());
            }
            let inputs = ProcessInputs {
                env: &env,
                ..ProcessInputs::default()
            };
            let slot = self.slots.take(event).ok_or_else(no_slot)?;
            let body = event.request.body();
            let started = OneEvent::start(&self.launch, inputs, body, event.id, slot, None).await?;
            Ok(Box::new(started) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.slots.status()
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }
}
