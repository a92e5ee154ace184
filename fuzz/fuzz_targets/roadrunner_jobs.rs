//! Fuzzes the readers of RoadRunner's jobs with a message and a worker's answer: no panic, no job
//! without a name, and a job that runs again keeps its payload.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::fronts::queue::roadrunner::{TaskAnswer, TaskMessage};

fuzz_target!(|bytes: &[u8]| {
    // The first byte says how many of the others are the message.
    let Some((length, rest)) = bytes.split_first() else {
        return;
    };
    let (message, answer) = rest.split_at(usize::from(*length).min(rest.len()));
    let message = TaskMessage::read(message);
    let Ok(TaskAnswer::Requeue { headers, .. }) = TaskAnswer::read(answer) else {
        return;
    };
    if let Some(changed) = message.with_headers(headers, "id") {
        assert_eq!(TaskMessage::read(&changed).body(), message.body());
    }
});
