//! Applies the `.htaccess` files on a request's path as Apache does: access, rewriting, handlers.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use surus_sys::openat2::Access;

use super::htaccess::cost::LOOKUP;
use super::htaccess::facts::{Env, Facts};
use super::htaccess::handler::FileHandler;
use super::htaccess::rewrite::{self, Pass, RewriteOutcome};
use super::htaccess::rules::RedirectOutcome;
use super::htaccess::{FileRules, Htaccess, MergedRules};
use super::htaccess_files::{FileView, PathKind};
use super::lookup::NoScript;
use super::normalize::{NameKind, NormalizedPath, SegmentError, kind, normalize};
use super::opened::{Denial, OpenedPath};
use super::{FoundFile, Purpose, Resolution, Site, encode};
use crate::event::{RewrittenUrl, Script};
use crate::private_files::Shared;

/// The limit of internal redirects, as in Apache (`LimitInternalRecursion`).
const MAX_REDIRECTS: usize = 10;

/// The limit of look-ups per request. `DirectoryIndex` may name paths in other directories.
const MAX_LOOKUPS: usize = 256;

/// The state of a request while its `.htaccess` files are applied.
#[derive(Clone)]
pub(super) struct Visit<'a> {
    purpose: Purpose,
    facts: &'a Facts<'a>,
    now: Instant,
    /// The merged files on the way to the requested path, if already known.
    merged: Option<(Arc<MergedRules>, usize)>,
    query: Option<Cow<'a, str>>,
    /// The URL that the last `RewriteRule` has left. Like Apache's, `DirectoryIndex` and
    /// `FallbackResource` leave none.
    rewritten: Option<Arc<RewrittenUrl>>,
    env: Env,
    /// The flag `END` was met: no more rules are evaluated.
    is_over: bool,
    /// The handler set by the rules of this pass.
    handler: Option<FileHandler>,
    /// The type set by the rules of this pass.
    media_type: Option<Arc<str>>,
    passes: usize,
    lookups: usize,
    /// `FallbackResource` was followed.
    is_fallback: bool,
}

