//! Names the lines of `.htaccess` files that Surus cannot evaluate, with a route to write instead.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use surus_sys::regular_file;

use super::root_walk::{self, ENTRIES};
use crate::app::site::{MAX_HTACCESS, Problem, Scope, SiteMemory, read_htaccess};

/// A sentence for each such line below these directories, which may be within each other.
pub(super) fn problems_below<'a>(roots: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let mut seen: Vec<&Path> = Vec::new();
    let mut sentences = Vec::new();
    for root in roots {
        if !seen.iter().any(|other| root.starts_with(other)) {
            sentences.extend(problems(root));
            seen.push(root);
        }
    }
    sentences
}

fn problems(root: &Path) -> Vec<String> {
    let (mut files, is_complete) = files(root);
    files.sort();
    let mut sentences = Vec::new();
    // As in the server, all files of a site share a limit, so they are kept until the end.
    let memory = SiteMemory::default();
    let mut kept = Vec::new();
    if !is_complete {
        sentences.push(format!(
            "{} has more than {ENTRIES} files; the .htaccess files among the rest were not read",
            root.display()
        ));
    }
    for file in files {
        let directory = file
            .parent()
            .and_then(|directory| directory.strip_prefix(root).ok());
        let url = match directory.map(|directory| directory.display().to_string()) {
            Some(directory) if !directory.is_empty() => format!("/{directory}/"),
            _ => "/".to_owned(),
        };
        match text(&file) {
            Ok(text) => {
                let read = read_htaccess(&text, &memory);
                let found = read
                    .problems
                    .iter()
                    .map(|problem| sentence(&file, &url, problem));
                sentences.extend(found);
                kept.push(read);
            }
            Err(error) => sentences.push(format!(
                "{}: cannot be read ({error}), so that nothing below {url} is served; let it be a \
                 file of at most 1 MiB that the user surus runs as may read",
                file.display()
            )),
        }
    }
    sentences
}

/// The `.htaccess` files below a directory. False: there are too many entries.
fn files(root: &Path) -> (Vec<PathBuf>, bool) {
    let mut files = Vec::new();
    let is_complete = root_walk::walk(root, ENTRIES, |entry| {
        let is_htaccess = entry.path.ends_with(".htaccess");
        if is_htaccess {
            files.push(entry.path.to_path_buf());
        }
        !is_htaccess
    });
    (files, is_complete)
}

