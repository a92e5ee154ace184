//! Applies the `.htaccess` files on a request's path as Apache does: access, rewriting, handlers.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use surus_sys::openat2::Access;

use super::htaccess::condition::{self, Files};
use super::htaccess::facts::{Env, Facts};
use super::htaccess::handler::Handler;
use super::htaccess::rewrite::{self, Outcome, Pass};
use super::htaccess::rules::Led;
use super::htaccess::{About, Htaccess, Way};
use super::lookup::NoScript;
use super::normalize::{Kind, NormalizedPath, Stop, kind, normalize};
use super::opened::{Denial, Opened};
use super::{Asker, Found, Resolution, Site, encode};
use crate::event::Script;
use crate::private_files::Shared;

/// The limit of internal redirects, as in Apache (`LimitInternalRecursion`).
const MAX_REDIRECTS: usize = 10;

/// The limit of look-ups per request. `DirectoryIndex` may name paths in other directories.
const MAX_LOOKUPS: usize = 256;

/// The state of a request while its `.htaccess` files are applied.
#[derive(Clone)]
pub(super) struct Visit<'a> {
    asker: Asker,
    facts: &'a Facts<'a>,
    now: Instant,
    /// The merged files on the way to the requested path, if already known.
    way: Option<(Arc<Way>, usize)>,
    query: Option<Cow<'a, str>>,
    env: Env,
    /// The flag `END` was met: no more rules are evaluated.
    is_over: bool,
    /// The handler set by the rules of this pass.
    handler: Option<Handler>,
    passes: usize,
    lookups: usize,
    /// `FallbackResource` was followed.
    is_fallback: bool,
}

/// What exists at a path.
enum At {
    Script(Script),
    File(Found),
    Directory,
    /// A private file.
    Hidden,
    Missing,
    Denied(Denial),
    Failed(super::LookupError),
}

impl<'a> Visit<'a> {
    pub(super) fn new(
        asker: Asker,
        facts: &'a Facts<'a>,
        now: Instant,
        way: (Arc<Way>, usize),
    ) -> Visit<'a> {
        Visit {
            asker,
            facts,
            now,
            way: Some(way),
            query: facts.query.map(Cow::Borrowed),
            env: Env::default(),
            is_over: false,
            handler: None,
            passes: 0,
            lookups: 0,
            is_fallback: false,
        }
    }
}