impl<'a> Visit<'a> {
    pub(super) fn new(
        purpose: Purpose,
        facts: &'a Facts<'a>,
        now: Instant,
        merged: (Arc<MergedRules>, usize),
    ) -> Visit<'a> {
        Visit {
            purpose,
            facts,
            now,
            merged: Some(merged),
            query: facts.query.map(Cow::Borrowed),
            rewritten: None,
            env: Env::default(),
            is_over: false,
            handler: None,
            media_type: None,
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
        if let Some(rejected) = self.reject(path) {
            return rejected;
        }
        let (files, stop) = path.files();
        let known = match visit.merged.take() {
            Some(known) => Ok(known),
            None => self.merged(htaccess, visit.facts, path.directories(), visit.now),
        };
        let (mut merged, directories) = match known {
            Ok(known) => known,
            Err(later) => return Resolution::Later(later),
        };
        let (at, end) = self.look_up(visit.purpose, path, directories, visit.now);
        let whole = path.path();
        let is_bare_directory = matches!(at, PathKind::Directory) && !files.ends_with('/');
        if is_bare_directory {
            // A directory's own file applies, too.
            let directory = format!("{files}/");
            match self.merged(htaccess, visit.facts, &directory, visit.now) {
                Ok((own, _)) => merged = own,
                Err(later) => return Resolution::Later(later),
            }
        }
        if stop == Some(SegmentError::Hidden) && !matches!(at, PathKind::Script(_)) {
            return Resolution::NotFound;
        }
        if let Some(error) = merged.failed() {
            return Resolution::Failed(error);
        }
        if merged.is_broken() {
            return Resolution::Denied(Denial::BrokenHtaccess);
        }
        let name = whole[..end].rsplit('/').next().unwrap_or_default();
        let file_rules = merged.for_file(name, &visit.facts.steps);
        // As in Apache, headers and URL are evaluated once for a directory and its index file.
        if !is_subrequest {
            file_rules.set_env(visit.facts, whole, &mut visit.env);
        }
        if let Err(denial) = file_rules.check(visit.facts, &visit.env) {
            return Resolution::Denied(denial);
        }
        let mut leads_to = None;
        let rules = file_rules.rules();
        let is_own =
            |directory: &str| is_bare_directory && directory.strip_suffix('/') == Some(files);
        let is_rewritten = !visit.is_over && !rules.is_some_and(|rules| is_own(&rules.directory));
        if is_rewritten && file_rules.forbids_rewriting() {
            return Resolution::Denied(Denial::DeniedByHtaccess);
        }
        if let Some(rules) = rules.filter(|_| is_rewritten) {
            let view = FileView::new(self, &at, whole, end);
            let mut pass = Pass {
                facts: visit.facts,
                files: &view,
                document_root: &self.document_root,
                path: whole,
                end,
                query: visit.query.take(),
                env: &mut visit.env,
                is_subrequest,
                handler: None,
                has_handler: false,
                media_type: None,
                is_over: false,
            };
            let outcome = rules.run(&mut pass);
            let (query, handler, is_over) = (pass.query, pass.handler, pass.is_over);
            visit.media_type = pass.media_type.or(visit.media_type.take());
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
                RewriteOutcome::Unchanged => {}
                RewriteOutcome::Internal(path) => leads_to = Some(path),
                RewriteOutcome::Redirect(status, to) => return Resolution::RedirectTo(status, to),
                RewriteOutcome::Status(403) => return Resolution::Denied(Denial::DeniedByHtaccess),
                RewriteOutcome::Status(status) => {
                    return Resolution::Status(status, "by a RewriteRule");
                }
                RewriteOutcome::Unknown => return view.unknown(),
            }
        }
        match file_rules.redirect(whole) {
            RedirectOutcome::Nowhere => {}
            RedirectOutcome::Unknown => return Resolution::Denied(Denial::UnknownRule),
            RedirectOutcome::Status(403) => return Resolution::Denied(Denial::DeniedByHtaccess),
            RedirectOutcome::Status(status) => return Resolution::Status(status, "by a Redirect"),
            RedirectOutcome::To(status, to) => {
                return Resolution::RedirectTo(status, rewrite::location(&to, visit.facts.query));
            }
        }
        file_rules.fix_env(&mut visit.env);
        if let Some(to) = leads_to {
            // A type applies only to the requested file.
            visit.handler = None;
            visit.media_type = None;
            visit.env.redirected();
            visit.rewritten = Some(Arc::new(RewrittenUrl {
                path: path.rest(0),
                query: visit.query.as_deref().map(str::to_owned),
            }));
            return self.redirect_internally(htaccess, visit, &to, false);
        }
        self.serve_found(htaccess, visit, &file_rules, path, at)
    }

    fn redirect_internally(
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
        purpose: Purpose,
        path: &NormalizedPath<'_>,
        directories: usize,
        now: Instant,
    ) -> (PathKind, usize) {
        let (files, stop) = path.files();
        let whole = path.path();
        match self.find_script_at(path, files, now) {
            Some(Ok((script, end))) => return (PathKind::Script(script), end),
            Some(Err(NoScript::Hidden)) => return (PathKind::Hidden, files.len()),
            Some(Err(NoScript::Denied(why))) => return (PathKind::Denied(why), files.len()),
            Some(Err(NoScript::Failed(error))) => return (PathKind::Failed(error), files.len()),
            Some(Err(NoScript::Missing | NoScript::Directory)) | None => {}
        }
        if stop.is_none() && directories == whole.len() {
            return (PathKind::Directory, whole.len());
        }
        // The first component that is not a directory.
        let next = whole[directories..].find('/');
        let end = next.map_or(whole.len(), |next| directories + next);
        if stop.is_some() || end < whole.len() {
            return (PathKind::Missing, end);
        }
        if kind(&files[directories..]) != NameKind::Plain {
            return (PathKind::Missing, end);
        }
        let at = match self.root.get(Path::new(&files[1..]), Access::Read) {
            OpenedPath::Regular { file, real, .. }
                if purpose == Purpose::Visitor
                    && self.hides(files, real.as_deref(), Shared::new(&file)) =>
            {
                PathKind::Hidden
            }
            OpenedPath::Regular { file, metadata, .. } => PathKind::File(FoundFile {
                path: self.root.path().join(&files[1..]),
                file,
                metadata,
                media_type: None,
            }),
            OpenedPath::Directory => PathKind::Directory,
            OpenedPath::Missing => PathKind::Missing,
            OpenedPath::Denied(why) => PathKind::Denied(why),
            OpenedPath::Failed(error) => PathKind::Failed(error),
        };
        (at, end)
    }

    /// Responds with the file or script at the final path.
    fn serve_found(
        &self,
        htaccess: &Htaccess,
        visit: &mut Visit<'_>,
        file_rules: &FileRules<'_>,
        path: &NormalizedPath<'_>,
        at: PathKind,
    ) -> Resolution {
        let whole = path.path();
        match at {
            PathKind::Script(_) if !file_rules.runs_php(visit.handler) => {
                Resolution::Denied(Denial::PhpOff)
            }
            PathKind::Script(script) => {
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
                Resolution::Script(visit.with_changes(script))
            }
            PathKind::File(_) if file_rules.is_source(visit.handler) => {
                Resolution::Denied(Denial::PhpOff)
            }
            PathKind::File(file) => Resolution::File(FoundFile {
                media_type: visit.media_type.take().or_else(|| file_rules.media_type()),
                ..file
            }),
            PathKind::Directory if !whole.ends_with('/') => {
                let directory = format!("{whole}/");
                let mut names = self.index_names(file_rules.merged).iter();
                let has_index = names.any(|name| self.has_index(visit, &directory, name));
                // The directory's own rules apply below the slash only.
                let rules = file_rules.rules();
                let has_rules = rules.is_some_and(|rules| *rules.directory == *directory);
                match has_index || has_rules || file_rules.merged.fallback().is_some() {
                    true => Resolution::Redirect(encode(&directory)),
                    false => self.miss(htaccess, visit, file_rules.merged, whole),
                }
            }
            PathKind::Directory => self
                .index(htaccess, visit, file_rules.merged, whole)
                .unwrap_or_else(|| self.miss(htaccess, visit, file_rules.merged, whole)),
            PathKind::Hidden => Resolution::NotFound,
            PathKind::Missing => self.miss(htaccess, visit, file_rules.merged, whole),
            PathKind::Denied(why) => Resolution::Denied(why),
            PathKind::Failed(error) => Resolution::Failed(error),
        }
    }

    /// Responds to a missing path. A front controller that was only found by its name is not used
    /// if there are `.htaccess` files on the way.
    fn miss(
        &self,
        htaccess: &Htaccess,
        visit: &mut Visit<'_>,
        merged: &MergedRules,
        url: &str,
    ) -> Resolution {
        if let Some(to) = merged.fallback()
            && !visit.is_fallback
        {
            visit.is_fallback = true;
            let (to, query) = relative_to(url, to);
            visit.prepend(query);
            return self.redirect_internally(htaccess, visit, &to, true);
        }
        match &self.front_controller {
            Some(front) if self.falls_back && (self.is_named || merged.is_empty()) => {
                Resolution::Script(visit.with_changes(front.clone()))
            }
            _ => Resolution::NotFound,
        }
    }

    fn index_names<'a>(&'a self, merged: &'a MergedRules) -> &'a [String] {
        merged.index().unwrap_or(&self.index)
    }

    /// Responds with an index file of a directory, which is named with its trailing slash. As in
    /// Apache, a denied index file is skipped if a later name can be served.
    fn index(
        &self,
        htaccess: &Htaccess,
        visit: &mut Visit<'_>,
        merged: &MergedRules,
        directory: &str,
    ) -> Option<Resolution> {
        let mut denied = None;
        for name in self.index_names(merged) {
            if !self.has_index(visit, directory, name) {
                continue;
            }
            let (to, query) = relative_to(directory, name);
            if let (Some(front), true, "/index.php") = (&self.front_controller, self.is_named, &*to)
            {
                return Some(Resolution::Script(visit.with_changes(front.clone())));
            }
            let mut attempt = visit.clone();
            attempt.prepend(query);
            let found = self.redirect_internally(htaccess, &mut attempt, &to, true);
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
    fn has_index(&self, visit: &Visit<'_>, directory: &str, name: &str) -> bool {
        if !visit.facts.steps.take(LOOKUP) {
            return false;
        }
        let (path, _) = relative_to(directory, name);
        let path = path.as_str();
        if self.is_named && path == "/index.php" {
            return true;
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        match kind(last) {
            NameKind::Script if self.is_uploaded_source(path) => false,
            NameKind::Script => !matches!(
                self.script_at(path, visit.now),
                Err(NoScript::Missing | NoScript::Directory)
            ),
            NameKind::Source => false,
            NameKind::Plain => {
                !last.is_empty()
                    && !matches!(
                        self.root.get(Path::new(&path[1..]), Access::Metadata),
                        OpenedPath::Missing
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

    /// The script with what rules have changed.
    fn with_changes(&self, script: Script) -> Script {
        let is_changed = self.query.as_deref() != self.facts.query;
        Script {
            query: is_changed.then(|| self.query.as_deref().unwrap_or_default().into()),
            rewritten: self.rewritten.clone(),
            ..script
        }
    }
}
