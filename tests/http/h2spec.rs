//! Runs h2spec, the conformance tests for HTTP/2, against Surus.

use std::path::PathBuf;
use std::process::Command;

use crate::common::Surus;
use crate::tls;

const INSTALL: &str = "go install github.com/summerwind/h2spec/cmd/h2spec@latest";

/// Cases that fail, and why that is correct.
const EXCEPTIONS: [(&str, &str); 1] = [(
    "Sends invalid connection preface",
    "a wrong preface is parsed as HTTP/1 and gets 400 before the connection is closed",
)];

fn h2spec() -> PathBuf {
    let gobin = std::env::var_os("GOBIN").map(PathBuf::from);
    let gopath = std::env::var_os("GOPATH").map(|path| PathBuf::from(path).join("bin"));
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(gobin)
        .chain(gopath)
        .chain(home)
        .map(|directory| directory.join("h2spec"))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("h2spec is missing; install it: {INSTALL}"))
}

#[test]
fn h2spec_finds_no_violation() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), "<?php echo 'hello';").unwrap();
    let surus = Surus::serve(dir.path(), &[]);
    finds_no_violation(&surus.address, &[]);
}

#[test]
fn h2spec_finds_no_violation_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), "<?php echo 'hello';").unwrap();
    let secure = tls::serve(dir.path(), &[]);
    // TLS, with any certificate.
    finds_no_violation(&secure.address, &["-t", "-k"]);
}

fn finds_no_violation(address: &str, args: &[&str]) {
    let (host, port) = address.rsplit_once(':').unwrap();
    let output = Command::new(h2spec())
        .args(args)
        .args(["--host", host, "--port", port, "--timeout", "10"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, failures) = said.split_once("Failures:").unwrap_or(("", ""));
    let failed: Vec<&str> = failures
        .lines()
        .filter_map(|line| line.trim().strip_prefix('×'))
        .filter(|line| !EXCEPTIONS.iter().any(|(case, _)| line.contains(case)))
        .collect();
    assert!(failed.is_empty(), "{failures}");
    let summary = said
        .lines()
        .find(|line| line.contains(" passed, "))
        .unwrap_or_else(|| panic!("h2spec did not finish:\n{said}"));
    println!("{summary}");
    let counted = failures.lines().filter(|line| line.contains('×')).count();
    assert!(summary.contains(&format!(" {counted} failed")), "{said}");
    assert!(!summary.starts_with("0 tests"), "{summary}");
}
