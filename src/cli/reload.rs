//! `surus reload`: reloads a running surus.

use anyhow::bail;
use http::Method;

use super::options::Project;
use crate::cli::{running, stdout};

pub fn run(project: Project) -> anyhow::Result<()> {
    for (status, text) in running::ask(&project, &Method::POST, "/-/reload")? {
        if !status.is_success() {
            bail!("{}", text.trim_end());
        }
        stdout::print(text);
    }
    Ok(())
}
