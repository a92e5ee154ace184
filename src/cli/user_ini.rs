//! Finds the .user.ini files that a booted engine does not read, and the settings of the others.

use std::path::{Path, PathBuf};

use http::{HeaderMap, Method};
use surus_sys::regular_file;

use super::engine_setup::{self, PoolConfig};
use super::root_walk::{self, ENTRIES};
use crate::app::site::routes::{Action, RequestFacts, Routes};

/// The directories whose files a booted engine reads; the first that has a setting counts. If the
/// script is outside the document root, those of a request for `index.php` count before its own
/// (`sapi/app/boot.c`).
fn read_for<'a>(root: &'a Path, script: &'a Path) -> Vec<&'a Path> {
    let Some(directory) = script.parent() else {
        return Vec::new();
    };
    match directory.starts_with(root) {
        true => directory
            .ancestors()
            .take_while(|directory| directory.starts_with(root))
            .collect(),
        false => vec![root, directory],
    }
}

/// The files below a document root that a booted engine does not read.
pub(super) struct UnreadUserIni {
    /// The script that the engine boots.
    pub script: PathBuf,
    pub root: PathBuf,
    pub files: Vec<PathBuf>,
    /// Whether all directories were examined.
    pub is_complete: bool,
}

impl UnreadUserIni {
    /// What to say if some directories were not examined.
    pub fn limit(&self) -> Option<String> {
        let root = self.root.display();
        (!self.is_complete).then(|| {
            format!(
                "{root} has more than {ENTRIES} files; .user.ini files among the rest were not \
                 looked for"
            )
        })
    }
}

/// The files that a pool does not read. None if it boots no script. `name` is `user_ini.filename`.
pub(super) fn unread_by(project: &Path, pool: &PoolConfig, name: &str) -> Option<UnreadUserIni> {
    if !(pool.entry.boots_script() && pool.entry.runs_scripts()) {
        return None;
    }
    // The engine has booted, so the script exists.
    let (script, site) = engine_setup::script_and_site(project, &pool.config).ok()?;
    let root = site.root().to_path_buf();
    let (mut files, is_complete) = unread(&root, &script, name);
    if let Ok(routes) = Routes::new(&pool.config.route, &pool.config.site) {
        files.retain(|file| !is_for_another(&routes, &root, file, pool.name));
    }
    Some(UnreadUserIni {
        script,
        root,
        files,
        is_complete,
    })
}

/// Whether rules send requests for any script next to this file to another pool. With `[[site]]`,
/// the pool's name comes after that of its site.
fn is_for_another(routes: &Routes, root: &Path, file: &Path, pool: &str) -> bool {
    let directory = file.parent().and_then(|path| path.strip_prefix(root).ok());
    let Some(directory) = directory.and_then(Path::to_str) else {
        return false;
    };
    let (pool, headers) = (pool.rsplit('/').next(), HeaderMap::new());
    let leads_away = |method: &Method, script: &str| {
        let path = match directory {
            "" => format!("/{script}"),
            directory => format!("/{directory}/{script}"),
        };
        let chosen = routes.choose(&RequestFacts {
            method,
            path: &path,
            headers: &headers,
            query: None,
        });
        match chosen.action {
            Some(Action::Engine(name)) => pool != Some(name.as_str()),
            Some(Action::Files(_) | Action::Redirect(_) | Action::Deny) => true,
            None => false,
        }
    };
    // A rule may be for one script or one method.
    let scripts = ["index.php", "surus-check.php"];
    let methods = [Method::GET, Method::POST];
    methods
        .iter()
        .all(|method| scripts.iter().all(|script| leads_away(method, script)))
}

/// The files below the document root that are not on the path from there to the booted script, and
/// whether all directories were examined. PHP reads such files at the start of a request; in a
/// booted engine that is the boot. If `name` is empty, PHP reads no such file.
fn unread(root: &Path, script: &Path, name: &str) -> (Vec<PathBuf>, bool) {
    if name.is_empty() {
        return (Vec::new(), true);
    }
    let directories = read_for(root, script);
    let is_read = |file: &Path| {
        let real = file.parent().and_then(|path| path.canonicalize().ok());
        real.is_some_and(|real| directories.contains(&real.as_path()))
    };
    let mut found = Vec::new();
    let is_complete = root_walk::walk(root, ENTRIES, |entry| {
        if entry.path.ends_with(name) && !is_read(entry.path) {
            found.push(entry.path.to_path_buf());
        }
        true
    });
    found.sort();
    (found, is_complete)
}

/// The value of `setting` in the files that a booted engine reads, if any.
pub(super) fn value(root: &Path, script: &Path, name: &str, setting: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut directories = read_for(root, script).into_iter();
    directories.find_map(|directory| value_in(&directory.join(name), setting))
}

/// The value of `setting` in this file. The last one counts, as in PHP.
fn value_in(file: &Path, setting: &str) -> Option<String> {
    const LARGEST: u64 = 1 << 20;
    let text = regular_file::read(file, LARGEST).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == setting).then(|| bare(value).to_string())
    });
    values.next_back()
}

/// The settings of files that PHP runs around each request.
const AUTO_FILES: [&str; 2] = ["auto_prepend_file", "auto_append_file"];

/// The settings of these that this file has, with their values.
pub(super) fn auto_files(file: &Path) -> Vec<String> {
    let set = |setting| {
        let value = value_in(file, setting).filter(|value| !value.is_empty())?;
        Some(format!("{setting} ({value})"))
    };
    AUTO_FILES.into_iter().filter_map(set).collect()
}

