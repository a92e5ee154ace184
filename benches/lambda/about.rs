//! The head of the page: what was measured where, and how anybody can do it again.

use std::process::Command;

use super::numbers::row;

pub fn print() {
    let cpus = std::thread::available_parallelism().unwrap();
    println!("# Performance on AWS Lambda\n");
    println!("<!-- `make bench-lambda` writes this page. -->");
    println!(
        "For operators who choose an engine: the cost of Surus as the runtime of a function. The \
         emulator of `surus lambda dev` plays AWS. A bare echo that only speaks the Runtime API \
         shows the emulator's own cost.\n"
    );
    println!("| | |\n|---|---|");
    let arguments: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let command = match arguments.join(" ").as_str() {
        "" => "`make bench-lambda`".into(),
        arguments => format!("`make bench-lambda BENCH='{arguments}'`"),
    };
    for (name, value) in [
        ("Date", said("date", &["+%F"])),
        (
            "Machine",
            format!(
                "{cpus} CPUs ({}); Linux {}",
                cpu_model(),
                said("uname", &["-r"])
            ),
        ),
        (
            "Versions",
            format!(
                "{}; surus {}",
                said("php8.2", &["--version"]),
                env!("CARGO_PKG_VERSION")
            ),
        ),
        (
            "Revision of Surus",
            said("git", &["describe", "--always", "--dirty"]),
        ),
        ("Command", command),
    ] {
        row([name.into(), value]);
    }
}

/// The first line that a program prints; empty if it is not installed.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .into()
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.unwrap_or("of an unknown kind")
        .trim_start_matches(['\t', ' ', ':'])
        .into()
}
