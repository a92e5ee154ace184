//! What is at a path of the site: a file, or why there is none for this client.

use std::fs::{File, Metadata};
use std::path::PathBuf;

/// What is at a path.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and mostly it is the large one"
)]
pub(crate) enum Opened {
    Regular {
        file: File,
        metadata: Metadata,
        /// Where the file really is, if symbolic links led to it.
        real: Option<PathBuf>,
    },
    Directory,
    Missing,
    /// Not for this client; the reason is for the log.
    Denied(Denial),
    /// The look-up failed.
    Failed(LookupError),
}

/// Why a look-up failed; the log has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupError {
    /// Too few descriptors or too little memory, which is temporary.
    Scarce,
    /// A failing disk, for example.
    Broken,
}

/// Why a file is not for this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// A symbolic link leads out of the document root.
    LinkOutside,
    /// A symbolic link leads out, to a file of another owner.
    LinkOfAnother,
    /// Neither a file nor a directory.
    Special,
    /// Surus's user may not read it.
    Unreadable,
    /// PHP's user may not read it.
    UnreadableToPhp,
    /// An `.htaccess` file denies it.
    Closed,
    /// An `.htaccess` file requires a password.
    NeedsUser,
    /// An `.htaccess` file switches PHP off, or on for a file that is not PHP.
    PhpOff,
    /// An `.htaccess` file has a rule that cannot be evaluated.
    UnknownRule,
    /// An `.htaccess` file is not readable or not valid.
    BrokenHtaccess,
    /// PHP in a directory for uploads.
    UploadedSource,
    /// A symbolic link leads to PHP in a directory for uploads.
    LinkToUploadedSource,
}

impl Denial {
    /// Whether permissions deny it.
    pub fn is_about_permissions(self) -> bool {
        matches!(self, Denial::Unreadable | Denial::UnreadableToPhp)
    }

    /// Whether a directive about access denies it.
    pub(super) fn is_by_htaccess(self) -> bool {
        use Denial::{BrokenHtaccess, Closed, NeedsUser, UnknownRule};
        matches!(self, Closed | NeedsUser | UnknownRule | BrokenHtaccess)
    }

    /// The text for the log, with a remedy.
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
            Denial::Closed => {
                "an .htaccess file denies it; `htaccess = false` in the settings of the site \
                 would open it"
            }
            Denial::NeedsUser => {
                "an .htaccess file asks for a password, which Surus does not; protect it in the \
                 application or in a proxy before Surus"
            }
            Denial::PhpOff => "an .htaccess file switches PHP off here; source is not sent, either",
            Denial::UnknownRule => {
                "an .htaccess file has a rule that Surus cannot evaluate; `surus check` names it"
            }
            Denial::BrokenHtaccess => {
                "an .htaccess file cannot be read, or Apache would not take it; `surus check` \
                 names its line"
            }
            Denial::UploadedSource => "PHP below `uploads` is never run and never sent",
            Denial::LinkToUploadedSource => {
                "a symbolic link leads to PHP below `uploads`, which is never run"
            }
        }
    }
}
