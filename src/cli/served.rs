//! The application that the front end of `surus serve` serves, and how a new version replaces it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{config_lint, engine_setup, keeper_tasks};
use crate::app::error_pages::ErrorPages;
use crate::app::site::routes::{self, Routes};
use crate::app::x_sendfile::SendFile;
use crate::app::{Application, DocumentTree};
use crate::config::Config;
use crate::engine::Prepared;
use crate::keeper::Client;

/// An application, and where it comes from.
pub(super) struct Served {
    pub project: PathBuf,
    pub config: Config,
    pub keeper: Option<Arc<Client>>,
    pub application: Arc<Application>,
}

/// A version that has booted and does not serve yet.
pub(super) struct NextVersion {
    tree: DocumentTree,
    engines: Vec<Prepared>,
}

impl Served {
    /// Opens the application's directories again, because a symbolic link to the project may have
    /// changed, and boots its engines. The running version goes on.
    pub async fn prepare(&self) -> anyhow::Result<NextVersion> {
        let tree = match &self.keeper {
            Some(keeper) => {
                let place = keeper.place().await?;
                let (tree, opener) = keeper_tasks::adopt(&self.config, place)?;
                keeper_tasks::attend(keeper, opener);
                tree
            }
            None => open_place(&self.project, &self.config)?,
        };
        let mut engines = Vec::new();
        for engine in self.application.engines.values() {
            engines.push(engine.prepare().await?);
        }
        Ok(NextVersion { tree, engines })
    }

    /// Serves the new version. The files change after the engines.
    pub fn change_over(&self, next: NextVersion) -> anyhow::Result<()> {
        for engine in next.engines {
            engine.change_over()?;
        }
        let displays_errors = config_lint::displays_errors(self.application.engines.values());
        let mut tree = next.tree;
        tree.read_error_pages(
            &self.config.error_pages,
            displays_errors,
            self.keeper.is_none(),
        );
        self.application.tree.store(Arc::new(tree));
        Ok(())
    }
}

/// Opens the application's directory, and the directories from which routes send files.
pub(super) fn open_place(project: &Path, config: &Config) -> anyhow::Result<DocumentTree> {
    let site = Arc::new(engine_setup::open_site(project, config)?);
    let send_file = SendFile::open(
        project,
        site.clone(),
        config.site.symlinks,
        &config.x_sendfile,
    )?;
    let routes = Routes::new(&config.route, &config.site)?;
    let mut pool_sites = BTreeMap::new();
    for name in routes::engines(&config.route) {
        if let Some(front) = engine_setup::open_pool_site(project, config, name)? {
            pool_sites.insert(name.to_owned(), Arc::new(front));
        }
    }
    Ok(DocumentTree {
        site,
        pool_sites,
        send_file,
        routes,
        error_site: engine_setup::open_error_site(project, config)?,
        error_pages: ErrorPages::default(),
    })
}
