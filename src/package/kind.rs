//! The kinds of packages, a function's zip and an executable, and where the files of each are.

use std::path::Path;

use super::{APART, OURS, ROOT};

/// What a package is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageKind {
    /// The zip of a Lambda function.
    Function,
    /// One executable, which unpacks itself.
    Executable,
}

/// Stands in an executable's files for the directory into which it will be unpacked.
pub const UNPACKED: &str = "/@surus-build@";

impl PackageKind {
    /// The directory that the package's files name.
    pub fn root(self) -> &'static Path {
        Path::new(match self {
            PackageKind::Function => ROOT,
            PackageKind::Executable => UNPACKED,
        })
    }

    /// The application's directory in the package. A function's is the root, or [`APART`] if the
    /// application uses the name `bootstrap`: Laravel has such a directory, and Lambda starts a
    /// program of that name.
    pub fn place(self, project: &Path) -> &'static str {
        match self {
            PackageKind::Function if !project.join("bootstrap").exists() => "",
            _ => APART,
        }
    }

    /// The directory of the time zones in the package. An executable's is short, so that its path
    /// has room in libphp.
    pub fn zones(self) -> String {
        match self {
            PackageKind::Function => format!("{OURS}/{ZONES}"),
            PackageKind::Executable => ZONES.into(),
        }
    }

    /// The command that makes it.
    pub fn command(self) -> &'static str {
        match self {
            PackageKind::Function => "surus lambda package",
            PackageKind::Executable => "surus build",
        }
    }
}

/// The name of the directory of the time zones.
const ZONES: &str = "tz";
