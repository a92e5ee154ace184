//! What goes into the zip of a Lambda function: Surus, PHP with everything that it needs of this machine, and the application.

pub mod application;
pub mod archive;
pub mod bootstrap;
pub mod compiled;
pub mod elf;
pub mod extensions;
pub mod ini;
pub mod left_out;
pub mod libraries;
pub mod library;
pub mod php;
pub mod settings;
pub mod sizes;
pub mod symfony;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// Where Lambda unpacks a function.
pub const ROOT: &str = "/var/task";

/// Below it, everything that is not the application's. With a dot, so that a document root that is the project itself does not
/// serve it.
pub const OURS: &str = ".surus";

/// Where the application is, when it has something that is called `bootstrap` as well.
pub const APART: &str = "app";

/// Where in a package the application is: nowhere in particular, or [`APART`], since Laravel's has a directory that is called as the
/// program that Lambda starts.
pub fn place(project: &Path) -> &'static str {
    if project.join("bootstrap").exists() {
        APART
    } else {
        ""
    }
}

/// The application's directory in a function that Lambda has unpacked at `root`.
pub fn unpacked(root: PathBuf) -> PathBuf {
    let apart = root.join(APART);
    let is_apart = root.join(OURS).is_dir() && !root.join("surus.toml").is_file();
    if is_apart && apart.join("surus.toml").is_file() {
        apart
    } else {
        root
    }
}

/// `surus lambda package`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Extensions beside those that composer.json and composer.lock require and the usual ones.
    pub extensions: Vec<String>,
    /// Bring along what OPcache makes of the PHP files, so that no start has to.
    pub compile: bool,
}

/// The files of a package, by their names in it.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<String, File>);

/// One of them.
#[derive(Debug)]
pub struct File {
    pub content: Content,
    pub executable: bool,
}

#[derive(Debug)]
pub enum Content {
    Copy(PathBuf),
    Text(Vec<u8>),
}

impl Files {
    /// Two files of one name are a mistake of ours or the application's use of a name that is ours.
    pub fn add(&mut self, name: impl Into<String>, file: File) -> anyhow::Result<()> {
        let name = name.into();
        if self.0.contains_key(&name) {
            bail!(
                "the package has two files named {name}; rename the application's, or exclude it in .surusignore"
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
        let content = Content::Copy(from.into());
        self.add(
            name,
            File {
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
        let content = Content::Text(text.into());
        self.add(
            name,
            File {
                content,
                executable: false,
            },
        )
    }

    /// What a file that is a text says.
    pub fn said(&self, name: &str) -> Option<&[u8]> {
        match &self.0.get(name)?.content {
            Content::Text(text) => Some(text),
            Content::Copy(_) => None,
        }
    }

    /// Has a text say something else.
    pub fn say(&mut self, name: &str, text: impl Into<Vec<u8>>) {
        if let Some(file) = self.0.get_mut(name) {
            file.content = Content::Text(text.into());
        }
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.0.iter().map(|(name, file)| (name.as_str(), file))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
