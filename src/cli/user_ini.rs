//! Finds the .user.ini files that a booted engine does not read, and the settings of the others.

use std::io::ErrorKind;
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
    pub files: Vec<PathBuf>,
    /// Why some files were not examined; empty if all were.
    reasons: Vec<String>,
}

impl UnreadUserIni {
    /// A sentence about the files that were not examined, if there are any.
    pub fn limit(&self) -> Option<String> {
        (!self.reasons.is_empty()).then(|| {
            format!(
                "{}; .user.ini files there were not examined",
                self.reasons.join(", and ")
            )
        })
    }
}

/// The files that a pool does not read. None if it boots no script, or PHP reads no such files.
/// `is_main`: requests for which no route names a pool go to this one. `name` is
/// `user_ini.filename`.
pub(super) fn unread_by(
    project: &Path,
    pool: &PoolConfig,
    is_main: bool,
    name: &str,
) -> Option<UnreadUserIni> {
    let boots = pool.entry.boots_script() && pool.entry.runs_scripts();
    if !boots || name.is_empty() {
        return None;
    }
    let (script, site) = match engine_setup::script_and_site(project, &pool.config) {
        Ok(found) => found,
        // PHP has booted the script, but this process may have no access to it.
        Err(error) => {
            return Some(UnreadUserIni {
                script: PathBuf::new(),
                files: Vec::new(),
                reasons: vec![format!("{error:#}")],
            });
        }
    };
    let root = site.root();
    let mut found = unread(root, &script, name);
    if let Ok(routes) = Routes::new(&pool.config.route, &pool.config.site) {
        let is_for_this = |file: &Path| !is_for_another(&routes, root, file, pool.name, is_main);
        found.files.retain(|file| is_for_this(file));
        found
            .unreadable
            .retain(|directory| is_for_this(&directory.join(name)));
    }
    // A link to a file without access is in both lists.
    let is_new = |file: &PathBuf| !found.unreadable.contains(file) && is_unreadable(file);
    let files = found.files.iter().filter(|file| is_new(file));
    let unreadable: Vec<_> = found.unreadable.iter().chain(files).collect();
    let mut reasons = Vec::new();
    if !found.is_complete {
        let root = root.display();
        reasons.push(format!("{root} has more than {ENTRIES} directories"));
    }
    if let Some(first) = unreadable.first() {
        reasons.push(match unreadable.len() - 1 {
            0 => format!("{} cannot be read", first.display()),
            more => format!("{} and {more} more cannot be read", first.display()),
        });
    }
    Some(UnreadUserIni {
        script,
        files: found.files,
        reasons,
    })
}

/// Whether rules send requests for any script next to this file to another pool. Without a rule,
/// requests go to the main pool. With `[[site]]`, the pool's name comes after that of its site.
fn is_for_another(routes: &Routes, root: &Path, file: &Path, pool: &str, is_main: bool) -> bool {
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
            None => !is_main,
        }
    };
    // A rule may be for one script or one method.
    let scripts = ["index.php", "surus-check.php"];
    let methods = [Method::GET, Method::POST];
    methods
        .iter()
        .all(|method| scripts.iter().all(|script| leads_away(method, script)))
}

/// The result of a search.
struct Found {
    files: Vec<PathBuf>,
    /// Directories, and links, that this process has no access to.
    unreadable: Vec<PathBuf>,
    /// False: there are more directories than the limit.
    is_complete: bool,
}

