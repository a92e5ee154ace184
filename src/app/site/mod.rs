//! Finds the file or script that answers a URL.
//!
//! An existing file is served, a directory through one of its index files, and everything else goes
//! to the front controller, like nginx's `try_files $uri $uri/ /index.php?$query`. The following is
//! never served, whatever the URL:
//!
//! - files outside the document root, except through a symbolic link that [`Symlinks`] allows;
//! - dot files and the contents of dot directories, except `/.well-known/`;
//! - PHP source as text (see `kind` in `normalize.rs`): `x.php` is run; `x.PHP`, `x.phtml`, `x.inc`
//!   or `x.php.bak` are treated as missing;
//! - PHP below one of the `no_php` paths;
//! - files that `.htaccess` files deny (see `htaccess/`);
//! - Surus's own configuration;
//! - private files such as `composer.lock`, `dump.sql`, `debug.log` (see `hidden_files.rs` and
//!   `private_files/`).

mod access_check;
mod adopted;
mod document_root;
pub mod file_opener;
mod hidden_files;
mod htaccess;
mod htaccess_files;
mod htaccess_walk;
mod lookup;
mod lookup_cache;
mod normalize;
mod opened;
pub mod routes;
mod secret_files;
mod settings;
mod slow_lookup;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::event::Script;
use hidden_files::Hidden;
use htaccess::Htaccess;
use htaccess_walk::Visit;
use lookup_cache::Recent;
use normalize::{NameKind, fold, kind};
use secret_files::SecretFiles;
use settings::index;

pub use access_check::AccessCheck;
pub use adopted::Described;
pub(crate) use document_root::Root;
pub use document_root::Symlinks;
pub use hidden_files::HiddenBy;
pub use htaccess::facts::Facts;
pub use htaccess::{
    MAX_BYTES as MAX_HTACCESS, Pace, Problem, Scope, SiteMemory, Steps, read as read_htaccess,
};
pub use normalize::{NormalizedPath, normalize};
pub use opened::{Denial, LookupError};
pub use settings::Settings;
pub use slow_lookup::Later;

/// The path of Surus's configuration if the project itself is the document root. Guarded even if it
/// was not read.
const CONFIGURATION: &str = "/surus.toml";

