//! Finds the .user.ini files that a booted engine does not read, and the settings of the others.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use http::{HeaderMap, Method};
use surus_sys::regular_file;

use super::engine_setup::{self, PoolConfig};
use super::findings::Findings;
use super::other_scripts;
use super::root_walk::{self, WalkLimit};
use crate::app::site::Site;
use crate::app::site::routes::{Action, RequestFacts, RouteRule, Routes};
use crate::engine::Report;

/// The limits of a search, because the start and reloads wait for it.
const MOST_ENTRIES: usize = 1_000_000;
const LONGEST: Duration = Duration::from_secs(5);

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
    script: PathBuf,
    files: Vec<PathBuf>,
    /// The values of [`AUTO_FILES`] that apply to every request.
    in_force: [String; 2],
    /// Why some files were not examined; empty if all were.
    reasons: Vec<String>,
}

impl UnreadUserIni {
    /// Why the application must not be booted: one of the files names a script to run around
    /// requests, such as a firewall, and no request would run it.
    pub fn obstacle(&self) -> Option<String> {
        let all = self.files.iter();
        let all = all.map(|file| (file, self.lost_settings(file)));
        let mut found = all.filter(|(_, lost)| !lost.is_empty());
        let (file, lost) = found.next()?;
        let more = match found.count() {
            0 => String::new(),
            more => format!(" ({more} more like it: see `surus check`)"),
        };
        Some(format!(
            "{}{more} sets {}, which would not run: a booted engine reads .user.ini once, from the \
             document root down to {}; move the setting into the document root's or into [php], \
             or use a [[route]] with engine = \"classic\"",
            file.display(),
            lost.join(" and "),
            self.script.display()
        ))
    }

    /// The settings of a file that name scripts which no request runs, with their values.
    fn lost_settings(&self, file: &Path) -> Vec<String> {
        let mut lost = Vec::new();
        for (setting, in_force) in AUTO_FILES.iter().zip(&self.in_force) {
            let value = value_in(file, setting).unwrap_or_default();
            // The same relative name may be another file there.
            let runs = value.starts_with('/') && value == *in_force;
            if !value.is_empty() && !runs {
                lost.push(format!("{setting} ({value})"));
            }
        }
        lost
    }

    /// Reports the files, as far as the user may expect that they apply, and whether they stop the
    /// start.
    pub fn report(&self, pool: &PoolConfig, may_be_unbooted: bool, findings: &mut Findings) {
        if let Some(limit) = self.limit() {
            findings.note(limit);
        }
        match self.obstacle() {
            Some(why) if may_be_unbooted => findings.note(format_args!(
                "the application cannot be booted, and `classic` will serve it: {why}"
            )),
            Some(why) => findings.stop(&anyhow!("engine `{}`: {why}", pool.name)),
            None => {}
        }
        for file in &self.files {
            let so = match self.lost_settings(file) {
                lost if lost.is_empty() => String::new(),
                lost => format!(", so {} does not run", lost.join(" and ")),
            };
            findings.note(format_args!(
                "{} is not read{so}: `{}` reads such files once, from the document root down to \
                 {}; move settings for all requests there or into [php], or use a [[route]] with \
                 engine = \"classic\"",
                file.display(),
                pool.name,
                self.script.display()
            ));
        }
    }

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
/// `is_main`: requests for which no route names a pool go to this one. `report` is that of a boot.
pub(super) fn unread_by(
    project: &Path,
    pool: &PoolConfig,
    is_main: bool,
    report: &Report,
) -> Option<UnreadUserIni> {
    let name = report.get("user_ini.filename");
    let boots = pool.entry.boots_script() && pool.entry.runs_scripts();
    if !boots || name.is_empty() || is_main && pool.leaves_others() {
        return None;
    }
    let (script, site) = match engine_setup::script_and_site(project, &pool.config) {
        Ok(found) => found,
        // PHP has booted the script, but this process may have no access to it.
        Err(error) => {
            return Some(UnreadUserIni {
                script: PathBuf::new(),
                files: Vec::new(),
                in_force: Default::default(),
                reasons: vec![format!("{error:#}")],
            });
        }
    };
    let root = site.root();
    let mut found = unread(&site, &script, name, Instant::now() + LONGEST);
    let runs_rest = is_main && !other_scripts::runs_front_only(pool);
    let rules = &pool.config.route;
    if let Ok(routes) = Routes::new(rules, &pool.config.site) {
        let is_for_this = |file: &Path| {
            may_lead_to(rules, root, file, pool.name)
                || !is_for_another(&routes, root, file, pool.name, runs_rest)
        };
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
    let place = root.display();
    match found.stopped_by {
        None => {}
        Some(WalkLimit::Entries) => reasons.push(format!(
            "{place} has more than {MOST_ENTRIES} files and directories"
        )),
        Some(WalkLimit::Time) => reasons.push(format!(
            "searching {place} takes longer than {} seconds",
            LONGEST.as_secs()
        )),
    }
    if let Some(first) = unreadable.first() {
        reasons.push(match unreadable.len() - 1 {
            0 => format!("{} cannot be read", first.display()),
            more => format!("{} and {more} more cannot be read", first.display()),
        });
    }
    let in_force = AUTO_FILES.map(|setting| {
        let of_directory = value(root, &script, name, setting);
        of_directory.unwrap_or_else(|| report.get(setting).to_owned())
    });
    Some(UnreadUserIni {
        script,
        files: found.files,
        in_force,
        reasons,
    })
}

/// Whether a rule may send some request for a script next to this file to this pool, whatever
/// conditions it has.
fn may_lead_to(rules: &[RouteRule], root: &Path, file: &Path, pool: &str) -> bool {
    let directory = file.parent().and_then(|path| path.strip_prefix(root).ok());
    let directory = match directory.and_then(Path::to_str) {
        None => return true,
        Some("") => "/".to_owned(),
        Some(directory) => format!("/{directory}/"),
    };
    let pool = pool.rsplit('/').next();
    for rule in rules.iter().filter(|rule| decides(rule)) {
        let prefix = rule.prefix.as_deref().unwrap_or("/");
        let has_all = directory.starts_with(prefix);
        if (has_all || prefix.starts_with(&directory)) && rule.engine.as_deref() == pool {
            return true;
        }
        if has_all && !has_conditions(rule) {
            return false;
        }
    }
    false
}

/// Whether requests that match go no further.
fn decides(rule: &RouteRule) -> bool {
    rule.engine.is_some() || rule.root.is_some() || rule.redirect.is_some() || rule.deny
}

/// Whether requests below `prefix` may not match.
fn has_conditions(rule: &RouteRule) -> bool {
    rule.host.is_some()
        || rule.suffix.is_some()
        || rule.regex.is_some()
        || rule.methods.is_some()
        || rule.cookie.is_some()
        || rule.header.is_some()
        || rule.query.is_some()
}

/// Whether requests for any script next to this file go to another pool, as far as samples show it.
/// `runs_rest`: requests for which no rule names a pool go to this one. With `[[site]]`, the pool's
/// name comes after that of its site.
fn is_for_another(routes: &Routes, root: &Path, file: &Path, pool: &str, runs_rest: bool) -> bool {
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
            None => !runs_rest,
        }
    };
    // A rule may be for one script or one method.
    let scripts = ["", "index.php", "index.php/surus-check", "surus-check.php"];
    let methods = [Method::GET, Method::POST, Method::PUT];
    methods
        .iter()
        .all(|method| scripts.iter().all(|script| leads_away(method, script)))
}

