//! Tests of `routes.rs`.

use http::HeaderValue;

use super::*;

fn rules(toml: &str) -> Result<Vec<RouteRule>, toml::de::Error> {
    #[derive(Deserialize)]
    struct File {
        route: Vec<RouteRule>,
    }
    toml::from_str::<File>(toml).map(|file| file.route)
}

fn routes(toml: &str) -> Routes {
    Routes::new(&rules(toml).unwrap(), &Settings::default()).unwrap()
}

fn chosen(
    routes: &Routes,
    method: Method,
    path: &str,
    headers: &HeaderMap,
    query: Option<&str>,
) -> String {
    chosen_by(
        routes,
        &RequestFacts {
            method: &method,
            headers,
            query,
            ..facts(path, headers)
        },
    )
}

/// A GET for this path.
fn facts<'a>(path: &'a str, headers: &'a HeaderMap) -> RequestFacts<'a> {
    RequestFacts {
        method: &Method::GET,
        path,
        headers,
        query: None,
    }
}

fn chosen_by(routes: &Routes, facts: &RequestFacts<'_>) -> String {
    match routes.choose(facts).action {
        Some(Action::Engine(name)) => name.clone(),
        Some(Action::Files(_)) => "files".to_owned(),
        Some(Action::Redirect(redirect)) => {
            redirect.location(&facts.path.parse().unwrap(), facts.path)
        }
        Some(Action::Deny) => "deny".to_owned(),
        None => "-".to_owned(),
    }
}

#[test]
fn first_matching_rule_decides() {
    let routes = routes(
        r#"
            route = [
                { prefix = "/private/", deny = true },
                { suffix = ".log", deny = true },
                { regex = "^/v[0-9]+/", engine = "rewind" },
                { prefix = "/", engine = "classic", methods = ["POST", "PUT"] },
            ]"#,
    );
    let none = HeaderMap::new();
    for (method, path, expected) in [
        (Method::GET, "/private/x", "deny"),
        (Method::GET, "/privately", "-"),
        (Method::GET, "/a/debug.log", "deny"),
        (Method::GET, "/v2/users", "rewind"),
        (Method::POST, "/v2/users", "rewind"),
        (Method::POST, "/private/v2/", "deny"),
        (Method::POST, "/x", "classic"),
        (Method::GET, "/x", "-"),
    ] {
        assert_eq!(
            chosen(&routes, method.clone(), path, &none, None),
            expected,
            "{method} {path}"
        );
    }
}

#[test]
fn compress_only_rule_leaves_the_action_to_later_rules() {
    let routes = routes(
        r#"
            route = [
                { prefix = "/account/open", compress = true },
                { prefix = "/account", compress = false },
                { prefix = "/account/api", engine = "rewind" },
                { prefix = "/account/", engine = "classic", compress = true },
                { prefix = "/", compress = true },
            ]"#,
    );
    for (path, action, compress) in [
        ("/account/open/x", "classic", Some(true)),
        ("/account/x", "classic", Some(false)),
        ("/account/api/x", "rewind", Some(false)),
        ("/account", "-", Some(false)),
        ("/x", "-", Some(true)),
    ] {
        let none = HeaderMap::new();
        assert_eq!(chosen(&routes, Method::GET, path, &none, None), action);
        let choice = routes.choose(&facts(path, &none));
        assert_eq!(choice.compress, compress, "{path}");
    }
}

#[test]
fn all_conditions_must_hold() {
    let routes = routes(
        r#"route = [
                { prefix = "/", cookie = "canary", engine = "cookie" },
                { prefix = "/", header = "X-Canary", engine = "header" },
                { prefix = "/", query = "a b", methods = ["GET"], engine = "query" },
            ]"#,
    );
    let with = |name: &'static str, value: &'static str| {
        HeaderMap::from_iter([(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )])
    };
    let none = HeaderMap::new();
    for (headers, query, expected) in [
        (with("cookie", "a=1; canary=yes"), None, "cookie"),
        (with("cookie", "canary="), None, "cookie"),
        (with("cookie", "a=canary; xcanary=1; canary"), None, "-"),
        (with("x-canary", ""), None, "header"),
        (none.clone(), Some("x=1&a+b"), "query"),
        (none.clone(), Some("a%20b=1"), "query"),
        (none.clone(), Some("x=a b&ab=1"), "-"),
        (none.clone(), None, "-"),
    ] {
        assert_eq!(
            chosen(&routes, Method::GET, "/", &headers, query),
            expected,
            "{headers:?} {query:?}"
        );
    }
    assert_eq!(chosen(&routes, Method::POST, "/", &none, Some("a+b")), "-");
}

