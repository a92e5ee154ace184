//! A directory with `.htaccess` files, its requests, and intended differences from Apache.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::client::Answer;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Names and contents; `php` is a script that prints how it was called.
    files: BTreeMap<String, String>,
    /// Symbolic links and where they lead.
    #[serde(default)]
    links: BTreeMap<String, String>,
    /// `@x*9@` stands for nine times `x`.
    requests: Vec<String>,
    /// Requests to which the general exceptions do not apply.
    #[serde(default)]
    exact: Vec<String>,
    /// Requests whose `Content-Type` is compared, too.
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    exceptions: BTreeMap<String, Exception>,
}

/// Both responses of intended differences.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    pub apache: String,
    pub surus: String,
    #[expect(dead_code, reason = "it documents the difference in the file")]
    reason: String,
}

pub struct Site {
    pub name: String,
    pub root: tempfile::TempDir,
    pub requests: Vec<String>,
    pub exact: Vec<String>,
    pub types: Vec<String>,
    /// Differences by request.
    pub exceptions: BTreeMap<String, Exception>,
}

const PHP: &str = r#"<?php
echo "RUN ", $_SERVER["SCRIPT_NAME"];
echo " info=", $_SERVER["PATH_INFO"] ?? "";
echo " query=", $_SERVER["QUERY_STRING"];
foreach (["REDIRECT_URL", "REDIRECT_QUERY_STRING"] as $name) {
    echo isset($_SERVER[$name]) ? " $name=$_SERVER[$name]" : "";
}
"#;

impl Site {
    pub fn all() -> Vec<Site> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/htaccess/sites");
        let mut files: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        files.iter().map(|file| Site::read(file)).collect()
    }

    fn read(file: &Path) -> Site {
        let text = fs::read_to_string(file).unwrap();
        let text: Text =
            toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let root = tempfile::tempdir().unwrap();
        for (name, content) in &text.files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let content = if content == "php" { PHP } else { content };
            fs::write(path, content).unwrap();
        }
        for (name, target) in &text.links {
            std::os::unix::fs::symlink(target, root.path().join(name)).unwrap();
        }
        let readable = Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(root.path())
            .status()
            .unwrap();
        assert!(readable.success());
        Site {
            name: file.file_stem().unwrap().to_str().unwrap().to_owned(),
            root,
            requests: text.requests.iter().map(|one| written_out(one)).collect(),
            exact: text.exact,
            types: text.types,
            exceptions: text.exceptions,
        }
    }

    pub fn host(&self) -> String {
        format!("{}.test", self.name)
    }
}

/// Writes the repetitions of a request out.
fn written_out(request: &str) -> String {
    let mut parts = request.split('@');
    let mut whole = parts.next().unwrap().to_owned();
    while let Some(part) = parts.next() {
        let (text, times) = part.split_once('*').expect("a repetition");
        whole.push_str(&text.repeat(times.parse().unwrap()));
        whole.push_str(parts.next().expect("the end of a repetition"));
    }
    whole
}

/// The reasons for differences, for any site.
pub fn general_exception(request: &str, apache: &Answer, surus: &Answer) -> Option<&'static str> {
    let path = request.split(" | ").next()?;
    let path = path.split(['?', ' ']).find(|word| word.starts_with('/'))?;
    let has_dot_name = path
        .split('/')
        .any(|name| name.starts_with('.') && name != ".well-known");
    match (apache.status, surus.status) {
        (200, 403) if apache.is_source() => Some("PHP source is never sent"),
        (401, 403) => Some("Surus does not check passwords, so all clients are denied"),
        (_, 404) if has_dot_name => {
            Some("dot files are never sent, and clients cannot detect them")
        }
        (403, 404) if path.ends_with('/') => Some("a directory without an index is missing"),
        (301, 404) if apache.location == format!("{path}/") => {
            Some("a directory without an index is missing")
        }
        (500, 403) => Some("Apache rejects its configuration; Surus denies access and reports why"),
        _ => None,
    }
}
