//! `surus reload`.

use anyhow::bail;
use http::Method;

use super::options::Project;
use crate::fronts::admin;

pub fn run(project: Project) -> anyhow::Result<()> {
    let address = project.load()?.config.admin.address(&project.directory()?);
    let (status, text) = super::block_on(admin::ask(&address, Method::POST, "/-/reload"))?;
    if !status.is_success() {
        bail!("{}", text.trim_end());
    }
    print!("{text}");
    Ok(())
}
