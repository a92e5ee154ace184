//! Tests of `surus lambda` against a stand-in for Lambda's Runtime API.

mod after_response;
pub mod api;
mod app_runtime;
mod console;
mod copies;
mod directory;
mod events;
mod faults;
mod function;
mod psr15;
mod requests;
mod secrets;
mod starts;
mod streams;
mod warm;
