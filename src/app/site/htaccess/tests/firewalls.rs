//! Tests that long lists against attacks are evaluated at once, and let good requests pass.

use http::header::{COOKIE, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName};

use super::*;
use crate::event::{Address, Origin};

const LISTS: [&str; 3] = [
    include_str!("../../../../../tests/http/htaccess/sites/firewall-6g.toml"),
    include_str!("../../../../../tests/http/htaccess/sites/firewall-7g.toml"),
    include_str!("../../../../../tests/http/htaccess/sites/firewall-8g.toml"),
];

const BROWSER: &str =
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0 OPR/120.0 (Edition 9)";

struct Firewall {
    site: Site,
    _dir: tempfile::TempDir,
}

impl Firewall {
    fn new(list: &str) -> Firewall {
        let dir = tempfile::tempdir().unwrap();
        let list: toml::Table = toml::from_str(list).unwrap();
        let text = list["files"][".htaccess"].as_str().unwrap();
        Firewall::of(dir, text)
    }

    fn of(dir: tempfile::TempDir, text: &str) -> Firewall {
        let file = read(text);
        assert!(!file.is_broken && !file.problems.iter().any(|one| one.closes));
        fs::write(dir.path().join(".htaccess"), text).unwrap();
        fs::write(dir.path().join("index.php"), "").unwrap();
        let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
        // Reads the file, which a prompt look-up leaves to another thread.
        site.resolve("/");
        Firewall { site, _dir: dir }
    }

    fn find(&self, target: &str, headers: &[(HeaderName, &str)]) -> Resolution {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let origin = || Origin {
            client: Some(Address::from(
                "203.0.113.9:4000".parse::<std::net::SocketAddr>().unwrap(),
            )),
            server: Some(Address::from(
                "203.0.113.1:80".parse::<std::net::SocketAddr>().unwrap(),
            )),
            https: false,
        };
        let facts = Facts {
            origin: &origin,
            pace: Pace::Prompt,
            steps: Steps::of(Pace::Prompt),
            ..Facts::of_get(target, query, &headers)
        };
        self.site
            .find_for(&facts, &normalize(path).unwrap(), Instant::now())
    }
}

fn headers<'a>(referer: &'a str, cookie: &'a str) -> [(HeaderName, &'a str); 3] {
    [(USER_AGENT, BROWSER), (REFERER, referer), (COOKIE, cookie)]
}

#[test]
fn good_requests_pass_long_lists_at_once() {
    let cookie = format!("session={}; theme=dark", "s".repeat(300));
    let advertised = format!(
        "/?utm_source=news&utm_medium=email&utm_campaign=spring&utm_content=a-b&fbclid={}",
        "a".repeat(200)
    );
    let referer = format!("https://www.example.org/search?q={}", "shoes+".repeat(30));
    let api = format!(
        "/api/items?{}",
        "filter[name]=value&".repeat(25).replace(['[', ']'], "_")
    );
    for list in LISTS {
        let firewall = Firewall::new(list);
        for target in [
            "/",
            "/blog/2026/11/29/a-post-with-a-long-title-about-red-shoes",
            "/?page=2&sort=price&q=red+shoes",
            &advertised,
            &api,
        ] {
            let found = firewall.find(target, &headers(&referer, &cookie));
            assert!(
                matches!(found, Resolution::Script(_)),
                "{target}: {found:?}"
            );
        }
    }
}

#[test]
fn bad_requests_are_denied_by_long_lists_at_once() {
    let long = "z9".repeat(2000);
    let query = format!("/?q={long}");
    for list in LISTS {
        let firewall = Firewall::new(list);
        for target in [
            query.as_str(),
            "/?x=eval(1)",
            "/?x=%3Cscript%3E",
            "/shell.php.sql",
        ] {
            let found = firewall.find(target, &headers("", ""));
            assert!(
                matches!(found, Resolution::Denied(Denial::DeniedByHtaccess)),
                "{target:.40}: {found:?}"
            );
        }
    }
}
