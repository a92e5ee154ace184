//! Processes that somebody has stopped (SIGSTOP). PHP can: the template of `fork` and `rewind`
//! boots the application as PHP's user, and so do the workers run. A process that is stopped says
//! nothing of it; its state in `/proc` does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{error, warn};

use super::state::Shared;
use crate::launcher::{Pid, Which};

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(250);

/// A template that is stopped for so long, however often it is told to go on, is ended.
const FOR_GOOD: Duration = Duration::from_millis(700);

/// One that a debugger has held for so long is taken for stopped: a tracer that only watches lets
/// it go on at once.
const TRACED_FOR_GOOD: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Runs,
    Stopped,
    /// By a debugger.
    Traced,
}

/// When it was looked last, and what was found.
#[derive(Default)]
pub struct Stopped {
    looked_at_template: Option<Instant>,
    looked_at_workers: Option<Instant>,
    /// Since when the template has been found stopped each time.
    since: Option<Instant>,
    /// Since when it has been found held by a debugger each time.
    traced_since: Option<Instant>,
}

impl Stopped {
    /// Is a template stopped?
    pub fn has_found_any(&self) -> bool {
        self.since.is_some() || self.traced_since.is_some()
    }

    /// Has a template that is stopped go on, and the generation replaced: who has stopped it once
    /// can do so again.
    pub fn look_at_template(&mut self, shared: &Shared) {
        let Some(pid) = shared.template() else {
            return;
        };
        if !is_due(&mut self.looked_at_template) {
            return;
        }
        let found = find(pid);
        if found != Found::Traced {
            self.traced_since = None;
        }
        let is_stopped = match found {
            Found::Runs => false,
            Found::Stopped => true,
            Found::Traced => {
                let since = *self.traced_since.get_or_insert_with(Instant::now);
                since.elapsed() > TRACED_FOR_GOOD
            }
        };
        if !is_stopped {
            self.since = None;
            return;
        }
        if self.since.is_none() {
            warn!(
                pid,
                ?found,
                "the template was stopped, and so could replace no worker; it is told to go on"
            );
            shared.repaired("template_stopped");
            shared.is_to_be_replaced("its template was stopped");
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let which = match since.elapsed() > FOR_GOOD {
            true => {
                error!(pid, "the template stays stopped; killed");
                Which::Kill
            }
            false => Which::Resume,
        };
        if let Err(error) = shared.signal_template(pid, which) {
            error!(pid, %error, "cannot signal the template");
        }
    }

    /// Those of `workers` that are stopped.
    pub fn of(&mut self, mut workers: Vec<(usize, Arc<Pid>)>) -> Vec<(usize, Arc<Pid>)> {
        if !is_due(&mut self.looked_at_workers) {
            return Vec::new();
        }
        workers.retain(|(_, pid)| find(pid.get()) == Found::Stopped);
        workers
    }
}

fn is_due(last: &mut Option<Instant>) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() > PAUSE);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

/// What cannot be read runs.
fn find(pid: u32) -> Found {
    match surus_sys::process::state(pid) {
        Some('T') => Found::Stopped,
        Some('t') => Found::Traced,
        _ => Found::Runs,
    }
}
