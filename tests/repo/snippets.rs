//! Tests that configuration and code in documents are valid, with the tools that are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use surus::config::Config;

use super::markdown::{Block, pages, root};

#[test]
fn every_block_has_a_language_that_a_test_knows() {
    let known = [
        "caddyfile",
        "dockerfile",
        "json",
        "nginx",
        "php",
        "sh",
        "text",
        "toml",
        "yaml",
    ];
    for block in blocks(|_| true) {
        assert!(
            known.contains(&&*block.language),
            "{}: `{}`",
            block.place,
            block.language
        );
    }
}

#[test]
fn toml_blocks_are_configuration_of_surus() {
    let blocks = blocks(|language| language == "toml");
    assert!(blocks.len() >= 15, "only {} blocks", blocks.len());
    for block in blocks {
        if let Err(error) = toml::from_str::<Config>(&block.text) {
            panic!("{}: {error}", block.place);
        }
    }
}

#[test]
fn json_blocks_are_json() {
    for block in blocks(|language| language == "json") {
        let parsed = serde_json::from_str::<serde_json::Value>(&block.text);
        assert!(parsed.is_ok(), "{}: {parsed:?}", block.place);
    }
}

#[test]
fn php_blocks_are_php() {
    let php = tool("php").expect("php is not installed: scripts/install test");
    for block in blocks(|language| language == "php") {
        let code = match block.text.starts_with("<?php") {
            true => block.text,
            false => format!("<?php\n{}", block.text),
        };
        let file = temporary(&code);
        check(&block.place, Command::new(&php).arg("-l").arg(file.path()));
    }
}

#[test]
fn nginx_and_caddy_blocks_are_complete() {
    for block in blocks(|language| ["nginx", "caddyfile"].contains(&language)) {
        let count = |c| block.text.matches(c).count();
        assert_eq!(count('{'), count('}'), "{}", block.place);
        let is_nginx = block.language == "nginx";
        for line in block.text.lines().filter(|_| is_nginx) {
            let line = line.split('#').next().unwrap().trim();
            let ends = line.is_empty() || line.ends_with([';', '{', '}']);
            assert!(ends, "{}: {line}", block.place);
        }
    }
}

#[test]
fn nginx_accepts_the_blocks_if_it_is_installed() {
    let Some(nginx) = tool("nginx") else { return };
    for block in blocks(|language| language == "nginx") {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // Certificates are the reader's, and so is the port.
        let lines = block
            .text
            .lines()
            .filter(|line| !line.contains("ssl_certificate"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let socket = path.join("socket").display().to_string();
        let text = text.replace("listen 443 ssl;", &format!("listen unix:{socket};"));
        let whole = format!(
            "error_log stderr;\npid {0}/pid;\nevents {{}}\nhttp {{\n{text}\n}}\n",
            path.display()
        );
        std::fs::write(path.join("nginx.conf"), whole).unwrap();
        check(
            &block.place,
            Command::new(&nginx)
                .arg("-t")
                .arg("-p")
                .arg(path)
                .args(["-c", "nginx.conf"]),
        );
    }
}

/// A header that a proxy passes on lets clients choose host, scheme and address.
#[test]
fn nginx_blocks_overwrite_headers_of_trusted_proxies() {
    let headers = ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"];
    let mut checked = 0;
    for block in blocks(|language| language == "nginx") {
        if !block.text.contains("proxy_pass") {
            continue;
        }
        for header in headers {
            let set = format!("proxy_set_header {header} $");
            assert!(block.text.contains(&set), "{}: {header}", block.place);
        }
        checked += 1;
    }
    assert!(checked > 0);
}

#[test]
fn hadolint_accepts_dockerfiles_if_it_is_installed() {
    let Some(hadolint) = tool("hadolint") else {
        return;
    };
    for block in blocks(|language| language == "dockerfile") {
        let file = temporary(&block.text);
        // Debian's updates determine the versions.
        let mut command = Command::new(&hadolint);
        check(
            &block.place,
            command.args(["--ignore", "DL3008"]).arg(file.path()),
        );
    }
    let ours = root().join("packaging/container/Dockerfile");
    check("packaging/container", Command::new(&hadolint).arg(ours));
}

#[test]
fn systemd_accepts_the_unit_if_it_is_installed() {
    let Some(analyze) = tool("systemd-analyze") else {
        return;
    };
    let unit = std::fs::read_to_string(root().join("packaging/systemd/surus.service")).unwrap();
    let unit = unit.replace("/usr/local/bin/surus", env!("CARGO_BIN_EXE_surus"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("surus.service");
    std::fs::write(&path, unit).unwrap();
    // It looks for the service next to it.
    let socket = directory.path().join("surus.socket");
    std::fs::copy(root().join("packaging/systemd/surus.socket"), &socket).unwrap();
    for path in [path, socket] {
        check(
            &path.display().to_string(),
            Command::new(&analyze)
                .args(["verify", "--man=no"])
                .arg(path),
        );
    }
}

fn blocks(choose: impl Fn(&str) -> bool) -> Vec<Block> {
    let mut pages = pages();
    pages.retain(|page| !page.name.starts_with("tests/"));
    let all = pages.into_iter().flat_map(|page| page.blocks());
    all.filter(|block| choose(&block.language)).collect()
}

/// A program in `PATH`, or one that `scripts/install test lint` has installed. CI must have it.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let ours = [
        Path::new("/usr/sbin").to_path_buf(),
        root().join("target/tools/lint/bin"),
    ];
    let mut places = std::env::split_paths(&path).chain(ours);
    let tool = places.find_map(|it| Some(it.join(name)).filter(|file| file.is_file()));
    let is_optional = std::env::var_os("CI").is_none();
    assert!(tool.is_some() || is_optional, "{name} is not installed");
    tool
}

fn temporary(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

pub fn check(place: &str, command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{place}: {}",
        String::from_utf8_lossy(&said)
    );
}
