//! Tests of `routes.rs`.

use http::HeaderValue;

use super::*;

fn rules(toml: &str) -> Result<Vec<Rule>, toml::de::Error> {
    #[derive(Deserialize)]
    struct File {
        route: Vec<Rule>,
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
    match routes.choose(&method, path, headers, query).action {
        Some(Action::Engine(name)) => name.clone(),
        Some(Action::Files(_)) => "files".to_owned(),
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
    assert_eq!(routes.engines().collect::<Vec<_>>(), ["rewind", "classic"]);
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
        let choice = routes.choose(&Method::GET, path, &none, None);
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
fn files_directory_runs_no_php() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("s")).unwrap();
    for name in ["s/a.css", "s/a.php", "s/index.php", "s/dump.sql"] {
        std::fs::write(dir.path().join(name), name).unwrap();
    }
    let rule = Rule {
        prefix: Some("/s/".into()),
        root: Some(dir.path().into()),
        ..Rule::default()
    };
    let routes = Routes::new(&[rule], &Settings::default()).unwrap();
    let choice = routes.choose(&Method::GET, "/s/a.css", &HeaderMap::new(), None);
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
            "exactly one of `engine`, `root` and `deny = true`",
        ),
        (
            r#"{ prefix = "/", engine = "x", deny = true }"#,
            "exactly one of `engine`",
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