/// The text of a file that the server would read: of no pipe, which might never end, and no longer.
fn text(file: &Path) -> io::Result<String> {
    let opened = regular_file::open(file)?;
    if opened.metadata()?.len() > MAX_HTACCESS {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    let mut text = Vec::new();
    opened.take(MAX_HTACCESS).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn sentence(file: &Path, url: &str, problem: &Problem) -> String {
    let (file, line, what) = (file.display(), problem.line, &problem.what);
    if !problem.closes {
        return format!("{file}:{line}: {what}");
    }
    let (which, route) = match route(url, &problem.about) {
        Some(route) => ("", route),
        None => {
            let prefix = format!("{url}the-path-that-is-meant");
            (", with its path", prefix_route(&prefix))
        }
    };
    format!("{file}:{line}: {what}; write instead, for what is to stay closed{which}:\n\n{route}")
}

/// A `[[route]]` that closes the same files; none where it would close more.
fn route(url: &str, about: &Scope) -> Option<String> {
    let below = format!("^{}", regex::escape(url));
    let regex = match about {
        Scope::All => return Some(prefix_route(url)),
        Scope::Part => return None,
        Scope::Names(names) => match names.strip_prefix('^') {
            Some(rest) => format!("{below}(.*/)?{rest}"),
            None => format!("{below}.*{names}"),
        },
        Scope::Paths(paths) => {
            let (flag, paths) = match paths.strip_prefix("(?i)") {
                Some(paths) => ("(?i)", paths),
                None => ("", &**paths),
            };
            match paths.strip_prefix('^') {
                Some(rest) if has_alternatives(rest) => return None,
                Some(rest) => format!("{flag}{below}{rest}"),
                None => format!("{flag}{below}.*(?:{paths})"),
            }
        }
    };
    // A route cannot have an expression that `regex` rejects.
    regex::Regex::new(&regex).ok()?;
    Some(format!(
        "    [[route]]\n    regex = {}\n    deny = true\n",
        quoted(&regex)
    ))
}

fn prefix_route(prefix: &str) -> String {
    format!(
        "    [[route]]\n    prefix = {}\n    deny = true\n",
        quoted(prefix)
    )
}

/// Whether a bar stands outside of all parentheses.
fn has_alternatives(pattern: &str) -> bool {
    let mut depth = 0_usize;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// As TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::app::site::Settings;
    use crate::app::site::routes::{RequestFacts, RouteRule, Routes};

    #[test]
    fn linked_directories_are_walked_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("site");
        let other = dir.path().join("other");
        for directory in [&root.join("pipe"), &root.join("long"), &other] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(other.join(".htaccess"), "NoSuchThing on").unwrap();
        std::os::unix::fs::symlink(&other, root.join("linked")).unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("above")).unwrap();
        let pipe = root.join("pipe/.htaccess");
        let made = std::process::Command::new("mkfifo").arg(pipe).status();
        assert!(made.unwrap().success());
        let long = "#\n".repeat(MAX_HTACCESS as usize);
        std::fs::write(root.join("long/.htaccess"), long).unwrap();
        let problems = problems(&root);
        let has = |text: &str| {
            let found = problems.iter().filter(|problem| problem.contains(text));
            found.count() == 1
        };
        assert!(has("linked/.htaccess:1: nosuchthing is not known"));
        assert!(has(
            "pipe/.htaccess: cannot be read (it is not a regular file)"
        ));
        assert!(has(
            "long/.htaccess: cannot be read (it is longer than 1 MiB)"
        ));
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn files_that_exceed_a_limit_alone_or_together_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let patterns = "BrowserMatch (bot[0-9]{9}){9} bad\n".repeat(55);
        for (name, text) in [
            ("a", &*patterns),
            ("b", &patterns),
            ("c", &patterns),
            ("d", &patterns),
            ("e", &format!("UnsetEnv{}", " a".repeat(90_000))),
            ("f", "RedirectMatch 403 (a{99}){9999}"),
        ] {
            std::fs::create_dir(root.join(name)).unwrap();
            std::fs::write(root.join(name).join(".htaccess"), text).unwrap();
        }
        let problems = problems(root);
        let named = |file: &str, what: &str| {
            let has = |problem: &&String| problem.contains(file) && problem.contains(what);
            problems.iter().filter(has).count()
        };
        assert_eq!(
            named("d/.htaccess:", "more than 128 MiB"),
            1,
            "{problems:?}"
        );
        assert_eq!(named("e/.htaccess:1", "more than 50000 directives"), 1);
        assert_eq!(named("f/.htaccess:1", "more than 6 MiB"), 1);
        assert_eq!(named("a/.htaccess", ""), 0);
        assert!(
            problems
                .iter()
                .all(|problem| problem.contains("deny = true"))
        );
    }

    #[test]
    fn lines_that_cannot_be_evaluated_are_named_with_a_route_that_closes_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("admin")).unwrap();
        std::fs::create_dir_all(root.join("fine")).unwrap();
        std::fs::write(root.join("fine/.htaccess"), "Require all denied").unwrap();
        std::fs::write(
            root.join("admin/.htaccess"),
            "<Files \"*.cgi\">\nRequire valid-user\n</Files>\nRequire expr true\nNoSuchThing on\n",
        )
        .unwrap();
        std::fs::write(
            root.join(".htaccess"),
            "RewriteEngine On\n\
             RewriteCond %{TIME_HOUR} >12\n\
             RewriteRule ^private/x(\\.|$) - [NC,F]\n\
             RewriteRule ^(?#x)a - [F]\n",
        )
        .unwrap();
        let mut problems = problems(root);
        let part = problems.remove(1);
        assert!(
            part.contains("prefix = \"/the-path-that-is-meant\""),
            "{part}"
        );
        let rule = problems.remove(0);
        let named: Vec<_> = problems
            .iter()
            .map(|text| text.strip_prefix(root.to_str().unwrap()).unwrap())
            .collect();
        assert_eq!(named.len(), 3, "{named:?}");
        assert!(named[0].starts_with("/admin/.htaccess:2: valid-user requires a password"));
        assert!(named[1].starts_with("/admin/.htaccess:4: Require expr is not evaluated"));
        assert!(named[2].starts_with("/admin/.htaccess:5: nosuchthing is not known"));
        for (text, closed, open) in [
            (named[0], "/admin/x/y.cgi", "/admin/y.txt"),
            (named[1], "/admin/y.txt", "/fine/y.txt"),
            (named[2], "/admin/y.txt", "/fine/y.txt"),
            (&*rule, "/Private/x.txt", "/private/y.txt"),
        ] {
            #[derive(serde::Deserialize)]
            struct File {
                route: Vec<RouteRule>,
            }
            let (_, toml) = text.split_once("\n\n").unwrap();
            let file: File = toml::from_str(toml).unwrap();
            let routes = Routes::new(&file.route, &Settings::default()).unwrap();
            let chosen = |path: &str| {
                let facts = RequestFacts {
                    method: &http::Method::GET,
                    path,
                    headers: &http::HeaderMap::new(),
                    query: None,
                };
                routes.choose(&facts).action.is_some()
            };
            assert!(chosen(closed) && !chosen(open), "{toml}");
        }
    }
}