/// The result of a search for files that a booted engine does not read.
struct UserIniSearch {
    files: Vec<PathBuf>,
    /// Directories, and links, that this process has no access to.
    unreadable: Vec<PathBuf>,
    /// None: all was examined.
    stopped_by: Option<WalkLimit>,
}

/// The files below the document root that are not on the path from there to the booted script. PHP
/// reads such files at the start of a request; in a booted engine that is the boot. Leaves out
/// directories in which no request runs a script, such as those for uploads: visitors may place
/// files there. If `name` is empty, PHP reads no such file.
fn unread(site: &Site, script: &Path, name: &str, deadline: Instant) -> UserIniSearch {
    if name.is_empty() {
        return UserIniSearch {
            files: Vec::new(),
            unreadable: Vec::new(),
            stopped_by: None,
        };
    }
    let root = site.root();
    let directories = read_for(root, script);
    let is_read = |file: &Path| {
        let real = file.parent().and_then(|path| path.canonicalize().ok());
        real.is_some_and(|real| directories.contains(&real.as_path()))
    };
    let mut files = Vec::new();
    let mut end = root_walk::walk_until(root, MOST_ENTRIES, Some(deadline), |entry| {
        if entry.is_directory {
            let real = match entry.is_linked {
                true => entry.path.canonicalize().ok(),
                false => None,
            };
            return site.may_run_scripts_below(entry.path, real.as_deref());
        }
        if entry.path.ends_with(name) && !is_read(entry.path) {
            files.push(entry.path.to_path_buf());
        }
        false
    });
    files.sort();
    // The walk lists a link without access before it knows whether it leads to a directory.
    end.unreadable
        .retain(|path| path.ends_with(name) || site.may_run_scripts_below(path, None));
    UserIniSearch {
        files,
        unreadable: end.unreadable,
        stopped_by: end.stopped_by,
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

/// A value without quotes and comment. PHP takes these words for an empty one.
fn bare(value: &str) -> &str {
    let value = value.trim();
    let quoted = ['"', '\''].iter().find_map(|quote| {
        let rest = value.strip_prefix(*quote)?;
        rest.split(*quote).next()
    });
    let value = quoted.unwrap_or_else(|| value.split(';').next().unwrap_or("").trim());
    let empty = ["none", "off", "no", "false", "null"];
    match empty.iter().any(|word| value.eq_ignore_ascii_case(word)) {
        true => "",
        false => value,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
