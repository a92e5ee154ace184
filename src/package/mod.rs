//! Builds a Lambda function's zip or one executable: Surus, PHP with its dependencies from this
//! machine, and the application.

pub mod application;
pub mod archive;
pub mod bootstrap;
pub mod compiled;
pub mod elf;
pub mod executable;
pub mod extensions;
pub mod ini;
pub mod kind;
pub mod laravel;
pub mod left_out;
pub mod libraries;
pub mod library;
mod links;
mod own_packages;
pub mod php;
pub mod settings;
pub mod sizes;
pub mod symfony;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use surus_sys::openat2;

use crate::units;

/// Where Lambda unpacks a function.
pub const ROOT: &str = "/var/task";

/// The directory of everything that is not the application's. The leading dot keeps it private even
/// if the document root is the project directory.
pub const OURS: &str = ".surus";

/// The application's directory where it is not the root of the package.
pub const APART: &str = "app";

/// The application's directory in a function unpacked at `root`.
pub fn unpacked(root: PathBuf) -> PathBuf {
    let apart = root.join(APART);
    let is_apart = root.join(OURS).is_dir() && !root.join("surus.toml").is_file();
    if is_apart && apart.join("surus.toml").is_file() {
        apart
    } else {
        root
    }
}

/// Whether composer.json of the project requires a package.
fn requires(project: &Path, package: &str) -> anyhow::Result<bool> {
    let file = project.join("composer.json");
    if !file.is_file() {
        return Ok(false);
    }
    let cannot = || format!("cannot read {}", file.display());
    let text = fs::read_to_string(&file).with_context(cannot)?;
    let composer: serde_json::Value = serde_json::from_str(&text).with_context(cannot)?;
    Ok(composer["require"].get(package).is_some())
}

/// Settings of `surus lambda package` and `surus build`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Extensions in addition to the usual ones and those required by composer.json and
    /// composer.lock.
    #[serde(deserialize_with = "units::one_or_more")]
    pub extensions: Vec<String>,
    /// Whether to package OPcache's compiled files, so that cold starts need not compile.
    pub compile: bool,
}

/// The files of a package, by name.
#[derive(Debug, Default)]
pub struct PackageFiles(BTreeMap<String, PackageFile>);

/// One file of a package.
#[derive(Debug)]
pub struct PackageFile {
    pub content: FileContent,
    pub executable: bool,
}

#[derive(Debug)]
pub enum FileContent {
    /// A file of this machine. Links are followed.
    Copy(PathBuf),
    /// A file of the application at an absolute path, which has no link. PHP may exchange a part of
    /// the path for a link to what only root can read, so no link is followed.
    Unlinked(PathBuf),
    Text(Vec<u8>),
}

impl FileContent {
    pub fn open(&self) -> anyhow::Result<Box<dyn Read + '_>> {
        match self.source()? {
            FileSource::File(file) => Ok(Box::new(file)),
            FileSource::Text(text) => Ok(Box::new(text)),
        }
    }

    pub fn size(&self) -> anyhow::Result<u64> {
        match self.source()? {
            FileSource::File(file) => Ok(file.metadata()?.len()),
            FileSource::Text(text) => Ok(text.len() as u64),
        }
    }

    fn source(&self) -> anyhow::Result<FileSource<'_>> {
        let (file, path) = match self {
            FileContent::Text(text) => return Ok(FileSource::Text(text)),
            FileContent::Copy(path) => (fs::File::open(path), path),
            FileContent::Unlinked(path) => (openat2::regular(path), path),
        };
        let file = file.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(FileSource::File(file))
    }
}

enum FileSource<'a> {
    File(fs::File),
    Text(&'a [u8]),
}

impl PackageFiles {
    /// Fails for a duplicate name: a bug in Surus, or an application file with a reserved name.
    pub fn add(&mut self, name: impl Into<String>, file: PackageFile) -> anyhow::Result<()> {
        let name = name.into();
        if self.0.contains_key(&name) {
            bail!(
                "the package has two files named {name}; rename the application's file or exclude \
                 it in .surusignore"
            );
        }
        self.0.insert(name, file);
        Ok(())
    }

    pub fn copy(
        &mut self,
        name: impl Into<String>,
        from: impl Into<PathBuf>,
        executable: bool,
    ) -> anyhow::Result<()> {
        let content = FileContent::Copy(from.into());
        self.add(
            name,
            PackageFile {
                content,
                executable,
            },
        )
    }

    /// Adds a file of the application, see [`FileContent::Unlinked`].
    pub fn copy_unlinked(
        &mut self,
        name: impl Into<String>,
        from: PathBuf,
        executable: bool,
    ) -> anyhow::Result<()> {
        let content = FileContent::Unlinked(from);
        self.add(
            name,
            PackageFile {
                content,
                executable,
            },
        )
    }

    pub fn text(
        &mut self,
        name: impl Into<String>,
        text: impl Into<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let content = FileContent::Text(text.into());
        self.add(
            name,
            PackageFile {
                content,
                executable: false,
            },
        )
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Reads a file, if the package has it.
    pub fn read(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(file) = self.0.get(name) else {
            return Ok(None);
        };
        let mut content = Vec::new();
        let read = file.content.open()?.read_to_end(&mut content);
        read.with_context(|| format!("cannot read {name}"))?;
        Ok(Some(content))
    }

    /// The content of a text file.
    pub fn text_of(&self, name: &str) -> Option<&[u8]> {
        match &self.0.get(name)?.content {
            FileContent::Text(text) => Some(text),
            FileContent::Copy(_) | FileContent::Unlinked(_) => None,
        }
    }

    /// Replaces the content of a text file.
    pub fn set_text(&mut self, name: &str, text: impl Into<Vec<u8>>) {
        if let Some(file) = self.0.get_mut(name) {
            file.content = FileContent::Text(text.into());
        }
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PackageFile)> {
        self.0.iter().map(|(name, file)| (name.as_str(), file))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
