//! Tests of the `[[site]]` tables.

use super::*;

fn sites(text: &str) -> anyhow::Result<Vec<SiteConfig>> {
    take(&mut toml::from_str(text).unwrap())
}

#[test]
fn site_lays_its_settings_over_those_of_all() {
    let all = sites(
        "engine.workers = 4\nphp.memory_limit = '64M'\nhttp.max_body_size = '1M'\n\
         http.max_headers = 50\nenv.A = 'all'\n\
         [pool.debug]\nworkers = 3\n\
         [[route]]\nprefix = '/all'\ndeny = true\n\
         [[site]]\nhost = ['Shop.example', '*.shop.example']\nproject = 'shop'\n\
         root = 'web'\nhtaccess = false\nengine.name = 'classic'\nengine.max_workers = 9\n\
         engine.min_workers = 2\nphp.precision = 3\nhttp.max_body_size = '2M'\n\
         pool.debug.engine = 'cgi'\n\
         [[site.route]]\nprefix = '/own'\ndeny = true\n\
         [[site]]\ndefault = true\n",
    )
    .unwrap();
    let [shop, other] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(shop.name, "shop.example");
    assert_eq!(shop.hosts.len(), 2);
    assert_eq!(shop.project.as_deref(), Some("shop".as_ref()));
    let config = &shop.config;
    assert_eq!(config.site.root.as_deref(), Some("web".as_ref()));
    assert!(!config.site.htaccess);
    assert_eq!(config.engine.name.as_deref(), Some("classic"));
    assert_eq!(config.engine.workers, None);
    assert_eq!(config.engine.max_workers, Some(9));
    assert_eq!(config.php.len(), 2);
    assert_eq!(config.http.max_body_size.0, 2 << 20);
    assert_eq!(config.http.max_headers, 50);
    assert_eq!(config.env["A"], "all");
    let debug = &config.pool["debug"];
    assert_eq!(
        (debug.workers, debug.engine.as_deref()),
        (Some(3), Some("cgi"))
    );
    let routes: Vec<_> = config.route.iter().map(|rule| &rule.prefix).collect();
    assert_eq!(routes, [&Some("/own".to_owned()), &Some("/all".to_owned())]);

    assert!(other.is_default && other.hosts.is_empty());
    assert_eq!(other.name, "default");
    assert_eq!(other.config.engine.workers, Some(4));
    assert!(other.config.site.htaccess && other.config.route.len() == 1);
}

#[test]
fn single_site_stays_in_the_configuration() {
    let mut table = toml::from_str("[site]\nroot = 'web'").unwrap();
    assert!(take(&mut table).unwrap().is_empty());
    let config = Config::deserialize(Value::Table(table)).unwrap();
    assert_eq!(config.site.root.as_deref(), Some("web".as_ref()));
}

#[test]
fn invalid_site_is_rejected_with_the_remedy() {
    for (text, says) in [
        ("root = 'a'", "no `host`"),
        ("host = 'a.example:80'", "without scheme, port"),
        (
            "host = 'a'\ntls.client_ca = 'a.pem'",
            "`tls.client_ca` is for all sites",
        ),
        (
            "host = 'a'\ntls.listen = ':443'",
            "A site can set tls.certificate, tls.hsts, tls.key",
        ),
        ("host = 'a'\nacme.email = 'a@b'", "`acme.email` is for all"),
        ("host = 'a'\nhttp.h3 = true", "`http.h3` is for all sites"),
        (
            "host = 'a'\nacme.domains = 'c'",
            "number 1 has c in acme.domains, which is not one of its hosts",
        ),
        (
            "host = 'a'\nacme.domains = 'b'\n[[site]]\nhost = 'b'",
            "which is a host of number 2",
        ),
        ("host = 'a'\ntelemetry.sampler = 'x'", "write [telemetry]"),
        ("host = 'a'\nwatch.poll = true", "write [watch]"),
        ("host = 'a'\nlog.level = 'off'", "write [log]"),
        ("host = 'a'\naccess_log.format = '$x'", "access_log.format"),
        (
            "host = 'a'\nhttp.listen = ':80'",
            "`http.listen` is for all sites",
        ),
        (
            "host = 'a'\n[site.route]\nprefix = '/p'\ndeny = true",
            "write [[site.route]]",
        ),
        ("host = 'a'\nrot = 'a'", "unknown field `rot`"),
        ("host = 'a'\nengine.name = 'rewinde'", "rewind"),
        ("host = 'a'\nname = 'a b'", "`name` is \"a b\""),
        (
            "host = ['a', 'b']\n[[site]]\nname = 'c'\nhost = 'B'",
            "number 1 and number 2 both have the host b",
        ),
        ("host = ['a', 'A']", "has the host a twice"),
        (
            "host = 'a'\n[[site]]\nname = 'a'\nhost = 'b'",
            "both have the name a",
        ),
        (
            "default = true\n[[site]]\nhost = 'a'\ndefault = true",
            "both are the default",
        ),
    ] {
        let error = sites(&format!("[[site]]\n{text}")).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(says), "{says}: {error}");
        assert!(error.contains("[[site]] number"), "{error}");
    }
    assert!(sites("site = []").is_err());
}