#[test]
fn rule_with_a_host_is_for_that_host_only() {
    let routes = routes(
        r#"
            route = [
                { host = "www.example.org", redirect = "https://example.org{uri}" },
                { host = ["a.example", "*.b.example"], prefix = "/x", engine = "ab" },
                { prefix = "/", engine = "others" },
            ]"#,
    );
    for (host, path, expected) in [
        (Some("www.example.org"), "/a", "https://example.org/a"),
        (Some("WWW.Example.Org.:8080"), "/a", "https://example.org/a"),
        (Some("example.org"), "/a", "others"),
        (Some("a.example"), "/x", "ab"),
        (Some("a.example"), "/y", "others"),
        (Some("c.b.example"), "/x", "ab"),
        (Some("b.example"), "/x", "others"),
        (None, "/x", "others"),
    ] {
        let host = host.map(|host| (header::HOST, HeaderValue::from_static(host)));
        let headers = HeaderMap::from_iter(host.clone());
        let chosen = chosen_by(&routes, &facts(path, &headers));
        assert_eq!(chosen, expected, "{host:?} {path}");
    }
}

#[test]
fn headers_of_all_rules_apply_down_to_the_one_that_decides() {
    let routes = routes(
        r#"
            route = [
                { prefix = "/", headers = { "X-A" = "1" } },
                { prefix = "/x", headers = { "X-A" = "2", "X-B" = "2" }, deny = true },
                { prefix = "/", headers = { "X-C" = "3" } },
            ]"#,
    );
    let none = HeaderMap::new();
    for (path, expected) in [("/x", "x-a: 1, x-b: 2"), ("/y", "x-a: 1, x-c: 3")] {
        let mut headers = HeaderMap::new();
        routes
            .choose(&facts(path, &none))
            .headers
            .apply(&mut headers);
        let all = headers.iter();
        let mut all: Vec<_> = all
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        all.sort();
        assert_eq!(all.join(", "), expected, "{path}");
    }
}

#[test]
fn redirect_to_itself_is_found() {
    let routes = routes(
        r#"
            route = [
                { prefix = "/a", redirect = "/a/new" },
                { prefix = "/b", redirect = "/new" },
                { host = "c.example", redirect = "https://c.example{uri}" },
                { host = "*.c.example", redirect = "https://c.example{uri}" },
                { host = "*.d.example", redirect = "https://www.d.example{uri}" },
                { host = "e.example", redirect = "https://e.example:8443{uri}" },
                { suffix = ".htm", redirect = "{path}l" },
                { regex = "^/f", redirect = "/f" },
                { regex = "^/g/(.*)", redirect = "/{1}" },
                { prefix = "/h/", methods = ["POST"], redirect = "/h/", status = 303 },
            ]"#,
    );
    assert_eq!(routes.endless_redirects(), [1, 3, 5, 8]);
}

#[test]
fn files_directory_runs_no_php() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("s")).unwrap();
    for name in ["s/a.css", "s/a.php", "s/index.php", "s/dump.sql"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let rule = RouteRule {
        prefix: Some("/s/".into()),
        root: Some(dir.path().into()),
        ..RouteRule::default()
    };
    let routes = Routes::new(&[rule], &Settings::default()).unwrap();
    let none = HeaderMap::new();
    let choice = routes.choose(&facts("/s/a.css", &none));
    let Some(Action::Files(site)) = choice.action else {
        panic!("no rule")
    };
    use super::super::Resolution::{File, NotFound};
    assert!(matches!(site.resolve("/s/a.css"), File(_)));
    for path in [
        "/s/dump.sql",
        "/s/a.php",
        "/s/a.php/x",
        "/s/",
        "/s",
        "/none",
    ] {
        assert!(matches!(site.resolve(path), NotFound), "{path}");
    }
}

