//! The result of opening a path of the site: a file, or the reason why there is none for this
//! client.

use std::fs::{File, Metadata};
use std::path::PathBuf;

/// The result of opening a path.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a result is matched at once, and the large variant is the usual one"
)]
pub(crate) enum OpenedPath {
    Regular {
        file: File,
        metadata: Metadata,
        /// The file's real path, if symbolic links led to it.
        real: Option<PathBuf>,
    },
    Directory,
    Missing,
    /// Not allowed for this client; the reason is logged.
    Denied(Denial),
    /// The look-up failed.
    Failed(LookupError),
}

/// Why a look-up failed; the log has the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupError {
    /// Too few descriptors or too little memory, which is temporary.
    Scarce,
    /// A failing disk, for example.
    Broken,
}

/// Why this client may not have a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// A symbolic link leads out of the document root.
    LinkOutside,
    /// A symbolic link leads out of the document root, to a file of another owner.
    LinkOfAnother,
    /// Neither a file nor a directory.
    Special,
    /// Surus's user cannot read it.
    Unreadable,
    /// PHP's user cannot read it.
    UnreadableToPhp,
    /// It exists, and clients must not notice.
    Concealed,
    /// An `.htaccess` file denies it.
    DeniedByHtaccess,
    /// An `.htaccess` file requires a password.
    NeedsUser,
    /// An `.htaccess` file switches PHP off, or on for a file that is not PHP.
    PhpOff,
    /// An `.htaccess` file has a rule that cannot be evaluated.
    UnknownRule,
    /// An `.htaccess` file tests a path that Surus cannot look up.
    UnknownFile,
    /// An `.htaccess` file is not readable, not valid or too costly.
    BrokenHtaccess,
    /// The rules of `.htaccess` files take too many steps for this request.
    TooManySteps,
    /// PHP in a directory for uploads.
    UploadedSource,
    /// A symbolic link leads to PHP in a directory for uploads.
    LinkToUploadedSource,
}

impl Denial {
    /// Whether file permissions deny access.
    pub fn is_about_permissions(self) -> bool {
        matches!(self, Denial::Unreadable | Denial::UnreadableToPhp)
    }

    /// Whether an `.htaccess` file denies access, other than by switching PHP off.
    pub(super) fn is_by_htaccess(self) -> bool {
        use Denial::{BrokenHtaccess, DeniedByHtaccess, NeedsUser, UnknownFile, UnknownRule};
        matches!(
            self,
            DeniedByHtaccess | NeedsUser | UnknownRule | UnknownFile | BrokenHtaccess
        )
    }

    /// The log message, with a remedy.
    pub fn why(self) -> &'static str {
        match self {
            Denial::LinkOutside => {
                "a symbolic link leads out of the document root; `symlinks = \"owner\"` or \
                 `\"follow\"` in the settings of the site would follow it"
            }
            Denial::LinkOfAnother => {
                "a symbolic link leads out of the document root to something that the link's \
                 owner does not own; `chown -h` the link, or set `symlinks = \"follow\"` in the \
                 settings of the site"
            }
            Denial::Special => "not a regular file",
            Denial::Unreadable => {
                "permission denied: the user that surus runs as may not read this file or enter \
                 its directory"
            }
            Denial::UnreadableToPhp => {
                "permission denied: the user that PHP runs as (engine.user) may not read this \
                 file or enter its directory"
            }
            Denial::Concealed => "a symbolic link leads to a dot file or PHP source",
            Denial::DeniedByHtaccess => {
                "an .htaccess file denies it; `htaccess = false` in the settings of the site \
                 would open it"
            }
            Denial::NeedsUser => {
                "an .htaccess file requires a password, which Surus does not check; protect it in \
                 the application or in a proxy before Surus"
            }
            Denial::PhpOff => "an .htaccess file switches PHP off here; PHP source is never sent",
            Denial::UnknownRule => {
                "an .htaccess file has a rule that Surus cannot evaluate; `surus check` names it"
            }
            Denial::UnknownFile => {
                "a RewriteCond in an .htaccess file tests a path that Surus may not look up, or \
                 that contains `..` from the request; let Surus's user enter its directories"
            }
            Denial::BrokenHtaccess => {
                "an .htaccess file cannot be read, exceeds a limit, or Apache would reject it; \
                 `surus check` names its line"
            }
            Denial::TooManySteps => {
                "the rules of the .htaccess files take too many steps for this request; use fewer \
                 rules or shorter patterns, and no flag N"
            }
            Denial::UploadedSource => "PHP below `site.no_php` is never run and never sent",
            Denial::LinkToUploadedSource => {
                "a symbolic link leads to PHP below `site.no_php`, which is never run"
            }
        }
    }
}
