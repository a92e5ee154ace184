//! Requests files below a document root, of each directory some of every kind: Surus must not send
//! what Apache does not send, and must send what both oracles send.

use std::collections::BTreeMap;
use std::path::Path;

use super::case::{Case, matches};
use super::client::{Answer, Client, media_type};
use super::hosts::Hosts;

/// Files of one kind per directory.
const SOME: usize = 2;

pub fn compare(case: &Case, hosts: &Hosts) -> Vec<String> {
    let mut paths = Vec::new();
    collect(Path::new(&case.root), "", 0, &mut paths);
    paths.sort();
    let mut found = Vec::new();
    for path in &paths {
        let [apache, nginx, surus] = hosts.all().map(|(_, address)| {
            let mut client = Client::new(address);
            client.ask(&format!("GET {}", encoded(path)))
        });
        let said = match () {
            _ if source(&surus) => "Surus shows PHP source",
            _ if path.ends_with(".php") && surus.status >= 500 && apache.status < 500 => {
                "PHP fails"
            }
            _ if path.ends_with(".php") && sent(&surus) && matches!(apache.status, 403 | 404) => {
                "Apache does not run it"
            }
            _ if path.ends_with(".php") => continue,
            _ if sent(&surus) && !sent(&apache) && !matches(&case.sent, path) => "Apache keeps it",
            _ if !sent(&surus)
                && sent(&apache)
                && sent(&nginx)
                && !is_private(path)
                && !matches(&case.withheld, path) =>
            {
                "both oracles send it"
            }
            _ if sent(&surus) && sent(&apache) && surus.body != apache.body => "another body",
            _ if sent(&surus) && sent(&apache) && !same_type(&surus, [&apache, &nginx]) => {
                "another type"
            }
            _ => continue,
        };
        let shown =
            |answer: &Answer| format!("{} {}", answer.status, answer.header("content-type"));
        found.push(format!(
            "{path}: {said}: Apache {}, nginx {}, Surus {}",
            shown(&apache),
            shown(&nginx),
            shown(&surus)
        ));
    }
    eprintln!("{}: {} files", case.root, paths.len());
    found
}

fn sent(answer: &Answer) -> bool {
    answer.status == 200
}

fn source(answer: &Answer) -> bool {
    answer.body.starts_with(b"<?php")
}

/// Whether the type is that of the oracles. Types that they do not know, or disagree about, are not
/// compared.
fn same_type(answer: &Answer, [one, other]: [&Answer; 2]) -> bool {
    let of = |answer: &Answer| media_type(answer.header("content-type")).to_string();
    let unknown = ["", "application/octet-stream"].contains(&of(one).as_str());
    unknown || of(one) != of(other) || of(one) == of(answer)
}

/// Files that are private on Surus, and why: the list is in docs/reference/configuration.md.
fn is_private(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap();
    let names = [
        "composer.json",
        "composer.lock",
        "package.json",
        "package-lock.json",
        "bower.json",
    ];
    let kinds = [
        ".sql",
        ".ini",
        ".inc",
        ".log",
        ".sqlite",
        ".yml.dist",
        ".orig",
        ".bak",
        "~",
        ".php.dist",
    ];
    names.contains(&name) || name.starts_with('.') || kinds.iter().any(|kind| name.ends_with(kind))
}

/// Adds the paths of some files of each kind below a directory, which may be a link.
fn collect(directory: &Path, path: &str, depth: usize, paths: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let mut entries: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    entries.sort();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut directories = 0;
    for name in entries {
        let Some(name) = name.to_str() else { continue };
        let (file, path) = (directory.join(name), format!("{path}/{name}"));
        if file.is_dir() {
            // Locales, themes and plugins are many of a kind.
            directories += 1;
            if depth < 8 && directories <= 40 {
                collect(&file, &path, depth + 1, paths);
            }
        } else if file.is_file() {
            let kind = file
                .extension()
                .map(|kind| kind.to_string_lossy().into_owned());
            let count = kinds.entry(kind.unwrap_or_default()).or_default();
            *count += 1;
            if *count <= SOME {
                paths.push(path);
            }
        }
    }
}

fn encoded(path: &str) -> String {
    path.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => out.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}