impl Site {
    /// Looks up a path that has `.htaccess` files on its way, or may be redirected to one that has.
    pub(super) fn follow(
        &self,
        htaccess: &Htaccess,
        visit: &mut Visit<'_>,
        path: &NormalizedPath<'_>,
        is_subrequest: bool,
    ) -> Resolution {
        visit.passes += 1;
        visit.lookups += 1;
        if visit.passes > MAX_REDIRECTS + 1 || visit.lookups > MAX_LOOKUPS {
            return Resolution::Status(500, "more internal redirects than Apache follows");
        }
        if let Some(refused) = self.refuse(path) {
            return refused;
        }
        let (files, stop) = path.files();
        let known = visit.way.take();
        let (mut way, directories) =
            known.unwrap_or_else(|| htaccess.way(&self.root, path.directories(), visit.now));
        let (at, end) = self.look_up(visit.asker, path, directories, visit.now);
        let whole = path.path();
        let is_bare_directory = matches!(at, At::Directory) && !files.ends_with('/');
        if is_bare_directory {
            // A directory's own file applies, too.
            (way, _) = htaccess.way(&self.root, &format!("{files}/"), visit.now);
        }
        if stop == Some(Stop::Hidden) && !matches!(at, At::Script(_)) {
            return Resolution::NotFound;
        }
        if let Some(trouble) = way.failed() {
            return Resolution::Failed(trouble);
        }
        if way.is_broken() {
            return Resolution::Denied(Denial::BrokenHtaccess);
        }
        let name = whole[..end].rsplit('/').next().unwrap_or_default();
        let about = way.about(name);
        // As in Apache, headers and URL are evaluated once for a directory and its index file.
        if !is_subrequest {
            about.set_env(visit.facts, whole, &mut visit.env);
        }
        if let Err(denial) = about.check(visit.facts, &visit.env) {
            return Resolution::Denied(denial);
        }
        let mut leads_to = None;
        let rules = about.rules();
        let is_own =
            |directory: &str| is_bare_directory && directory.strip_suffix('/') == Some(files);
        let is_rewritten = !visit.is_over && !rules.is_some_and(|rules| is_own(&rules.directory));
        if is_rewritten && about.forbids_rewriting() {
            return Resolution::Denied(Denial::Closed);
        }
        if let Some(rules) = rules.filter(|_| is_rewritten) {
            let mut pass = Pass {
                facts: visit.facts,
                files: &Look {
                    site: self,
                    at: &at,
                    is_whole: end == whole.len(),
                    path: &whole[..end],
                    asked: OnceCell::new(),
                },
                document_root: &self.document_root,
                path: whole,
                end,
                query: visit.query.take(),
                env: &mut visit.env,
                is_subrequest,
                handler: None,
                has_handler: false,
                is_over: false,
            };
            let outcome = rules.run(&mut pass);
            let (query, handler, is_over) = (pass.query, pass.handler, pass.is_over);
            visit.query = query.map(|query| match query {
                Cow::Borrowed(query) if visit.facts.query == Some(query) => {
                    Cow::Borrowed(visit.facts.query.unwrap_or_default())
                }
                query => Cow::Owned(query.into_owned()),
            });
            // The rules for a directory also apply to its index file.
            visit.handler = handler.or(visit.handler);
            visit.is_over |= is_over;
            match outcome {
                Outcome::Unchanged => {}
                Outcome::Internal(path) => leads_to = Some(path),
                Outcome::Redirect(status, to) => return Resolution::RedirectTo(status, to),
                Outcome::Status(403) => return Resolution::Denied(Denial::Closed),
                Outcome::Status(status) => return Resolution::Status(status, "by a RewriteRule"),
                Outcome::Unknown => return Resolution::Denied(Denial::UnknownRule),
            }
        }
        match about.redirect(whole) {
            Led::Nowhere => {}
            Led::Unknown => return Resolution::Denied(Denial::UnknownRule),
            Led::Status(403) => return Resolution::Denied(Denial::Closed),
            Led::Status(status) => return Resolution::Status(status, "by a Redirect"),
            Led::To(status, to) => {
                return Resolution::RedirectTo(status, rewrite::location(&to, visit.facts.query));
            }
        }
        about.fix_env(&mut visit.env);
        if let Some(to) = leads_to {
            // A type applies only to the requested file.
            visit.handler = None;
            visit.env.redirected();
            return self.go_on(htaccess, visit, &to, false);
        }
        self.arrive(htaccess, visit, &about, path, at)
    }

    fn go_on(
        &self,
        htaccess: &Htaccess,
        visit: &mut Visit<'_>,
        to: &str,
        is_subrequest: bool,
    ) -> Resolution {
        // As in Apache, `END` does not affect subrequests.
        visit.is_over &= !is_subrequest;
        match normalize(&encode(to)) {
            Ok(path) => self.follow(htaccess, visit, &path, is_subrequest),
            Err(why) => Resolution::Malformed(why),
        }
    }

    /// Returns what exists at the path, and the end of the part that names a file. `directories` is
    /// the end of the existing directories.
    fn look_up(
        &self,
        asker: Asker,
        path: &NormalizedPath<'_>,
        directories: usize,
        now: Instant,
    ) -> (At, usize) {
        let (files, stop) = path.files();
        let whole = path.path();
        match self.find_script_at(path, files, now) {
            Some(Ok((script, end))) => return (At::Script(script), end),
            Some(Err(NoScript::Hidden)) => return (At::Hidden, files.len()),
            Some(Err(NoScript::Denied(why))) => return (At::Denied(why), files.len()),
            Some(Err(NoScript::Failed(trouble))) => return (At::Failed(trouble), files.len()),
            Some(Err(NoScript::Missing | NoScript::Directory)) | None => {}
        }
        if stop.is_none() && directories == whole.len() {
            return (At::Directory, whole.len());
        }
        // The first component that is not a directory.
        let next = whole[directories..].find('/');
        let end = next.map_or(whole.len(), |next| directories + next);
        if stop.is_some() || end < whole.len() {
            return (At::Missing, end);
        }
        if kind(&files[directories..]) != Kind::Plain {
            return (At::Missing, end);
        }
        let at = match self.root.get(Path::new(&files[1..]), Access::Read) {
            Opened::Regular { file, real, .. }
                if asker == Asker::Visitor
                    && self.hides(files, real.as_deref(), Shared::new(&file)) =>
            {
                At::Hidden
            }
            Opened::Regular { file, metadata, .. } => At::File(Found {
                path: self.root.path().join(&files[1..]),
                file,
                metadata,
            }),
            Opened::Directory => At::Directory,
            Opened::Missing => At::Missing,
            Opened::Denied(why) => At::Denied(why),
            Opened::Failed(trouble) => At::Failed(trouble),
        };
        (at, end)
    }

