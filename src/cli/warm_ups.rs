//! Makes the requests that warm an application up.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http::{HeaderValue, Request, Uri, header};
use tracing::warn;

use crate::app::host::HostPattern;
use crate::app::site::{Resolution, Site};
use crate::config::Config;
use crate::engines::Warmup;
use crate::engines::learned::NO_CLIENT;
use crate::event::{Address, Body, Event, Origin, Script};

/// A page that no application has, requested by `engine.warmup = "auto"`.
pub const NO_PAGE: &str = "/surus-warm-up-of-a-page-that-does-not-exist";

/// What warms a boot up.
#[derive(Default)]
pub struct WarmUpRequests {
    pub events: Vec<Event>,
    /// URLs of `engine.warmup` that other scripts answer: their places in the list, from 0.
    pub left_to_others: Vec<usize>,
}

/// The requests of `engine.warmup`, after those for learned pages. `SURUS_WARMUP` tells PHP the
/// number of the request and their total. An application can then skip what only a client's request
/// may cause, and the boot script can clean up after the last. A warm-up with `SURUS_WARMUP_AUTO`
/// may fail. `leaves_others`: no request for another script than the front controller gets to the
/// application.
pub fn requests(
    learned: &[String],
    warmup: &Warmup,
    alone: bool,
    leaves_others: bool,
    site: &Site,
) -> anyhow::Result<WarmUpRequests> {
    let (mut events, mut left_to_others) = (Vec::new(), Vec::new());
    // First, because the last one must not fail: the runner then cleans up.
    if let Some(front) = site.front_controller() {
        for url in learned {
            // PHP's report has the numbers of all learned pages, so none may be missing here.
            let mut event = match get_learned(url, site) {
                Some(event) => event,
                None => event(url, front.clone())?,
            };
            let auto = ("SURUS_WARMUP_AUTO".into(), "learned".into());
            event.variables.push(auto);
            events.push(event);
        }
    }
    if alone && let Ok(mut event) = get(NO_PAGE, site) {
        event
            .variables
            .push(("SURUS_WARMUP_AUTO".into(), "1".into()));
        events.push(event);
    }
    for (place, page) in warmup.urls().iter().enumerate() {
        let event = get(page, site).context("engine.warmup")?;
        if leaves_others && !site.is_front(&event.script) {
            warn!(
                page,
                "left out of the warm-ups, because another script than the booted front \
                 controller answers it; take it out of engine.warmup"
            );
            left_to_others.push(place);
            continue;
        }
        events.push(event);
    }
    let of = events.len();
    for (number, event) in (1..).zip(&mut events) {
        let which = format!("{number}/{of}");
        event.variables.push(("SURUS_WARMUP".into(), which));
    }
    Ok(WarmUpRequests {
        events,
        left_to_others,
    })
}

/// A request for `/path?query`, or for a whole URL if the application checks its host.
pub fn get(url: &str, site: &Site) -> anyhow::Result<Event> {
    let path = url.parse::<Uri>().with_context(|| wrong(url))?;
    let Resolution::Script(script) = site.resolve(path.path()) else {
        bail!("engine.warmup has {url:?}, which PHP does not answer");
    };
    let mut event = event(url, script)?;
    event.origin.client = event.origin.server.clone();
    Ok(event)
}

/// A request for a page that the front controller answers, as from a client of its own.
pub fn get_learned(url: &str, site: &Site) -> Option<Event> {
    let path = url.parse::<Uri>().ok()?;
    let Resolution::Script(script) = site.resolve(path.path()) else {
        return None;
    };
    // A rule may have led to it.
    let found = Script {
        rewritten: None,
        ..script.clone()
    };
    if Some(&found) != site.front_controller() {
        return None;
    }
    event(url, script).ok()
}