#[test]
fn htaccess_files_apply_below_a_files_directory() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["open", "closed"] {
        std::fs::create_dir_all(dir.path().join("s").join(name)).unwrap();
        std::fs::write(dir.path().join(format!("s/{name}/a.txt")), name).unwrap();
    }
    let rules = "Require all denied\nRewriteEngine On\nRewriteRule . /s/open/a.txt\n";
    std::fs::write(dir.path().join("s/closed/.htaccess"), rules).unwrap();
    let index = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . index.php\n";
    std::fs::write(dir.path().join("s/.htaccess"), index).unwrap();
    std::fs::write(dir.path().join("s/index.php"), "").unwrap();
    let rule = RouteRule {
        prefix: Some("/s/".into()),
        root: Some(dir.path().into()),
        ..RouteRule::default()
    };
    use super::super::Resolution::{Denied, File, NotFound};
    for applies in [true, false] {
        let settings = Settings {
            htaccess: applies,
            ..Settings::default()
        };
        let routes = Routes::new(std::slice::from_ref(&rule), &settings).unwrap();
        assert!(routes.roots().eq([dir.path()]));
        let none = HeaderMap::new();
        let choice = routes.choose(&facts("/s/a.css", &none));
        let Some(Action::Files(site)) = choice.action else {
            panic!("no rule")
        };
        assert!(matches!(site.resolve("/s/open/a.txt"), File(_)));
        let closed = site.resolve("/s/closed/a.txt");
        assert_eq!(matches!(closed, Denied(_)), applies, "{closed:?}");
        // No rule makes it run PHP.
        assert!(matches!(site.resolve("/s/none"), NotFound));
    }
}

#[test]
fn invalid_rule_is_named_with_the_allowed_values() {
    for (rule, says) in [
        (
            r#"{ engine = "x" }"#,
            "exactly one of `prefix`, `suffix` and `regex`",
        ),
        (
            r#"{ prefix = "/", suffix = "x", deny = true }"#,
            "exactly one of `prefix`",
        ),
        (
            r#"{ prefix = "/" }"#,
            "exactly one of `engine`, `root`, `redirect` and `deny = true`",
        ),
        (
            r#"{ prefix = "/", engine = "x", deny = true }"#,
            "exactly one of `engine`",
        ),
        (r#"{ host = "a" }"#, "exactly one of `engine`"),
        (
            r#"{ host = [], prefix = "/", deny = true }"#,
            "leave it out",
        ),
        (
            r#"{ host = "a:80", deny = true }"#,
            "without scheme, port and path",
        ),
        (
            r#"{ prefix = "/", redirect = "/a", deny = true }"#,
            "exactly one of `engine`",
        ),
        (
            r#"{ prefix = "/", redirect = "/a", compress = true }"#,
            "`compress` applies only to PHP",
        ),
        (
            r#"{ prefix = "/", deny = true, status = 301 }"#,
            "`status` is the status of a `redirect`",
        ),
        (
            r#"{ prefix = "/", redirect = "/a", status = 200 }"#,
            "a redirect has one of",
        ),
        (r#"{ prefix = "/", redirect = "a" }"#, "expects a path"),
        (r#"{ prefix = "/", redirect = "/{1}" }"#, "only `regex`"),
        (
            r#"{ prefix = "/", headers = { Connection = "close" } }"#,
            "Surus itself determines",
        ),
        (
            r#"{ prefix = "/", deny = true, compress = false }"#,
            "`compress` applies only to PHP",
        ),
        (
            r#"{ prefix = "x", deny = true }"#,
            "must begin with a slash",
        ),
        (r#"{ suffix = "", deny = true }"#, "matches every path"),
        (r#"{ regex = "(", deny = true }"#, "`regex` is \"(\""),
        (
            r#"{ prefix = "/", methods = ["get"], deny = true }"#,
            "in capitals",
        ),
        (
            r#"{ prefix = "/", methods = [], deny = true }"#,
            "leave it out",
        ),
        (
            r#"{ prefix = "/", header = "a b", deny = true }"#,
            "name of a header",
        ),
        (
            r#"{ prefix = "/", cookie = "", deny = true }"#,
            "`cookie` is empty",
        ),
        (r#"{ prefix = "/", root = "static" }"#, "absolute"),
        (
            r#"{ prefix = "/", root = "/nowhere/at/all" }"#,
            "/nowhere/at/all",
        ),
    ] {
        let toml = format!("route = [{{ prefix = \"/ok\", deny = true }}, {rule}]");
        let error = match rules(&toml) {
            // The error's span tells its place.
            Err(error) => error.message().to_owned(),
            Ok(rules) => {
                let error = Routes::new(&rules, &Settings::default()).unwrap_err();
                let error = format!("{error:#}");
                assert!(error.starts_with("[[route]] number 2: "), "{error}");
                error
            }
        };
        assert!(error.contains(says), "{error}");
    }
}
