//! Tests of `surus lambda` against a stand-in for Lambda's Runtime API.
#![allow(clippy::unwrap_used)]

#[path = "common/mod.rs"]
mod common;

#[path = "lambda/api.rs"]
mod api;
#[path = "lambda/console.rs"]
mod console;
#[path = "lambda/copies.rs"]
mod copies;
#[path = "lambda/ends.rs"]
mod ends;
#[path = "lambda/events.rs"]
mod events;
#[path = "lambda/faults.rs"]
mod faults;
#[path = "lambda/function.rs"]
mod function;
#[path = "lambda/psr15.rs"]
mod psr15;
#[path = "lambda/requests.rs"]
mod requests;
#[path = "lambda/secrets.rs"]
mod secrets;
#[path = "lambda/starts.rs"]
mod starts;
#[path = "lambda/streams.rs"]
mod streams;
#[path = "lambda/warm.rs"]
mod warm;