/// The files below the document root that are not on the path from there to the booted script. PHP
/// reads such files at the start of a request; in a booted engine that is the boot. If `name` is
/// empty, PHP reads no such file.
fn unread(root: &Path, script: &Path, name: &str) -> Found {
    if name.is_empty() {
        return Found {
            files: Vec::new(),
            unreadable: Vec::new(),
            is_complete: true,
        };
    }
    let directories = read_for(root, script);
    let is_read = |file: &Path| {
        let real = file.parent().and_then(|path| path.canonicalize().ok());
        real.is_some_and(|real| directories.contains(&real.as_path()))
    };
    let mut files = Vec::new();
    let end = root_walk::walk_directories(root, ENTRIES, |entry| {
        if !entry.is_directory && entry.path.ends_with(name) && !is_read(entry.path) {
            files.push(entry.path.to_path_buf());
        }
        true
    });
    files.sort();
    Found {
        files,
        unreadable: end.unreadable,
        is_complete: end.is_complete,
    }
}

/// Whether this process cannot read a file that PHP may be able to read.
fn is_unreadable(file: &Path) -> bool {
    regular_file::open(file).is_err_and(|error| error.kind() != ErrorKind::NotFound)
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
            let found = unread(&public, &root.join(script), name);
            assert!(found.is_complete && found.unreadable.is_empty());
            let files = found.files.iter();
            let inside = files.map(|file| file.strip_prefix(&public).unwrap());
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
            let found = is_for_another(&routes, root, &root.join(file), pool, true);
            assert_eq!(found, expected, "{file} {pool}");
        }
        for (file, expected) in [("api/.user.ini", false), ("blog/.user.ini", true)] {
            let found = is_for_another(&routes, root, &root.join(file), "rewind", false);
            assert_eq!(found, expected, "{file}");
        }
    }

    #[test]
    fn pool_of_a_route_does_not_miss_files_of_the_main_pool() {
        let project = project_with_pools();
        let pools = pools_of(project.path());
        let (main, api) = (&pools[0], &pools[1]);
        assert_eq!((main.name, api.name), ("classic", "rewind"));
        assert!(unread_by(project.path(), main, true, ".user.ini").is_none());
        let found = unread_by(project.path(), api, false, ".user.ini").unwrap();
        assert_eq!(found.limit(), None);
        assert_eq!(found.files.len(), 1, "{:?}", found.files);
        assert!(found.files[0].ends_with("public/api/.user.ini"));
    }

    #[test]
    fn user_ini_that_cannot_be_opened_is_reported_as_not_examined() {
        let project = project_with_pools();
        let file = project.path().join("public/api/.user.ini");
        std::fs::remove_file(&file).unwrap();
        // Not a regular file, so root cannot read it either.
        std::os::unix::fs::symlink("/dev/full", &file).unwrap();
        let pools = pools_of(project.path());
        let found = unread_by(project.path(), &pools[1], false, ".user.ini").unwrap();
        let limit = found.limit().unwrap();
        assert!(
            limit.ends_with(
                "public/api/.user.ini cannot be read; .user.ini files there were not examined"
            ),
            "{limit}"
        );
    }

    #[test]
    fn script_that_cannot_be_opened_is_reported() {
        let project = project_with_pools();
        let pools = pools_of(project.path());
        std::fs::remove_file(project.path().join("public/index.php")).unwrap();
        let found = unread_by(project.path(), &pools[1], false, ".user.ini").unwrap();
        assert!(found.files.is_empty());
        assert!(found.limit().is_some());
    }

    /// A project whose main pool boots no script, and one of a route does.
    fn project_with_pools() -> tempfile::TempDir {
        let project = tempfile::tempdir().unwrap();
        for directory in ["public/api", "public/blog"] {
            let directory = project.path().join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            let text = "auto_prepend_file = waf.php\n";
            std::fs::write(directory.join(".user.ini"), text).unwrap();
        }
        std::fs::write(project.path().join("public/index.php"), "<?php").unwrap();
        project
    }

    fn pools_of(project: &Path) -> Vec<PoolConfig> {
        let config = "[engine]\nname = \"classic\"\n\
            [[route]]\nprefix = \"/api/\"\nengine = \"rewind\"\n";
        let config = toml::from_str(config).unwrap();
        engine_setup::pools(project, &config, &[]).unwrap()
    }
}
