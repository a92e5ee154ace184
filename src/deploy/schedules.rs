//! Findings about schedules, whose events say nothing unless the template gives them an input.

use super::code::Handler;
use super::findings::{Finding, Runs, certain, perhaps};
use super::stack::{Function, Schedule};

/// Adds what is found to `found`.
pub fn find(function: &Function, schedule: &Schedule, runs: &Runs, found: &mut Vec<Finding>) {
    let name = &function.name;
    if runs.handler == Handler::Application {
        let text = format!(
            "a schedule invokes {name}, which has an HTTP application and no handler: its events go to POST /events; name the \
             PHP file that does the work in [lambda] handler, or, to keep the function warm, write Input: '{{\"warmer\": true}}'"
        );
        perhaps(found, schedule.line, text);
    } else if schedule.has_input {
        // The handler knows what it means.
    } else if runs.handler == Handler::Console {
        let text = format!(
            "the handler of {name} runs commands, and a schedule without Input names none, so nothing would be run; write \
             Input: '{{\"command\": \"app:report\"}}'"
        );
        certain(found, schedule.line, text);
    } else {
        let text = format!(
            "a schedule of {name} has no Input, so its event says nothing but the time; if the handler runs commands, write \
             Input: '{{\"command\": \"app:report\"}}', and to keep the function warm Input: '{{\"warmer\": true}}'"
        );
        perhaps(found, schedule.line, text);
    }
}
