//! Tests that the emulator behaves towards runtimes and callers like AWS Lambda.

mod aws;
mod command_line;
mod environments;
mod extensions;
mod external;
mod fake;
mod faults;
mod gateway;
mod processes;
mod protocol;
mod queue;
mod round_trip;
mod runtimes;
mod signals;
mod sqs;
mod streams;
