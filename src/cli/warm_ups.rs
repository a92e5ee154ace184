//! Makes the requests that warm an application up.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http::{HeaderValue, Request, Uri, header};

use crate::app::site::{Resolution, Site};
use crate::engines::Warmup;
use crate::event::{Address, Body, Event, Origin};

/// A page that no application has, requested by `engine.warmup = "auto"`.
const NO_PAGE: &str = "/surus-warm-up-of-a-page-that-does-not-exist";

/// The requests of `engine.warmup`. `SURUS_WARMUP` tells PHP the number of the request and their
/// total. An application can then skip what only a client's request may cause, and a runner can
/// clean up after the last. A warm-up with `SURUS_WARMUP_AUTO` may fail.
pub fn of(warmup: &Warmup, alone: bool, site: &Site) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    if alone && let Ok(mut event) = get(NO_PAGE, site) {
        event
            .variables
            .push(("SURUS_WARMUP_AUTO".into(), "1".into()));
        events.push(event);
    }
    for url in warmup.urls() {
        events.push(get(url, site).context("engine.warmup")?);
    }
    let of = events.len();
    for (number, event) in (1..).zip(&mut events) {
        let which = format!("{number}/{of}");
        event.variables.push(("SURUS_WARMUP".into(), which));
    }
    Ok(events)
}

/// A request for `/path?query`, or for a whole URL if the application checks its host.
pub fn get(url: &str, site: &Site) -> anyhow::Result<Event> {
    let wrong = || {
        format!(
            "engine.warmup has {url:?}; expected a URL such as \"/\" or \
             \"https://example.org/login\""
        )
    };
    let uri: Uri = url.parse().with_context(wrong)?;
    let host = uri.authority().map_or("localhost", |host| host.as_str());
    let Resolution::Script(script) = site.resolve(uri.path()) else {
        bail!("engine.warmup has {url:?}, which PHP does not answer");
    };
    let mut request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .body(Body::Empty)
        .with_context(wrong)?;
    let host = HeaderValue::from_str(host).with_context(wrong)?;
    request.headers_mut().insert(header::HOST, host);
    let local = Address::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    Ok(Event {
        id: 0,
        request,
        script,
        origin: Origin {
            client: Some(local.clone()),
            server: Some(local),
            https: uri.scheme_str() == Some("https"),
        },
        variables: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(3600),
        idle_timeout: None,
        spool: None,
        hold: None,
        early_hints: None,
    })
}