/// The files that `.user.ini` in the document root names for each request, if the pool's PHP does
/// not read it: command-line PHP, which runs workers of RoadRunner.
pub(super) fn unrun(project: &Path, pool: &PoolConfig, name: &str) -> Vec<(&'static str, String)> {
    if pool.entry.runs_scripts() {
        return Vec::new();
    }
    let Ok(site) = engine_setup::open_site(project, &pool.config) else {
        return Vec::new();
    };
    let value = |setting| {
        let value = value(site.root(), &site.root().join("index.php"), name, setting)?;
        (!value.is_empty()).then_some((setting, value))
    };
    AUTO_FILES.into_iter().filter_map(value).collect()
}

/// A value without quotes and comment; PHP writes an empty one as `none`.
fn bare(value: &str) -> &str {
    let value = value.trim();
    let quoted = ['"', '\''].iter().find_map(|quote| {
        let rest = value.strip_prefix(*quote)?;
        rest.split(*quote).next()
    });
    let value = quoted.unwrap_or_else(|| value.split(';').next().unwrap_or("").trim());
    match value.eq_ignore_ascii_case("none") {
        true => "",
        false => value,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nearest_user_ini_value_applies() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("app")).unwrap();
        let set = |directory: &str, text: &str| {
            std::fs::write(root.join(directory).join(".user.ini"), text).unwrap();
        };
        let value =
            |script: &str, name: &str| value(root, &root.join(script), name, "auto_prepend_file");
        assert_eq!(value("index.php", ".user.ini"), None);
        set(
            "",
            "; auto_prepend_file = no.php\n auto_prepend_file='a b.php' ; so\n",
        );
        assert_eq!(value("app/index.php", ".user.ini").unwrap(), "a b.php");
        assert_eq!(value("app/index.php", ""), None);
        set(
            "app",
            "auto_prepend_file = first.php\nauto_prepend_file = waf.php ; so\n",
        );
        assert_eq!(value("app/index.php", ".user.ini").unwrap(), "waf.php");
        assert_eq!(value("index.php", ".user.ini").unwrap(), "a b.php");
        let outside = value("../boot.php", ".user.ini");
        assert_eq!(outside.unwrap(), "a b.php");
        set("app", "auto_prepend_file = none");
        assert_eq!(value("app/index.php", ".user.ini").unwrap(), "");
    }

    #[test]
    fn user_ini_files_off_the_path_to_the_script_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for directory in ["public/admin/deep", "public/blog", "other"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in [
            "public",
            "public/admin",
            "public/admin/deep",
            "public/blog",
            "other",
        ] {
            std::fs::write(root.join(file).join(".user.ini"), "").unwrap();
        }
        let unread = |script: &str, name: &str| -> Vec<String> {
            let public = root.join("public");
            let (found, is_complete) = unread(&public, &root.join(script), name);
            assert!(is_complete);
            let inside = found.iter().map(|file| file.strip_prefix(&public).unwrap());
            inside.map(|file| file.display().to_string()).collect()
        };
        assert_eq!(
            unread("public/admin/index.php", ".user.ini"),
            ["admin/deep/.user.ini", "blog/.user.ini"]
        );
        // For a script outside the document root, the root's own file counts.
        assert_eq!(unread("other/boot.php", ".user.ini").len(), 3);
        assert!(unread("public/index.php", "").is_empty());
        assert!(unread("public/index.php", "other.ini").is_empty());
        // PHP reads the file behind a link, too.
        std::os::unix::fs::symlink("../other", root.join("public/linked")).unwrap();
        let linked = unread("public/index.php", ".user.ini");
        assert_eq!(linked.last().unwrap(), "linked/.user.ini");
        assert_eq!(unread("other/boot.php", ".user.ini").len(), 3);
    }

    #[test]
    fn user_ini_of_a_directory_that_a_rule_sends_to_another_pool_is_not_missed() {
        use crate::app::site::Settings;
        use crate::app::site::routes::RouteRule;
        let rule = |prefix: &str, engine: &str| RouteRule {
            prefix: Some(prefix.to_owned()),
            engine: Some(engine.to_owned()),
            ..RouteRule::default()
        };
        let denied = RouteRule {
            prefix: Some("/denied/".to_owned()),
            deny: true,
            ..RouteRule::default()
        };
        let of_get = RouteRule {
            methods: Some(vec!["GET".to_owned()]),
            ..rule("/get/", "classic")
        };
        let rules = [
            rule("/admin/", "classic"),
            rule("/api/", "rewind"),
            rule("/other/index.php", "classic"),
            of_get,
            denied,
        ];
        let routes = Routes::new(&rules, &Settings::default()).unwrap();
        let root = Path::new("/srv/app");
        for (file, pool, expected) in [
            ("admin/.user.ini", "rewind", true),
            ("admin/deep/.user.ini", "shop/rewind", true),
            ("admin/.user.ini", "shop/classic", false),
            ("api/.user.ini", "rewind", false),
            ("denied/.user.ini", "rewind", true),
            ("other/.user.ini", "rewind", false),
            ("get/.user.ini", "rewind", false),
            (".user.ini", "rewind", false),
        ] {
            let found = is_for_another(&routes, root, &root.join(file), pool);
            assert_eq!(found, expected, "{file} {pool}");
        }
    }
}