#[test]
fn unknown_key_is_named_with_all_keys_of_a_site() {
    let error = |text: &str| {
        let error = sites(&format!("[[site]]\nhost = 'a'\n{text}")).unwrap_err();
        format!("{error:#}")
    };
    for (text, key) in [("rot = 'a'", "rot"), ("[site.engin]\nname = 'a'", "engin")] {
        let error = error(text);
        let expected = format!("unknown field `{key}`, expected one of `host`, ");
        assert!(error.contains(&expected), "{error}");
        let sections = SECTIONS.iter().map(|(section, _)| *section);
        let others = ["root", "htaccess", "hidden", "route"];
        for key in OWN.into_iter().chain(sections).chain(others) {
            assert_eq!(
                error.matches(&format!("`{key}`")).count(),
                1,
                "{key}: {error}"
            );
        }
        assert!(!error.contains("`configuration`"), "{error}");
    }
    // Of a section of which a site has some keys only.
    let error = error("http.max_bdy_size = 1");
    assert!(
        error.contains("`http.max_bdy_size` is not a setting")
            && error.contains("http.max_body_size"),
        "{error}"
    );
    // Of others, the section's own.
    let error = sites("[[site]]\nhost = 'a'\nengine.wrkers = 1").unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("`wrkers`") && error.contains("`max_workers`"),
        "{error}"
    );
}

#[test]
fn error_of_a_file_names_the_line_of_its_site() {
    let line = |text: &str| {
        let error = toml::from_str::<Config>(text).unwrap_err();
        let start = start_of(error.message(), text).unwrap();
        text[..start].matches('\n').count() + 1
    };
    let first = "[log]\n\n[[site]]\nhost = 'a'\n[[site.route]]\nprefix = '/a'\n";
    assert_eq!(
        line(&format!("{first}\n[[site]]\nrot = 'x'\nhost = 'b'\n")),
        8
    );
    assert_eq!(
        line(&format!(
            "{first}[[site]]\nhost = 'b'\nengine.workers = 'x'\n"
        )),
        7
    );
    assert_eq!(line("[[site]]\nrot = 'x'\n[[site]]\nhost = 'a'\n"), 1);
    let inline = "site = [\n  { host = 'a' },\n  { host = 'b', rot = 'x' },\n]";
    assert_eq!(line(inline), 3);
    assert_eq!(start_of("unknown field `rot`", first), None);
}

#[test]
fn error_of_a_file_names_the_site() {
    let dir = tempfile::tempdir().unwrap();
    let load = |text: &str| {
        std::fs::write(dir.path().join("surus.toml"), text).unwrap();
        let none = std::iter::empty();
        crate::config::load(dir.path(), None, none, None).map(|loaded| loaded.config)
    };
    let error = load("\n[[site]]\nhost = 'a'\n\n[[site]]\nhost = 'b'\nwork.serve = true\n");
    let error = format!("{:#}", error.unwrap_err());
    assert!(
        error.contains("[[site]] number 2: `work` is") && error.contains("surus.toml:5:"),
        "{error}"
    );
    let config = load("[[site]]\nhost = 'a'\nproject = 'b'\n").unwrap();
    assert_eq!(config.sites[0].project, Some(dir.path().join("b")));
    let variable = [("SURUS_SITE_ROOT".to_owned(), "x".to_owned())].into_iter();
    let error = crate::config::load(dir.path(), None, variable, None).unwrap_err();
    assert!(format!("{error:#}").contains("[[site]]"), "{error:#}");
}