/// The response to a URL.
#[derive(Debug)]
pub enum Resolution {
    /// Sends this file unchanged.
    File(FoundFile),
    /// Runs this script.
    Script(Script),
    /// 301 to this path, percent-encoded and on this host. The caller appends the query.
    Redirect(String),
    /// A redirect by an `.htaccess` file: status, and location with query.
    RedirectTo(u16, String),
    /// Another status set by an `.htaccess` file; the reason is for the log.
    Status(u16, &'static str),
    /// 404.
    NotFound,
    /// 403; the reason is for the log.
    Denied(Denial),
    /// 400; the reason is for the log.
    Malformed(&'static str),
    /// 503 or 500.
    Failed(LookupError),
    /// The look-up takes long, see [`Site::find_in_turn`].
    Later(Later),
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct FoundFile {
    /// The absolute path as the site names it, with symbolic links not resolved.
    pub path: PathBuf,
    pub file: File,
    pub metadata: Metadata,
    /// The type that `.htaccess` files name. None for the usual type of the file's name.
    pub media_type: Option<Arc<str>>,
}

/// A document root and its rules. The directory stays open, so later renames do not affect it.
#[derive(Debug)]
pub struct Site {
    root: Root,
    /// `DOCUMENT_ROOT`.
    document_root: Arc<str>,
    /// Answers requests for missing files.
    front_controller: Option<Script>,
    /// Whether the front controller was configured, not only found as `index.php`.
    is_named: bool,
    falls_back: bool,
    /// Files answer, not only the front controller.
    has_files: bool,
    index: Vec<String>,
    /// [`fold`]ed, without a trailing slash.
    no_php: Vec<String>,
    /// Serves static files only.
    scriptless: bool,
    /// Recently found scripts. A new file is visible at once, because PHP opens scripts itself, and
    /// files to be sent are always reopened.
    recent: Recent<Script>,
    htaccess: Option<Htaccess>,
    secret: SecretFiles,
    /// None if a script chooses what is sent from here.
    hidden: Option<Hidden>,
    /// Whether PHP libraries, some of whose files are private, are below.
    has_libraries: bool,
}

/// The purpose of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Visitor,
    /// A script delegates the sending of a file. It is responsible for private files.
    Script,
}

impl Site {
    /// Opens the site of a project. The front controller is `script` (relative to the working
    /// directory), or `index.php` in the document root if it exists.
    pub fn open(project: &Path, settings: &Settings, script: Option<&Path>) -> Result<Site> {
        let directory = document_root(project, settings.root.as_deref());
        let root =
            Root::open(&directory, settings.symlinks).with_context(|| match &settings.root {
                Some(_) => format!(
                    "`root` is the document root, relative to the project {}",
                    project.display()
                ),
                None => "the project directory would be served".to_owned(),
            })?;
        let document_root: Arc<str> = utf8(root.path())?.into();
        let front_controller = match script {
            Some(script) => Some(given_script(&document_root, script)?),
            None => {
                let filename = root.path().join("index.php");
                filename.is_file().then(|| Script {
                    root: document_root.clone(),
                    filename: filename.into(),
                    name: "/index.php".into(),
                    path_info: OsString::new(),
                    query: None,
                    rewritten: None,
                })
            }
        };
        let has_libraries = project.canonicalize().is_ok_and(|path| path == root.path())
            || root.path().join("vendor/autoload.php").is_file();
        Ok(Site {
            hidden: Some(Hidden::new(&settings.hidden, has_libraries)?),
            has_libraries,
            root,
            document_root,
            front_controller,
            is_named: script.is_some(),
            falls_back: settings.fallback,
            has_files: settings.files,
            index: index(&settings.index)?,
            no_php: settings::no_php(settings.no_php.as_deref().unwrap_or_default())?,
            scriptless: false,
            recent: Recent::new(),
            htaccess: settings.htaccess.then(|| Htaccess::new(Arc::default())),
            secret: SecretFiles::new(settings),
        })
    }

    /// Opens a directory of files in which nothing is PHP.
    pub fn files_only(directory: &Path, symlinks: Symlinks) -> Result<Site> {
        let root = Root::open(directory, symlinks)?;
        Ok(Site::of_files(utf8(root.path())?.into(), root))
    }

    /// A site that sends files, and in which nothing is PHP.
    fn of_files(document_root: Arc<str>, root: Root) -> Site {
        Site {
            document_root,
            root,
            front_controller: None,
            is_named: false,
            falls_back: false,
            has_files: true,
            index: vec!["index.html".to_owned()],
            no_php: Vec::new(),
            scriptless: true,
            recent: Recent::new(),
            htaccess: None,
            secret: SecretFiles::default(),
            hidden: None,
            has_libraries: false,
        }
    }

    /// Hides private files and applies `.htaccess` files as [`open`](Self::open) does.
    pub fn protected(mut self, settings: &Settings) -> Result<Site> {
        self.hidden = Some(Hidden::new(&settings.hidden, false)?);
        self.htaccess = settings.htaccess.then(|| Htaccess::new(Arc::default()));
        Ok(self)
    }

    /// Counts its `.htaccess` files with those of another document tree of the same site. Called
    /// before the first look-up.
    pub fn of_site(mut self, other: &Site) -> Site {
        if let (Some(own), Some(other)) = (&mut self.htaccess, &other.htaccess) {
            *own = Htaccess::new(other.site.clone());
        }
        self
    }

    /// Whether its `.htaccess` files count with those of the other tree.
    #[cfg(test)]
    pub fn shares_limits_with(&self, other: &Site) -> bool {
        let files = |site: &Site| Some(site.htaccess.as_ref()?.site.clone());
        let (own, other) = (files(self), files(other));
        own.zip(other)
            .is_some_and(|(own, other)| Arc::ptr_eq(&own, &other))
    }

    /// The real path of an absolute path, or why it must not be revealed.
    pub fn real(&self, path: &Path) -> Result<PathBuf, Option<Denial>> {
        self.root.resolve(path)
    }

    /// The document root: absolute, without symbolic links or a trailing slash.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The front controller, which is also the script to boot.
    pub fn front_controller(&self) -> Option<&Script> {
        self.front_controller.as_ref()
    }

    /// Whether a script is the front controller's file.
    pub fn is_front(&self, script: &Script) -> bool {
        let front = self.front_controller.as_ref();
        front.is_some_and(|front| front.filename == script.filename)
    }

    /// Whether the file must never be sent, regardless of how it was found.
    pub fn is_secret(&self, found: &FoundFile) -> bool {
        self.secret.is(found)
    }

    /// Looks up the path of a request target, percent-encoded and without its query.
    pub fn resolve(&self, raw_path: &str) -> Resolution {
        match normalize(raw_path) {
            Ok(path) => self.find(&path, Instant::now()),
            Err(why) => Resolution::Malformed(why),
        }
    }

    /// Looks up a path that was never encoded, such as part of a file's name.
    pub fn resolve_plain(&self, path: &str) -> Resolution {
        self.resolve(&encode(path))
    }

    /// Looks up a path from [`normalize`](normalize()), without a request. Waits for the disk.
    pub fn find(&self, path: &NormalizedPath<'_>, now: Instant) -> Resolution {
        self.find_by(Purpose::Visitor, path, now)
    }

    /// Like [`find`](Self::find), for a script that delegates the sending of a file: private files
    /// included.
    pub fn find_for_script(&self, path: &NormalizedPath<'_>, now: Instant) -> Resolution {
        self.find_by(Purpose::Script, path, now)
    }

    fn find_by(&self, purpose: Purpose, path: &NormalizedPath<'_>, now: Instant) -> Resolution {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        let facts = Facts::of_get(path.path(), None, &NONE);
        self.find_as(purpose, &facts, path, now)
    }

    /// Looks up the path of a request.
    ///
    /// Takes no system call for a script that was found recently, three for another one (open,
    /// stat, close), and one for the front controller. Once a second, there are two for each
    /// directory on the way.
    pub fn find_for(
        &self,
        facts: &Facts<'_>,
        path: &NormalizedPath<'_>,
        now: Instant,
    ) -> Resolution {
        if let (false, Some(front)) = (self.has_files, &self.front_controller) {
            return Resolution::Script(front.clone());
        }
        self.find_as(Purpose::Visitor, facts, path, now)
    }

    fn find_as(
        &self,
        purpose: Purpose,
        facts: &Facts<'_>,
        path: &NormalizedPath<'_>,
        now: Instant,
    ) -> Resolution {
        let follow = |htaccess, merged| {
            let mut visit = Visit::new(purpose, facts, now, merged);
            let found = self.follow(htaccess, &mut visit, path, false);
            match (facts.steps.are_used_up(), facts.pace) {
                (false, _) => found,
                (true, Pace::Prompt) => Resolution::Later(Later::Costly),
                (true, Pace::Patient) => Resolution::Denied(Denial::TooManySteps),
            }
        };
        let merged = |htaccess| self.merged(htaccess, facts, path.directories(), now);
        let htaccess = self.htaccess_for(purpose);
        if let Some(htaccess) = htaccess {
            match merged(htaccess) {
                Err(later) => return Resolution::Later(later),
                Ok(merged) if !merged.0.is_empty() => return follow(htaccess, merged),
                Ok(_) => {}
            }
        }
        if let Some(rejected) = self.reject(path) {
            return rejected;
        }
        match (
            self.find_without_htaccess(purpose, facts, path, now),
            htaccess,
        ) {
            (Some(found), _) => found,
            (None, Some(htaccess)) => match merged(htaccess) {
                Ok(merged) => follow(htaccess, merged),
                Err(later) => Resolution::Later(later),
            },
            (None, None) => Resolution::NotFound,
        }
    }

    /// The rules for a look-up. As in mod_xsendfile, a script may send files that `.htaccess` files
    /// deny to visitors.
    fn htaccess_for(&self, purpose: Purpose) -> Option<&Htaccess> {
        let htaccess = self.htaccess.as_ref();
        htaccess.filter(|_| purpose == Purpose::Visitor)
    }

    /// Rejects paths that are never served, whether or not they exist.
    fn reject(&self, path: &NormalizedPath<'_>) -> Option<Resolution> {
        if self.is_uploaded_source(path.path()) {
            return Some(Resolution::Denied(Denial::UploadedSource));
        }
        let is_ours = fold(path.path()).starts_with(CONFIGURATION);
        is_ours.then_some(Resolution::NotFound)
    }
}

/// Everything except what RFC 3986 leaves unencoded in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Begins with exactly one slash, so the path cannot name another host.
fn encode(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

fn document_root(project: &Path, root: Option<&Path>) -> PathBuf {
    match root {
        Some(root) => project.join(root),
        None => {
            let has_index = |directory: &PathBuf| directory.join("index.php").is_file();
            let all = ROOTS.map(|name| project.join(name));
            // An application may use the rarer names for other directories.
            let (usual, rarer) = all.split_at(USUAL_ROOTS);
            let found = usual.iter().find(|directory| has_index(directory));
            let is_alone = !has_index(&project.to_owned());
            let found = found.or_else(|| {
                rarer
                    .iter()
                    .find(|directory| is_alone && has_index(directory))
            });
            found.map_or_else(|| project.to_owned(), PathBuf::clone)
        }
    }
}

/// Other directories that would be the document root if the chosen one had no index.php.
pub fn other_roots(project: &Path, settings: &Settings) -> Vec<String> {
    let chosen = document_root(project, None);
    if settings.root.is_some() || chosen == project {
        return Vec::new();
    }
    let roots = ROOTS.iter().map(|name| (name, project.join(name)));
    let others = roots.filter(|(_, path)| *path != chosen && path.join("index.php").is_file());
    others.map(|(name, _)| format!("{name}/")).collect()
}

/// The usual document roots of applications.
pub const ROOTS: [&str; 13] = [
    "public",
    "web",
    "public_html",
    "htdocs",
    "html",
    "webroot",
    "pub",
    "p",
    "www",
    "docroot",
    "httpdocs",
    "wwwroot",
    "Web",
];

/// The first of them apply even if the project has an index.php.
const USUAL_ROOTS: usize = 2;

fn given_script(document_root: &Arc<str>, script: &Path) -> Result<Script> {
    let filename = script
        .canonicalize()
        .with_context(|| format!("cannot find the script {}", script.display()))?;
    ensure!(
        filename.is_file(),
        "{} is a directory; name the PHP file in it that handles requests",
        filename.display()
    );
    let text = utf8(&filename)?;
    let (directory, name) = text.rsplit_once('/').unwrap_or_default();
    ensure!(
        kind(name) == NameKind::Script,
        "the script {text} must have a name that ends in .php"
    );
    // A script outside the document root has no URL, but applications need one.
    let below = directory.strip_prefix(&**document_root);
    let below = below.filter(|rest| rest.is_empty() || rest.starts_with('/'));
    Ok(Script {
        root: document_root.clone(),
        name: format!("{}/{name}", below.unwrap_or_default()).into(),
        path_info: OsString::new(),
        query: None,
        rewritten: None,
        filename: filename.into(),
    })
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| {
        format!(
            "the path {} is not UTF-8, which PHP's variables need; rename it",
            path.display()
        )
    })
}
