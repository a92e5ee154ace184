//! Goodput under overload: how many requests `surus serve` answers when far more clients ask than
//! it has workers for.
//!
//! ```sh
//! cargo bench --bench overload -- [--surus PATH]... [--clients N]... [--seconds N] [--rounds N] \
//!     [--script PHP] [--engine NAME]
//! ```
//!
//! Compares programs, which take turns. Clients keep their connection and ask as soon as they have
//! an answer; one that is refused retries at once, or backs off for a second and twice as long each
//! further time.
#![allow(clippy::unwrap_used)]

mod client;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use client::{Load, Retry};
use server::Server;

struct Options {
    programs: Vec<PathBuf>,
    clients: Vec<usize>,
    seconds: u64,
    rounds: usize,
    engine: String,
    script: String,
}

fn options() -> Options {
    let mut options = Options {
        programs: Vec::new(),
        clients: Vec::new(),
        seconds: 3,
        rounds: 3,
        engine: "classic".into(),
        script: "<?php header('Content-Type: application/json'); echo '{\"hello\":\"world\"}';"
            .into(),
    };
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .unwrap_or_else(|| panic!("{name} needs a value"));
        let number = || {
            value
                .parse()
                .unwrap_or_else(|_| panic!("{name} {value} is no number"))
        };
        match name.as_str() {
            "--surus" => options.programs.push(value.into()),
            "--clients" => options.clients.push(number()),
            "--seconds" => options.seconds = number() as u64,
            "--rounds" => options.rounds = number(),
            "--engine" => options.engine = value,
            "--script" => options.script = value,
            _ => panic!("there is no option {name}"),
        }
    }
    if options.programs.is_empty() {
        options.programs.push(env!("CARGO_BIN_EXE_surus").into());
    }
    if options.clients.is_empty() {
        options.clients = vec![64, 1_000, 4_000, 10_000, 20_000];
    }
    options
}

/// What one program did with one load, over the rounds.
struct Row {
    program: PathBuf,
    clients: usize,
    retry: Retry,
    loads: Vec<(Load, Duration)>,
}

fn main() {
    let _ = surus_sys::process::raise_open_files();
    let options = options();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut rows = Vec::new();
    for &clients in &options.clients {
        for retry in [Retry::AtOnce, Retry::BackingOff] {
            rows.extend(options.programs.iter().map(|program| Row {
                program: program.clone(),
                clients,
                retry,
                loads: Vec::new(),
            }));
        }
    }
    for _ in 0..options.rounds {
        for row in &mut rows {
            let server = Server::start(&row.program, &options.engine, &options.script);
            let length = Duration::from_secs(options.seconds);
            let load = client::load(&server.addresses, row.clients, row.retry, length, || {
                server.cpu()
            });
            let load = runtime.block_on(load);
            row.loads.push(load);
            eprint!(".");
        }
    }
    eprintln!();
    println!(
        "| clients | refused clients | program | answered/s | refused/s | closed/s | CPU per \
            answer | p50 | p99 |"
    );
    println!("|---:|---|---|---:|---:|---:|---:|---:|---:|");
    for row in &rows {
        let median = |value: &dyn Fn(&(Load, Duration)) -> f64| {
            let mut values: Vec<f64> = row.loads.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let seconds = options.seconds as f64;
        println!(
            "| {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} µs | {:.0} ms | {:.0} ms |",
            row.clients,
            row.retry.name(),
            row.program.display(),
            median(&|(load, _)| load.took.len() as f64 / seconds),
            median(&|(load, _)| load.refused as f64 / seconds),
            median(&|(load, _)| load.closed as f64 / seconds),
            median(&|(load, cpu)| cpu.as_secs_f64() * 1e6 / load.took.len().max(1) as f64),
            median(&|(load, _)| load.quantile(0.5)),
            median(&|(load, _)| load.quantile(0.99)),
        );
    }
}