    /// Responds with the file or script at the final path.
    fn arrive(
        &self,
        htaccess: &Htaccess,
        visit: &mut Visit<'_>,
        about: &About<'_>,
        path: &NormalizedPath<'_>,
        at: At,
    ) -> Resolution {
        let whole = path.path();
        match at {
            At::Script(_) if !about.runs_php(visit.handler) => Resolution::Denied(Denial::PhpOff),
            At::Script(script) => {
                let front = self.front_controller.as_ref();
                // A script named on the command line replaces the index.php that rules lead to.
                let script = match front {
                    Some(front)
                        if self.is_named && visit.passes > 1 && *script.name == *"/index.php" =>
                    {
                        Script {
                            path_info: script.path_info,
                            ..front.clone()
                        }
                    }
                    _ => script,
                };
                Resolution::Script(visit.asked(script))
            }
            At::File(_) if about.is_source(visit.handler) => Resolution::Denied(Denial::PhpOff),
            At::File(file) => Resolution::File(file),
            At::Directory if !whole.ends_with('/') => {
                let directory = format!("{whole}/");
                let mut names = self.index_names(about.way).iter();
                let has_index =
                    names.any(|name| self.has_index(&relative_to(&directory, name).0, visit.now));
                match has_index || about.way.fallback().is_some() {
                    true => Resolution::Redirect(encode(&directory)),
                    false => self.miss(htaccess, visit, about.way, whole),
                }
            }
            At::Directory => self
                .index(htaccess, visit, about.way, whole)
                .unwrap_or_else(|| self.miss(htaccess, visit, about.way, whole)),
            At::Hidden => Resolution::NotFound,
            At::Missing => self.miss(htaccess, visit, about.way, whole),
            At::Denied(why) => Resolution::Denied(why),
            At::Failed(trouble) => Resolution::Failed(trouble),
        }
    }

    /// Responds to a missing path. A front controller that was only found by its name is not used
    /// if there are `.htaccess` files on the way.
    fn miss(&self, htaccess: &Htaccess, visit: &mut Visit<'_>, way: &Way, url: &str) -> Resolution {
        if let Some(to) = way.fallback()
            && !visit.is_fallback
        {
            visit.is_fallback = true;
            let (to, query) = relative_to(url, to);
            visit.prepend(query);
            return self.go_on(htaccess, visit, &to, true);
        }
        match &self.front_controller {
            Some(front) if self.falls_back && (self.is_named || way.is_empty()) => {
                Resolution::Script(visit.asked(front.clone()))
            }
            _ => Resolution::NotFound,
        }
    }

    fn index_names<'a>(&'a self, way: &'a Way) -> &'a [String] {
        way.index().unwrap_or(&self.index)
    }

    /// Responds with an index file of a directory, which is named with its trailing slash. As in
    /// Apache, a denied index file is skipped if a later name can be served.
    fn index(
        &self,
        htaccess: &Htaccess,
        visit: &mut Visit<'_>,
        way: &Way,
        directory: &str,
    ) -> Option<Resolution> {
        let mut denied = None;
        for name in self.index_names(way) {
            let (to, query) = relative_to(directory, name);
            if !self.has_index(&to, visit.now) {
                continue;
            }
            if let (Some(front), true, "/index.php") = (&self.front_controller, self.is_named, &*to)
            {
                return Some(Resolution::Script(visit.asked(front.clone())));
            }
            let mut attempt = visit.clone();
            attempt.prepend(query);
            let found = self.go_on(htaccess, &mut attempt, &to, true);
            let is_led_elsewhere = attempt.passes > visit.passes + 1;
            match found {
                found if is_led_elsewhere => return Some(found),
                Resolution::NotFound | Resolution::Status(404, _) => {}
                found @ Resolution::Status(..) => denied = Some(found),
                Resolution::Denied(why) if why.is_by_htaccess() => {
                    denied = Some(Resolution::Denied(why));
                }
                found => return Some(found),
            }
            visit.lookups = attempt.lookups;
        }
        denied
    }