/// Makes a request that of a visitor who differs in all that pages usually look at: the scheme,
/// the host, a cookie, the language.
pub fn from_another_visitor(mut event: Event) -> Event {
    let headers = event.request.headers_mut();
    for (name, value) in [
        (header::HOST, "another-host.invalid"),
        (header::COOKIE, "surus=another-visitor"),
        (header::ACCEPT_LANGUAGE, "de-AT, fr;q=0.5"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    event.origin.https = !event.origin.https;
    event
}

fn wrong(url: &str) -> String {
    format!(
        "engine.warmup has {url:?}; expected a URL such as \"/\" or \"https://example.org/login\""
    )
}

fn event(url: &str, script: Script) -> anyhow::Result<Event> {
    let wrong = || wrong(url);
    let uri: Uri = url.parse().with_context(wrong)?;
    let host = uri.authority().map_or("localhost", |host| host.as_str());
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
            client: Some(Address::from(SocketAddr::from((NO_CLIENT, 0)))),
            server: Some(local),
            https: uri.scheme_str() == Some("https"),
        },
        variables: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(3600),
        idle_timeout: None,
        spool: None,
        completion_token: None,
        early_hints: None,
    })
}

/// The hosts that the configuration names: those with certificates first, then those of the site,
/// then those of routes.
pub fn named_hosts(config: &Config, of_site: &[HostPattern]) -> Vec<String> {
    let domains = config.acme.domains.iter().map(|domain| domain.as_str());
    let routes = config.route.iter().filter_map(|rule| rule.host.as_deref());
    let patterns = of_site.iter().chain(routes.flatten());
    let exact = patterns.filter_map(HostPattern::exact);
    let mut hosts: Vec<String> = Vec::new();
    for host in domains.chain(exact) {
        if !hosts.iter().any(|it| it == host) {
            hosts.push(host.to_owned());
        }
    }
    hosts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::app::site::Settings;

    #[test]
    fn another_visitor_has_another_host_cookie_language_and_scheme() {
        let script = Script {
            root: "/srv".into(),
            filename: std::path::Path::new("/srv/index.php").into(),
            name: "/index.php".into(),
            path_info: std::ffi::OsString::new(),
            query: None,
            rewritten: None,
        };
        for (url, is_https) in [("http://a.test/", true), ("https://a.test/", false)] {
            let event = from_another_visitor(event(url, script.clone()).unwrap());
            let headers = event.request.headers();
            assert_eq!(headers[header::HOST], "another-host.invalid");
            assert!(headers.contains_key(header::COOKIE));
            assert!(headers.contains_key(header::ACCEPT_LANGUAGE));
            assert_eq!(event.origin.https, is_https, "{url}");
        }
    }

    #[test]
    fn learned_page_may_reach_the_front_controller_by_a_rule() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("index.php"), "").unwrap();
        let rules = "RewriteEngine On\nRewriteRule ^page$ index.php [L]\n";
        std::fs::write(dir.path().join(".htaccess"), rules).unwrap();
        let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
        let learned = get_learned("/page", &site).unwrap();
        let rewritten = learned.script.rewritten.as_ref().unwrap();
        assert_eq!(rewritten.path, "/page");
        assert!(get_learned("/other", &site).is_none());
        let pages = ["/other".to_owned(), "/page".to_owned()];
        let warm_ups = requests(&pages, &Warmup::off(), false, false, &site).unwrap();
        let warm_ups = warm_ups.events;
        assert_eq!(warm_ups.len(), 2);
        assert_eq!(warm_ups[0].request.uri(), "/other");
        assert_eq!(warm_ups[0].script.rewritten, None);
        assert_eq!(warm_ups[1].script, learned.script);
    }

    #[test]
    fn named_hosts_are_those_of_certificates_then_of_the_site_then_of_routes() {
        let config = "[acme]\ndomains = [\"b.test\"]\n\
            [[route]]\nhost = [\"d.test\", \"*.e.test\"]\ndeny = true\n";
        let config: Config = toml::from_str(config).unwrap();
        let of_site = ["a.test", "*.c.test", "b.test"];
        let of_site = of_site.map(|host| host.parse::<HostPattern>().unwrap());
        assert_eq!(
            named_hosts(&config, &of_site),
            ["b.test", "a.test", "d.test"]
        );
        assert!(named_hosts(&Config::default(), &[]).is_empty());
    }
}
