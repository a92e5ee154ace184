//! Finds what runs for a project: `surus serve`, `surus work`, or both.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
#[cfg(feature = "_work")]
use anyhow::bail;
use http::{Method, StatusCode};

use super::options::Project;
use crate::config::Config;
use crate::fronts::address::Address;
use crate::fronts::admin;

/// A surus that runs answers the admin listener's health check at once.
const HEALTH: Duration = Duration::from_secs(10);

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

/// Whether surus runs there, for this project.
pub async fn is_running(address: &Address, project: &Path) -> bool {
    let health = admin::ask(address, project, Method::GET, "/-/health");
    let health = tokio::time::timeout(HEALTH, health).await;
    matches!(health, Ok(Ok(_)))
}

/// Waits for an answer as long as the surus there passes health checks. A reload may take long.
async fn answer<T>(
    address: &Address,
    project: &Path,
    request: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let silence = async {
        loop {
            let health = admin::ask(address, project, Method::GET, "/-/health");
            if tokio::time::timeout(HEALTH, health).await.is_err() {
                return;
            }
            tokio::time::sleep(HEALTH).await;
        }
    };
    tokio::select! {
        answer = request => answer,
        () = silence => Err(anyhow!(
            "surus listens on {address} and has not answered for {} seconds; look whether its \
             process is stopped, or shutting down",
            HEALTH.as_secs()
        )),
    }
}

async fn ask_at(
    address: &Address,
    project: &Path,
    method: &Method,
    path: &str,
) -> anyhow::Result<(StatusCode, String)> {
    let request = admin::ask(address, project, method.clone(), path);
    answer(address, project, request).await
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
        let request = admin::open(address, &directory, Method::GET, path);
        match answer(address, &directory, request).await {
            Err(error) if is_absent(&error) => {}
            answer => return answer,
        }
    }
    Err(none_runs(&serve, &work))
}

fn none_runs(serve: &Address, work: &Address) -> anyhow::Error {
    anyhow!(
        "no running surus answers at {serve} (surus serve) or {work} (surus work); is it started \
         for this directory, by this user, and with the same --config?"
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
            match ask_at(address, &directory, method, path).await {
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
#[cfg(feature = "_work")]
pub fn ask_work(project: &Project, method: Method, path: &str) -> anyhow::Result<String> {
    try_work(project, method, path)?.map_err(|why| anyhow!(why))
}

/// The same. The inner error is the reason why the running `surus work` cannot do it.
#[cfg(feature = "_work")]
pub fn try_work(
    project: &Project,
    method: Method,
    path: &str,
) -> anyhow::Result<Result<String, String>> {
    let directory = project.directory()?;
    let address = work_address(&directory, &project.load_all()?.config);
    let answer = super::block_on(ask_at(&address, &directory, &method, path));
    let (status, text) = match answer {
        Err(error) if is_absent(&error) => bail!(
            "no running surus answers at {address}; start `surus work {}`, and run this command as \
             the same user and with the same --config",
            directory.display()
        ),
        answer => answer?,
    };
    Ok(match status.is_success() {
        true => Ok(text),
        false => Err(text.trim_end().into()),
    })
}

/// Whether nothing listens there.
fn is_absent(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    )
}