#[test]
fn certificates_domains_and_log_file_are_not_inherited() {
    let all = sites(
        "tls.certificate = 'all.crt'\ntls.key = 'all.key'\ntls.hsts = 'max-age=1'\n\
         access_log.file = 'all.log'\naccess_log.format = 'json'\nhttp.redirect_to_https = true\n\
         [[site]]\nhost = 'a'\ntls.certificate = 'a.crt'\ntls.key = 'a.key'\n\
         access_log.file = 'a.log'\nhttp.redirect_to_https = false\nhttp.max_response_buffer = 0\n\
         [[site]]\nhost = 'b'\ntls.hsts = 'max-age=2'\naccess_log.format = 'off'\n",
    )
    .unwrap();
    let [a, b] = [&all[0].config, &all[1].config];
    assert_eq!(a.tls.certificate, [Path::new("a.crt")]);
    assert_eq!(a.tls.key, [Path::new("a.key")]);
    assert_eq!(a.access_log.file.as_deref(), Some("a.log".as_ref()));
    assert!(a.access_log.format.is_json());
    assert_eq!(a.tls.hsts.as_deref(), Some("max-age=1"));
    assert_eq!(a.http.max_response_buffer.0, 0);
    assert!(b.tls.certificate.is_empty() && b.tls.key.is_empty());
    assert_eq!(b.tls.hsts.as_deref(), Some("max-age=2"));
    assert_eq!(b.access_log.file, None);
    assert_eq!(b.access_log.format.to_string(), "off");
    let redirects = [a, b].map(|config| config.http.redirect_to_https);
    assert_eq!(redirects, [Some(false), Some(true)]);
}

#[test]
fn domains_of_sites_are_served_together_and_redirect_their_own_site() {
    let dir = tempfile::tempdir().unwrap();
    let text = "acme.domains = ['both.test', 'a.test']\n\
                [[site]]\nhost = ['a.test', 'both.test']\nacme.domains = 'a.test'\n\
                [[site]]\nhost = '*.b.test'\nacme.domains = ['x.b.test', 'y.b.test']\n\
                [[site]]\nhost = 'plain.example'\n";
    std::fs::write(dir.path().join("surus.toml"), text).unwrap();
    let load = |domains: &[Domain]| {
        let mut loaded = crate::config::load(dir.path(), None, std::iter::empty(), None).unwrap();
        loaded.serve(&[], domains);
        let of = |config: &Config| {
            let domains = config.acme.domains.iter().map(Domain::as_str);
            let domains = domains.collect::<Vec<_>>().join(" ");
            (domains, config.http.redirect_to_https == Some(true))
        };
        let sites: Vec<_> = loaded
            .config
            .sites
            .iter()
            .map(|site| of(&site.config))
            .collect();
        (of(&loaded.config).0, sites)
    };
    let owned = |domains: &str, redirects| (domains.to_owned(), redirects);
    let (all, sites) = load(&[]);
    assert_eq!(all, "both.test a.test x.b.test y.b.test");
    let expected = [
        ("both.test a.test", true),
        ("x.b.test y.b.test", true),
        ("", false),
    ];
    assert_eq!(
        sites,
        expected.map(|(domains, redirects)| owned(domains, redirects))
    );
    let (all, sites) = load(&["plain.example".parse().unwrap()]);
    assert_eq!(all, "plain.example");
    let expected = [("", false), ("", false), ("plain.example", true)];
    assert_eq!(
        sites,
        expected.map(|(domains, redirects)| owned(domains, redirects))
    );
}

#[test]
fn common_domain_that_no_site_has_is_rejected_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    for (host, is_rejected) in [("host = 'a.test'", true), ("default = true", false)] {
        let text = format!("acme.domains = 'b.test'\n[[site]]\n{host}\n");
        std::fs::write(dir.path().join("surus.toml"), text).unwrap();
        let loaded = crate::config::load(dir.path(), None, std::iter::empty(), None).unwrap();
        let Config { acme, sites, .. } = loaded.config;
        let checked = check_served(&acme.domains, "acme.domains", &sites);
        assert_eq!(checked.is_err(), is_rejected, "{host}");
        if let Err(error) = checked {
            let error = format!("{error:#}");
            let says = "no [[site]] has the host b.test (acme.domains)";
            assert!(error.contains(says), "{error}");
        }
    }
}

#[test]
fn name_of_a_pool_has_no_slash() {
    let error = sites("[[site]]\nhost = 'a'\n[site.pool.'a/b']\nworkers = 1\n").unwrap_err();
    assert!(
        format!("{error:#}").contains("names have no `/`"),
        "{error:#}"
    );
}
