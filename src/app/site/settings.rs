//! The settings of a site, `[site]`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::{Deserialize, Deserializer, Serialize};

use super::document_root::Symlinks;
use super::hidden_files;
use super::normalize::{NameKind, fold, kind, normalize};
use crate::units::checked_list;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The document root, relative to the project. By default, [`ROOTS`](super::ROOTS) or the
    /// project itself.
    pub root: Option<PathBuf>,
    /// Whether files of the document root answer requests. If not, the front controller answers
    /// all.
    pub files: bool,
    /// Index files of a directory, in order of precedence.
    #[serde(deserialize_with = "indexes")]
    pub index: Vec<String>,
    /// Which symbolic links out of the document root are followed: `inside` none; `owner` (the
    /// default) links of root or of the target's owner; `follow` all.
    pub symlinks: Symlinks,
    /// URL paths below which visitors can upload files: PHP there is never run and never sent. If
    /// not set, those of the application's framework.
    #[serde(deserialize_with = "for_uploads")]
    pub no_php: Option<Vec<String>>,
    /// Whether the rules of `.htaccess` files about access, PHP and redirects apply, as listed in
    /// docs/reference/htaccess.md.
    pub htaccess: bool,
    /// Whether the front controller handles requests for missing files. If there are `.htaccess`
    /// files on the way, they select it.
    pub fallback: bool,
    /// Files and scripts that answer 404 in addition to the built-in private ones: `.gitignore`
    /// patterns below the document root; `!` shows a built-in one.
    #[serde(deserialize_with = "hidden_patterns")]
    pub hidden: Vec<String>,
    /// The configuration file, which is never sent.
    #[serde(skip)]
    pub configuration: Option<PathBuf>,
    /// The logs of `log.file` and `access_log.file`, which are never sent.
    #[serde(skip)]
    pub logs: Vec<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            root: None,
            files: true,
            index: vec!["index.php".into(), "index.html".into()],
            symlinks: Symlinks::default(),
            no_php: None,
            htaccess: true,
            fallback: true,
            hidden: Vec::new(),
            configuration: None,
            logs: Vec::new(),
        }
    }
}

pub(super) fn index(names: &[String]) -> Result<Vec<String>> {
    for name in names {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
            bail!(
                "`site.index` has {name:?}; it expects names of files, such as \"index.php\", \
                 without a directory or a leading dot"
            );
        }
        if kind(name) == NameKind::Source {
            bail!(
                "`site.index` has {name:?}, which is neither run nor sent; PHP files end in .php"
            );
        }
    }
    Ok(names.to_vec())
}

pub(super) fn no_php(prefixes: &[String]) -> Result<Vec<String>> {
    let check = |prefix: &String| {
        let normal = normalize(prefix).map(|normal| normal.path() == prefix);
        if normal != Ok(true) || prefix == "/" {
            bail!(
                "`site.no_php` has {prefix:?}; it expects URL paths, such as \"/uploads\" or \
                 \"/wp-content/uploads\""
            );
        }
        Ok(fold(prefix.trim_end_matches('/')).into_owned())
    };
    prefixes.iter().map(check).collect()
}

fn hidden_patterns<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    checked_list(from, |patterns| hidden_files::own(patterns).map(drop))
}

fn indexes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    checked_list(from, |names| index(names).map(drop))
}

fn for_uploads<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    checked_list(from, |prefixes| no_php(prefixes).map(drop)).map(Some)
}