    /// Whether something exists at the path of an index file.
    fn has_index(&self, path: &str, now: Instant) -> bool {
        if self.is_named && path == "/index.php" {
            return true;
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        match kind(last) {
            Kind::Script if self.is_uploaded_source(path) => false,
            Kind::Script => !matches!(
                self.script_at(path, now),
                Err(NoScript::Missing | NoScript::Directory)
            ),
            Kind::Source => false,
            Kind::Plain => {
                !last.is_empty()
                    && !matches!(
                        self.root.get(Path::new(&path[1..]), Access::Look),
                        Opened::Missing
                    )
            }
        }
    }
}

/// Resolves a `DirectoryIndex` name relative to a URL, into path and query.
fn relative_to<'a>(url: &str, name: &'a str) -> (String, Option<&'a str>) {
    let (name, query) = match name.split_once('?') {
        Some((name, query)) => (name, Some(query)),
        None => (name, None),
    };
    let directory = url.rfind('/').map_or("/", |slash| &url[..=slash]);
    let path = match name.starts_with('/') {
        true => name.to_owned(),
        false => format!("{directory}{name}"),
    };
    (path, query)
}

impl Visit<'_> {
    /// Prepends a query to the current one, as Apache does.
    fn prepend(&mut self, query: Option<&str>) {
        let Some(first) = query else {
            return;
        };
        self.query = Some(match self.query.as_deref() {
            Some(query) => format!("{first}?{query}").into(),
            None => first.to_owned().into(),
        });
    }

    /// The script with the query that rules have set.
    fn asked(&self, script: Script) -> Script {
        match self.query.as_deref() == self.facts.query {
            true => script,
            false => Script {
                query: Some(Arc::from(self.query.as_deref().unwrap_or_default())),
                ..script
            },
        }
    }
}

/// The files as seen by conditions.
struct Look<'a> {
    site: &'a Site,
    at: &'a At,
    /// Whether the path ends with the name of the file.
    is_whole: bool,
    path: &'a str,
    asked: OnceCell<condition::Kind>,
}

impl Look<'_> {
    fn look(&self, path: &str) -> Option<Metadata> {
        if leads_up(path) {
            return None;
        }
        let below = path.strip_prefix(&*self.site.document_root);
        let below = below.filter(|below| below.is_empty() || below.starts_with('/'));
        match below.map(|below| below.trim_matches('/')) {
            None | Some("") => std::fs::metadata(path).ok(),
            Some(below) => match self.site.root.get(Path::new(below), Access::Look) {
                Opened::Regular { metadata, .. } => Some(metadata),
                // A symbolic link that may not be followed has no target.
                Opened::Directory => std::fs::metadata(path).ok(),
                _ => None,
            },
        }
    }
}

impl Files for Look<'_> {
    fn asked(&self) -> condition::Kind {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        match self.at {
            At::Script(_) | At::File(_) | At::Hidden => condition::Kind::File,
            At::Directory => condition::Kind::Directory,
            // A file whose name prevented its opening may exist.
            At::Missing if self.is_whole && kind(name) == Kind::Plain => condition::Kind::Missing,
            _ => *self
                .asked
                .get_or_init(|| self.kind(&format!("{}{}", self.site.document_root, self.path))),
        }
    }

    fn kind(&self, path: &str) -> condition::Kind {
        match self.look(path) {
            Some(found) if found.is_dir() => condition::Kind::Directory,
            Some(found) if found.is_file() => condition::Kind::File,
            _ => condition::Kind::Missing,
        }
    }

    fn metadata(&self, path: &str) -> Option<Metadata> {
        self.look(path)
    }

    fn is_link(&self, path: &str) -> bool {
        !leads_up(path) && std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
    }
}

/// Whether the path contains `..`, which a client could use to reach any file.
fn leads_up(path: &str) -> bool {
    path.split('/').any(|name| name == "..")
}
