//! Rules about schedules, whose events are empty unless the template sets an input.

use super::finding::{Finding, certain, perhaps};
use super::run_settings::{EventHandler, RunSettings};
use super::stack::{StackFunction, StackSchedule};
use crate::warmer;

/// Adds findings to `found`.
pub fn find(
    function: &StackFunction,
    schedule: &StackSchedule,
    runs: &RunSettings,
    found: &mut Vec<Finding>,
) {
    let name = &function.name;
    let input = schedule.input.as_deref().unwrap_or_default().as_bytes();
    if warmer::is_warmer(input) || warmer::has_warmer_field(input) {
        return; // no error, whether PHP accepts it or not
    }
    if runs.handler == EventHandler::Application {
        let text = format!(
            "a schedule invokes {name}, which has an HTTP application but no handler, so its \
             events go to POST /events; name the PHP file that does the work in [lambda] \
             handler, or, to keep the function warm, write Input: '{{\"warmer\": true}}'"
        );
        perhaps(found, schedule.line, text);
    } else if schedule.has_input {
        // The handler knows the event's meaning.
    } else if runs.handler == EventHandler::Console {
        let text = format!(
            "the handler of {name} runs commands, but a schedule without Input names none, so \
             nothing would run; write Input: '{{\"command\": \"app:report\"}}'"
        );
        certain(found, schedule.line, text);
    } else {
        let text = format!(
            "a schedule of {name} has no Input, so its event contains only the time; if the \
             handler runs commands, write Input: '{{\"command\": \"app:report\"}}', and to keep \
             the function warm Input: '{{\"warmer\": true}}'"
        );
        perhaps(found, schedule.line, text);
    }
}
