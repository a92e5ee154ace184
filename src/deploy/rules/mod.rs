//! Rules that find mistakes in a template together with Surus's configuration.

mod triggers;

use std::time::Duration;

use super::finding::{Finding, certain, perhaps};
use super::run_settings::{BatchFailures, RunSettings};
use super::stack::{
    EventSourceMapping, SourceKind, Stack, StackFunction, StackQueue, StackSchedule,
};
use super::{RECEIVES, VISIBILITY_FACTOR, code, schedules};

/// All findings in the order of the template's lines. `runs` tells how each function runs.
pub fn find(
    stack: &Stack,
    runs: &dyn Fn(&StackFunction) -> anyhow::Result<RunSettings>,
) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    for function in &stack.functions {
        let runs = runs(function)?;
        check_function(function, &runs, &mut found);
        code::find(function, &runs, &mut found);
        let of_it = |schedule: &&StackSchedule| schedule.function == function.name;
        for schedule in stack.schedules.iter().filter(of_it) {
            schedules::find(function, schedule, &runs, &mut found);
        }
        for source in stack
            .sources
            .iter()
            .filter(|source| source.function == function.name)
        {
            let queue = stack
                .queues
                .iter()
                .find(|queue| Some(&queue.name) == source.queue.as_ref());
            check_source(function, source, queue, &runs, &mut found);
        }
        for trigger in stack
            .triggers
            .iter()
            .filter(|trigger| trigger.function == function.name)
        {
            triggers::find(function, trigger, stack, &runs, &mut found);
        }
    }
    for queue in &stack.queues {
        if stack
            .sources
            .iter()
            .any(|source| source.queue.as_ref() == Some(&queue.name))
        {
            check_queue(queue, stack, &mut found);
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn check_function(function: &StackFunction, runs: &RunSettings, found: &mut Vec<Finding>) {
    let name = &function.name;
    if let Some(runtime) = function
        .runtime
        .as_ref()
        .filter(|runtime| runtime.value != "provided.al2023")
    {
        certain(
            found,
            runtime.line,
            format!(
                "{name} has Runtime: {}, which does not start Surus; set Runtime: provided.al2023",
                runtime.value
            ),
        );
    }
    if let Some(line) = function.snap_start.filter(|_| !function.is_image) {
        certain(
            found,
            line,
            format!(
                "{name} has SnapStart, which Lambda does not offer for zips on provided.al2023; \
                 deploy a container image (surus lambda template dockerfile), or remove it"
            ),
        );
    }
    if let Some(timeout) = &function.timeout {
        let given = Duration::from_secs(timeout.value);
        // The margin is at most a quarter of the timeout.
        let margin = runs.deadline_margin.min(given / 4);
        if timeout.value == 3 {
            perhaps(
                found,
                timeout.line,
                format!(
                    "{name} has Lambda's default timeout of 3 s, which is short for a cold start \
                     of a large application; set Timeout"
                ),
            );
        }
        if let Some(record) = runs
            .record_timeout
            .filter(|record| *record + margin > given)
        {
            perhaps(
                found,
                timeout.line,
                format!(
                    "one record may take {record:?} ([lambda] record_timeout), but {name} ends \
                     after {given:?}, so late records are cut short; raise Timeout or lower \
                     record_timeout"
                ),
            );
        }
    }
    if let (Some(memory), Some(limit)) = (&function.memory, runs.memory_limit) {
        let needed = runs.workers * limit;
        if needed > memory.value {
            perhaps(
                found,
                memory.line,
                format!(
                    "{} at memory_limit ({limit} MB) need {needed} MB, but {name} has {} MB, so \
                     Lambda would kill the function; raise MemorySize, or lower engine.workers or \
                     memory_limit",
                    if runs.workers == 1 {
                        "a worker".into()
                    } else {
                        format!("{} workers", runs.workers)
                    },
                    memory.value
                ),
            );
        }
    }
}

fn check_source(
    function: &StackFunction,
    source: &EventSourceMapping,
    queue: Option<&StackQueue>,
    runs: &RunSettings,
    found: &mut Vec<Finding>,
) {
    let name = &function.name;
    let what = match (&source.queue, source.kind) {
        (Some(queue), _) => queue.as_str(),
        (None, SourceKind::Sqs) => "its queue",
        (None, SourceKind::Stream) => "its stream",
    };
    if !source.reports_failures {
        let add = "add FunctionResponseTypes: [ReportBatchItemFailures]";
        let lost = match source.kind {
            SourceKind::Sqs => "deletes them all",
            SourceKind::Stream => "continues after the whole batch",
        };
        match runs.failures {
            BatchFailures::Reported => certain(
                found,
                source.line,
                format!(
                    "{name} reports which records of {what} failed, but Lambda ignores the report \
                     and {lost}; {add}"
                ),
            ),
            BatchFailures::Handler => perhaps(
                found,
                source.line,
                format!(
                    "Lambda ignores reports of failed records of {what}: if the handler of {name} \
                     returns one, Lambda {lost}; if it throws, Lambda sends the whole \
                     batch again, including the records that succeeded; {add}"
                ),
            ),
            BatchFailures::Unreported => {}
        }
    }
    if source.kind == SourceKind::Stream {
        if source.attempts.is_none() {
            perhaps(
                found,
                source.line,
                format!(
                    "a record of {what} that always fails is retried until it expires and blocks \
                     all records after it; set MaximumRetryAttempts, and a DestinationConfig to \
                     keep it"
                ),
            );
        }
        return;
    }
    let window = source.window.as_ref().map_or(0, |window| window.value);
    let is_fifo = source.is_fifo || queue.is_some_and(|queue| queue.is_fifo);
    if let Some(given) = source
        .window
        .as_ref()
        .filter(|given| is_fifo && given.value > 0)
    {
        certain(
            found,
            given.line,
            format!(
                "{what} is FIFO, for which Lambda rejects a batching window; remove \
                 MaximumBatchingWindowInSeconds"
            ),
        );
    }
    if let Some(batch) = source.batch.as_ref().filter(|batch| batch.value > 10) {
        if is_fifo {
            certain(
                found,
                batch.line,
                format!(
                    "{what} is FIFO, for which Lambda rejects batches of more than 10 messages; \
                     lower BatchSize"
                ),
            );
        } else if window == 0 {
            certain(
                found,
                batch.line,
                format!(
                    "Lambda rejects batches of more than 10 messages of {what} without a batching \
                     window; set MaximumBatchingWindowInSeconds: 1, or lower BatchSize to 10"
                ),
            );
        }
    }
    if let (Some(reserved), Some(concurrency)) = (&function.reserved, &source.concurrency)
        && concurrency.value > reserved.value
    {
        perhaps(
            found,
            concurrency.line,
            format!(
                "up to {} batches of {what} run at once, but {name} has \
                 ReservedConcurrentExecutions {}; rejected batches count as attempts, so good \
                 messages end in the dead-letter queue; lower MaximumConcurrency",
                concurrency.value, reserved.value
            ),
        );
    }
    if let (Some(visibility), Some(timeout)) = (
        queue.and_then(|queue| queue.visibility.as_ref()),
        &function.timeout,
    ) {
        let recommended = timeout.value * u64::from(VISIBILITY_FACTOR) + window;
        if visibility.value < timeout.value {
            certain(
                found,
                visibility.line,
                format!(
                    "{what} hides a message for {} s, but {name} has Timeout {}, which Lambda \
                     rejects; set VisibilityTimeout to {recommended}",
                    visibility.value, timeout.value
                ),
            );
        } else if visibility.value < recommended {
            perhaps(
                found,
                visibility.line,
                format!(
                    "{what} hides a message for {} s and {name} has Timeout {}, so a message may \
                     be delivered again while it is in progress; AWS recommends six times the \
                     timeout plus the batching window: set VisibilityTimeout to {recommended}",
                    visibility.value, timeout.value
                ),
            );
        }
    }
}

fn check_queue(queue: &StackQueue, stack: &Stack, found: &mut Vec<Finding>) {
    let name = &queue.name;
    let Some(redrive) = &queue.redrive else {
        perhaps(
            found,
            queue.line,
            format!(
                "{name} has no dead-letter queue, so a message that always fails is delivered \
                 again until it expires; add a RedrivePolicy with maxReceiveCount: {RECEIVES}"
            ),
        );
        return;
    };
    if let Some(after) = redrive
        .after
        .as_ref()
        .filter(|after| after.value < u64::from(RECEIVES))
    {
        perhaps(
            found,
            after.line,
            format!(
                "{name} gives up a message after {} attempts, some of which may be lost while \
                 functions are busy; AWS recommends maxReceiveCount: {RECEIVES} or more",
                after.value
            ),
        );
    }
    let target = stack
        .queues
        .iter()
        .find(|other| Some(&other.name) == redrive.to.as_ref());
    if let Some(target) = target.filter(|target| target.is_fifo != queue.is_fifo) {
        let word = |is_fifo| if is_fifo { "FIFO" } else { "not" };
        certain(
            found,
            redrive.line,
            format!(
                "{name} is {} and its dead-letter queue {} is {}; SQS requires the same of both: \
                 set FifoQueue of {}",
                word(queue.is_fifo),
                target.name,
                word(target.is_fifo),
                target.name
            ),
        );
    }
}
