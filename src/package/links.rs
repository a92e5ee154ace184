//! Follows the links of a project once, so that later exchanges of files have no effect.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use surus_sys::openat2;

/// As many links as Linux follows.
const MAX: usize = 40;

/// The links that were checked and followed, and where they led at that time. PHP may exchange a
/// file or directory for a link afterwards, so files are opened at paths without links.
pub struct CheckedLinks(HashMap<PathBuf, PathBuf>);

/// Where a link leads.
pub struct SymbolicLink {
    /// The path without links.
    pub real: PathBuf,
    /// Whether the link belongs to another user than what it leads to. PHP could have created it to
    /// have root package what PHP itself cannot read. It could have changed links on the way, too,
    /// unless they are root's.
    pub is_foreign: bool,
}

impl CheckedLinks {
    pub fn new(project: &Path, real: &Path) -> CheckedLinks {
        CheckedLinks(HashMap::from([(project.to_path_buf(), real.to_path_buf())]))
    }

    pub fn add(&mut self, link: &Path, real: PathBuf) {
        self.0.insert(link.to_path_buf(), real);
    }

    /// The path of a file of the project without the links that were added.
    pub fn resolve(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let known = |above: &Path| Some((self.0.get(above)?, path.strip_prefix(above).ok()?));
        let (real, rest) = path
            .ancestors()
            .find_map(known)
            .with_context(|| format!("{} is not in the project", path.display()))?;
        // Joining an empty path would add a slash.
        Ok(match rest.as_os_str().is_empty() {
            true => real.clone(),
            false => real.join(rest),
        })
    }

    /// Follows a link of the project, of which the directory is resolved.
    pub fn follow(&self, link: &Path) -> anyhow::Result<SymbolicLink> {
        let path = self.resolve(link)?;
        let mut real = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        // The components that remain, the next one last.
        let mut rest: Vec<OsString> = path.file_name().map(Into::into).into_iter().collect();
        let mut owners = Vec::new();
        while let Some(name) = rest.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            let next = real.join(&name);
            let (owner, target) = openat2::owner_and_target(&next)?;
            let Some(target) = target else {
                real = next;
                continue;
            };
            owners.push(owner);
            if owners.len() > MAX {
                return Err(io::Error::other("too many links").into());
            }
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            let names = target.components().rev().filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_owned()),
                Component::ParentDir => Some("..".into()),
                _ => None,
            });
            rest.extend(names);
        }
        let (owner, _) = openat2::owner_and_target(&real)?;
        let mut owners = owners.into_iter();
        let is_first_foreign = owners.next().is_some_and(|first| first != owner);
        Ok(SymbolicLink {
            real,
            is_foreign: is_first_foreign || owners.any(|other| other != owner && other != 0),
        })
    }
}
