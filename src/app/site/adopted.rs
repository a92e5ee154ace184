//! A site that one process opens and another serves: the keeper opens it, the front end adopts it.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::access_check::AccessCheck;
use super::document_root::{Root, Symlinks};
use super::hidden_files::Hidden;
use super::htaccess::Htaccess;
use super::secret_files::SecretFiles;
use super::settings::{self, Settings, index};
use super::{Site, file_opener, utf8};
use crate::event::Script;

/// A site as another process has opened it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Described {
    /// Without symbolic links.
    pub path: String,
    /// Its file and its name.
    front_controller: Option<(String, String)>,
    /// Whether the script was configured, not only found.
    is_named: bool,
    secret: SecretFiles,
    has_libraries: bool,
}

impl Described {
    /// Hides the same files of Surus as `site`.
    pub fn hide_as(&mut self, site: &Option<Described>) {
        self.secret = site
            .as_ref()
            .map(|site| site.secret.clone())
            .unwrap_or_default();
    }

    /// The directory that the opener opens files below.
    pub fn tree(&self, dir: OwnedFd, symlinks: Symlinks) -> file_opener::OpenerTree {
        file_opener::OpenerTree {
            root: Root::adopt(PathBuf::from(&self.path), dir, symlinks),
            secret: self.secret.clone(),
        }
    }
}

impl Site {
    /// What another process needs to serve the same site, in addition to the settings.
    pub fn describe(&self) -> Result<Described> {
        let front = self.front_controller.as_ref().map(|front| {
            let file = utf8(&front.filename)?.to_owned();
            Ok::<_, anyhow::Error>((file, front.name.to_string()))
        });
        Ok(Described {
            path: self.document_root.to_string(),
            front_controller: front.transpose()?,
            is_named: self.is_named,
            secret: self.secret.clone(),
            has_libraries: self.has_libraries,
        })
    }

    /// The directory, for another process.
    pub fn dir(&self) -> Result<OwnedFd> {
        Ok(self.root.dir().try_clone_to_owned()?)
    }

    /// A site that another process has opened. Only files that PHP's user may read are sent.
    pub fn adopt(
        settings: &Settings,
        described: Described,
        dir: OwnedFd,
        reader: AccessCheck,
    ) -> Result<Site> {
        let mut site = Site::adopt_files(settings.symlinks, described.clone(), dir, reader);
        site.front_controller = described.front_controller.map(|(file, name)| Script {
            root: site.document_root.clone(),
            filename: PathBuf::from(file).into(),
            name: name.into(),
            path_info: OsString::new(),
            query: None,
            rewritten: None,
        });
        site.is_named = described.is_named;
        site.falls_back = settings.fallback;
        site.has_files = settings.files;
        site.index = index(&settings.index)?;
        site.no_php = settings::no_php(settings.no_php.as_deref().unwrap_or_default())?;
        site.scriptless = false;
        site.htaccess = settings.htaccess.then(|| Htaccess::new(Arc::default()));
        site.secret = described.secret;
        site.has_libraries = described.has_libraries;
        site.hidden = Some(Hidden::new(&settings.hidden, described.has_libraries)?);
        Ok(site)
    }

    /// Like [`adopt`](Self::adopt), for a directory of files in which nothing is PHP.
    pub fn adopt_files(
        symlinks: Symlinks,
        described: Described,
        dir: OwnedFd,
        reader: AccessCheck,
    ) -> Site {
        let path = PathBuf::from(&described.path);
        let root = Root::adopt(path, dir, symlinks).read_by(reader);
        Site::of_files(described.path.into(), root)
    }
}
