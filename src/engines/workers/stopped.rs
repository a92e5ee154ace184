//! Processes that somebody has stopped (SIGSTOP). PHP can: the template of `fork` and `rewind` boots the application as PHP's user, and
//! so do the workers run. A process that is stopped says nothing of it; its state in `/proc` does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{error, warn};

use super::shared::Shared;
use crate::launcher::{Pid, Which};

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(250);

/// A template that is stopped for so long, however often it is told to go on, is ended.
const FOR_GOOD: Duration = Duration::from_millis(700);

/// When it was looked last, and what was found.
#[derive(Default)]
pub struct Stopped {
    looked_at_template: Option<Instant>,
    looked_at_workers: Option<Instant>,
    /// Since when the template has been found stopped each time.
    since: Option<Instant>,
}

impl Stopped {
    /// Has a template that is stopped go on, and the generation replaced: who has stopped it once can do so again.
    pub fn look_at_template(&mut self, shared: &Shared) {
        let Some(pid) = shared.template() else {
            return;
        };
        if !is_due(&mut self.looked_at_template) {
            return;
        }
        if !is_stopped(pid) {
            self.since = None;
            return;
        }
        if self.since.is_none() {
            warn!(
                pid,
                "the template was stopped (SIGSTOP), and so could replace no worker; it is told to go on"
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
        workers.retain(|(_, pid)| is_stopped(pid.get()));
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

/// By a signal, or by a debugger. What cannot be read is not.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // Behind the name, which may have anything in it (proc_pid_stat(5)).
    let state = stat
        .as_deref()
        .ok()
        .and_then(|stat| stat.rsplit(") ").next());
    state.is_some_and(|state| state.starts_with(['T', 't']))
}
