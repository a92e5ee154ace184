//! Tests that the emulator behaves towards runtimes and callers like AWS Lambda.
#![allow(clippy::unwrap_used)]

#[path = "emulator/aws.rs"]
mod aws;
#[path = "emulator/command_line.rs"]
mod command_line;
#[path = "emulator/environments.rs"]
mod environments;
#[path = "common/executable.rs"]
mod executable;
#[path = "emulator/extensions.rs"]
mod extensions;
#[path = "emulator/external.rs"]
mod external;
#[path = "emulator/fake.rs"]
mod fake;
#[path = "emulator/faults.rs"]
mod faults;
#[path = "common/function_url.rs"]
mod function_url;
#[path = "emulator/gateway.rs"]
mod gateway;
#[path = "emulator/processes.rs"]
mod processes;
#[path = "emulator/protocol.rs"]
mod protocol;
#[path = "emulator/queue.rs"]
mod queue;
#[path = "emulator/round_trip.rs"]
mod round_trip;
#[path = "emulator/runtimes.rs"]
mod runtimes;
#[path = "emulator/sqs.rs"]
mod sqs;
#[path = "emulator/streams.rs"]
mod streams;
