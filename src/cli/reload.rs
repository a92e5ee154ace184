//! `surus reload`: reloads a running surus.

use anyhow::bail;
use http::Method;

use super::options::Project;
use crate::cli::stdout;
use crate::fronts::admin;

pub fn run(project: Project) -> anyhow::Result<()> {
    let directory = project.directory()?;
    let address = project.load()?.config.admin.address(&directory);
    let asked = admin::ask(&address, &directory, Method::POST, "/-/reload");
    let (status, text) = super::block_on(asked)?;
    if !status.is_success() {
        bail!("{}", text.trim_end());
    }
    stdout::print(text);
    Ok(())
}
