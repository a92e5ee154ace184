//! `lab`: measures contestants in rounds that take turns, and prints the numbers next to those that
//! others have published.
#![forbid(unsafe_code)]

mod application;
mod batch;
mod build;
mod captions;
mod chart;
mod commands;
mod contestant;
mod disturbance;
mod document;
mod documents;
mod excerpt;
mod experiment;
mod files;
mod fingerprint;
mod generators;
mod goal;
mod goals;
mod history;
mod interrupt;
mod lambda_reports;
mod legend;
mod length;
mod measuring;
mod others;
mod preparing;
mod progress;
mod published;
mod quantity;
mod render;
mod repeating;
mod resting;
mod results;
mod rounds;
mod server;
mod small_form;
mod starting;
mod wording;
mod words;

use clap::Parser;

fn main() -> std::process::ExitCode {
    match commands::run(&commands::Lab::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
