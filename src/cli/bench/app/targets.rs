//! Finds paths that no engine of a contest answers: files, redirects and routes of Surus itself.

use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::answers::Requests;
use crate::app::site::routes::{Action, RequestFacts, Routes};
use crate::app::site::{Facts, Resolution, normalize};
use crate::cli::engine_setup;
use crate::config::Config;

/// What answers a path instead of the engine that is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Instead {
    /// Surus itself.
    Surus(String),
    /// The engine or pool of a route.
    Route(String),
}

/// Leaves out the paths that would measure the same on each engine, and says which these are.
/// `configurations` has the name of each engine, and the configuration that it runs with. Fails if
/// no path is left.
pub fn leave_out_others(
    requests: &mut Requests,
    project: &Path,
    configurations: &[(&'static str, Config)],
) -> anyhow::Result<Vec<String>> {
    let headers = headers(requests);
    let mut notes = Vec::new();
    let mut left_out = Vec::new();
    requests.paths.retain(|path| {
        // The server of an engine whose site cannot be opened says why.
        let opened = configurations.iter().filter_map(|(engine, config)| {
            let found = instead(project, config, path, &headers).ok()?;
            Some((*engine, found))
        });
        let opened: Vec<_> = opened.collect();
        let others = opened
            .iter()
            .filter_map(|(engine, found)| Some((*engine, found.as_ref()?)));
        let others: Vec<_> = others.collect();
        let Some((_, first)) = others.first() else {
            return true;
        };
        let what = match first {
            Instead::Surus(what) => what.clone(),
            Instead::Route(name) => format!("a route sends it to `{name}`"),
        };
        if others.len() == opened.len() {
            left_out.push(format!(
                "{path} is not measured: {what}, whatever the engine"
            ));
            return false;
        }
        let engines: Vec<_> = others.iter().map(|(name, _)| format!("`{name}`")).collect();
        let engines = engines.join(", ");
        notes.push(format!("{path} does not measure {engines}: {what} there"));
        true
    });
    if requests.paths.is_empty() {
        bail!(
            "no engine would be measured; name a page that PHP answers (--path): {}",
            left_out.join("; ")
        );
    }
    notes.splice(0..0, left_out);
    Ok(notes)
}

/// What answers a path, if that is not the engine, or if nothing does.
fn instead(
    project: &Path,
    config: &Config,
    target: &str,
    headers: &HeaderMap,
) -> anyhow::Result<Option<Instead>> {
    let uri: Uri = target.parse()?;
    let Ok(path) = normalize(uri.path()) else {
        return Ok(None);
    };
    let routes = Routes::new(&config.route, &config.site)?;
    let choice = routes.choose(&RequestFacts {
        method: &Method::GET,
        path: path.path(),
        headers,
        query: uri.query(),
    });
    match choice.action {
        None => {}
        Some(Action::Deny) => return Ok(None),
        Some(Action::Engine(name)) => return Ok(Some(Instead::Route(name.clone()))),
        Some(Action::Files(_)) => return Ok(Some(surus("a route serves files there"))),
        Some(Action::Redirect(_)) => return Ok(Some(surus("a route redirects it"))),
    }
    let site = engine_setup::open_site(project, config)?;
    let facts = Facts::of_get(target, uri.query(), headers);
    Ok(match site.find_for(&facts, &path, Instant::now()) {
        Resolution::File(file) if !site.is_secret(&file) => {
            let name = file.path.strip_prefix(site.root()).unwrap_or(&file.path);
            Some(surus(&format!("Surus sends the file {}", name.display())))
        }
        Resolution::Redirect(to) | Resolution::RedirectTo(_, to) => {
            Some(surus(&format!("Surus redirects it to {to}")))
        }
        _ => None,
    })
}

fn surus(what: &str) -> Instead {
    Instead::Surus(what.to_string())
}

/// The headers of the requests that rules can look at. The generator refuses wrong ones.
fn headers(requests: &Requests) -> HeaderMap {
    let headers = requests.headers.iter().filter_map(|(name, value)| {
        let name: HeaderName = name.parse().ok()?;
        Some((name, HeaderValue::from_str(value).ok()?))
    });
    headers.collect()
}
