//! Finds what runs for a project: `surus serve`, `surus work`, or both.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
#[cfg(any(feature = "redis", feature = "sqlite"))]
use anyhow::bail;
use http::{Method, StatusCode};

use super::options::Project;
use crate::config::Config;
use crate::fronts::address::Address;
use crate::fronts::admin;

/// The admin listener of `surus work`, and what its socket is named after: `surus serve` may run
/// for the same project.
pub fn find_work(project: &Path, config: &Config) -> (admin::Settings, PathBuf) {
    let settings = admin::Settings {
        listen: config.work.admin_listen.clone(),
    };
    (settings, project.join("work"))
}

fn work_address(project: &Path, config: &Config) -> Address {
    let (settings, name) = find_work(project, config);
    settings.address(&name)
}

/// Sends a request to what runs for a project, `surus serve` if both do.
#[cfg(feature = "top")]
pub async fn open(
    project: &Project,
    path: &str,
) -> anyhow::Result<http::Response<hyper::body::Incoming>> {
    let directory = project.directory()?;
    let config = project.load_all()?.config;
    let serve = config.admin.address(&directory);
    let work = work_address(&directory, &config);
    for address in [&serve, &work] {
        match admin::open(address, &directory, Method::GET, path).await {
            Err(error) if is_absent(&error) => {}
            answer => return answer,
        }
    }
    Err(none_runs(&serve, &work))
}

fn none_runs(serve: &Address, work: &Address) -> anyhow::Error {
    anyhow!(
        "no running surus answers at {serve} (surus serve) or {work} (surus work); is it started \
         for this directory, and by this user?"
    )
}

/// Asks all that run for a project, and returns their answers. A failure is the last of them: what
/// one rejects, another must not do.
pub fn ask(
    project: &Project,
    method: &Method,
    path: &str,
) -> anyhow::Result<Vec<(StatusCode, String)>> {
    let directory = project.directory()?;
    let config = project.load_all()?.config;
    let serve = config.admin.address(&directory);
    let work = work_address(&directory, &config);
    super::block_on(async {
        let mut answers = Vec::new();
        for address in [&serve, &work] {
            match admin::ask(address, &directory, method.clone(), path).await {
                Ok(answer) if !answer.0.is_success() => {
                    answers.push(answer);
                    break;
                }
                Ok(answer) => answers.push(answer),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if answers.is_empty() {
            return Err(none_runs(&serve, &work));
        }
        Ok(answers)
    })
}

/// Asks the running `surus work` of a project.
#[cfg(any(feature = "redis", feature = "sqlite"))]
pub fn ask_work(project: &Project, method: Method, path: &str) -> anyhow::Result<String> {
    let directory = project.directory()?;
    let address = work_address(&directory, &project.load_all()?.config);
    let asked = super::block_on(admin::ask(&address, &directory, method, path));
    let (status, text) = match asked {
        Err(error) if is_absent(&error) => bail!(
            "no running surus answers at {address}; start `surus work {}`, and run this command as \
             the same user",
            directory.display()
        ),
        asked => asked?,
    };
    if !status.is_success() {
        bail!("{}", text.trim_end());
    }
    Ok(text)
}

/// Whether nothing listens there.
fn is_absent(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    )
}
