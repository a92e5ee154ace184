//! Tests what the configuration's keys and files accept.

use super::*;

#[test]
fn file_of_the_project_that_another_displaces_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (dir.path().join("surus.toml"), dir.path().join("other.toml"));
    let unread = |file: Option<&Path>| {
        let loaded = load(dir.path(), file, std::iter::empty(), None).unwrap();
        loaded.unread
    };
    std::fs::write(&other, "engine.workers = 2").unwrap();
    assert_eq!(unread(Some(&other)), None);
    std::fs::write(&own, "engine.workers = 3").unwrap();
    assert_eq!(unread(Some(&other)), Some(own.clone()));
    let link = dir.path().join("link.toml");
    std::os::unix::fs::symlink(&own, &link).unwrap();
    for same in [None, Some(&*own), Some(&*link)] {
        assert_eq!(unread(same), None, "{same:?}");
    }
}

#[test]
fn domains_open_the_ports_of_the_web_unless_addresses_are_set() {
    let ports = |addresses: &[Address]| -> Vec<u16> {
        let port = |address: &Address| match address {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) => 0,
        };
        addresses.iter().map(port).collect()
    };
    let load = |text: &str, listen: &[Address], domains: &[Domain]| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("surus.toml"), text).unwrap();
        let mut loaded = load(dir.path(), None, std::iter::empty(), None).unwrap();
        loaded.serve(listen, domains);
        loaded.config
    };
    let domains = ["a.example".parse().unwrap()];
    let listen = ["127.0.0.1:8080".parse().unwrap()];
    let without = load("", &[], &[]);
    assert_eq!(ports(&without.http.listen), [8080]);
    assert!(without.tls.listen.is_empty() && without.http.redirect_to_https.is_none());
    for config in [
        load("", &[], &domains),
        load("acme.domains = 'a.example'", &[], &[]),
    ] {
        assert!(ports(&config.http.listen).iter().all(|port| *port == 80));
        assert!(ports(&config.tls.listen).iter().all(|port| *port == 443));
        assert!(!config.http.listen.is_empty() && !config.tls.listen.is_empty());
        assert_eq!(config.http.redirect_to_https, Some(true));
    }
    let text = "http.listen = '127.0.0.1:8080'\nhttp.redirect_to_https = false\n\
                tls.listen = ':8443'";
    for config in [load(text, &[], &domains), load("", &listen, &domains)] {
        assert_eq!(ports(&config.http.listen), [8080]);
    }
    let config = load(text, &[], &domains);
    assert_eq!(ports(&config.tls.listen), [8443]);
    assert_eq!(config.http.redirect_to_https, Some(false));
}

#[test]
fn clients_that_need_a_certificate_are_redirected_to_https_unless_set_otherwise() {
    for (text, redirect) in [
        ("", Some(true)),
        ("http.redirect_to_https = false", Some(false)),
        ("tls.client_certificate = 'optional'", None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("tls.listen = ':8443'\ntls.client_ca = 'ca.pem'\n{text}");
        let text = format!("{text}\n[[site]]\nhost = 'a.example'");
        std::fs::write(dir.path().join("surus.toml"), &text).unwrap();
        let mut loaded = load(dir.path(), None, std::iter::empty(), None).unwrap();
        loaded.serve(&[], &[]);
        let config = loaded.config;
        assert_eq!(config.http.redirect_to_https, redirect, "{text}");
        let site = &config.sites[0].config;
        assert_eq!(site.http.redirect_to_https, redirect, "{text}");
    }
}

#[test]
fn single_value_stands_for_a_list_of_one() {
    for (setting, value) in [
        ("site.index", "'a.php'"),
        ("site.no_php", "'/uploads'"),
        ("site.hidden", "'*.bak'"),
        ("x_sendfile.directories", "'files'"),
        ("engine.shared_sockets", "'unix:/dev/log'"),
        ("lambda.before_snapshot", "'/a'"),
        ("lambda.after_restore", "'/a'"),
        ("lambda.binary_media_types", "'*/*'"),
        ("lambda.env_defaults", "'APP_ENV'"),
        ("lambda.error_statuses", "503"),
        ("package.extensions", "'redis'"),
        ("watch.ignore", "'uploads'"),
    ] {
        let read = |value: &str| {
            let config: Config = toml::from_str(&format!("{setting} = {value}")).unwrap();
            serde_json::to_value(config).unwrap()
        };
        let single = read(value);
        assert_eq!(single, read(&format!("[{value}]")), "{setting}");
        assert_ne!(single, read("[]"), "{setting}");
    }
    let route = |methods: &str| -> Result<Config, toml::de::Error> {
        toml::from_str(&format!(
            "[[route]]\nprefix = '/'\ndeny = true\nmethods = {methods}"
        ))
    };
    let methods = route("'GET'").unwrap().route.remove(0).methods;
    assert_eq!(methods, Some(vec!["GET".to_owned()]));
    // A single value is checked like the values of a list.
    for wrong in ["''", "'get'", "[]", "7"] {
        assert!(route(wrong).is_err(), "{wrong}");
    }
    for wrong in ["site.index = '.x'", "site.no_php = 'x'"] {
        assert!(toml::from_str::<Config>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn pool_named_like_an_engine_has_no_other() {
    let engine = |pool: &str| -> Result<Option<String>, toml::de::Error> {
        let config: Config = toml::from_str(&format!("engine.name = 'rewind'\n{pool}"))?;
        let name = config.pool.keys().next().unwrap();
        Ok(config.for_pool(name).unwrap().engine.name)
    };
    for (pool, expected) in [
        ("pool.classic.workers = 1", "classic"),
        ("pool.classic.engine = 'classic'", "classic"),
        ("pool.own.workers = 1", "rewind"),
        ("pool.own.engine = 'worker'", "worker"),
    ] {
        assert_eq!(engine(pool).unwrap().as_deref(), Some(expected), "{pool}");
    }
    let error = engine("pool.classic.engine = 'worker'").unwrap_err();
    let says = "the pool \"classic\" cannot have the engine \"worker\"";
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn repeated_extensions_add_up_and_other_entries_are_replaced() {
    let mut php = BTreeMap::new();
    for (name, value) in [
        ("extension", "a"),
        ("precision", "3"),
        ("extension", "b"),
        ("precision", "4"),
        ("extension", "c"),
    ] {
        IniValue::set(&mut php, name, IniValue::Text(value.into()));
    }
    assert_eq!(php["extension"].entries(), ["a", "b", "c"]);
    assert_eq!(php["precision"].entries(), ["4"]);
    let list: Config = toml::from_str("[php]\nextension = ['a', 'b']").unwrap();
    assert_eq!(list.php["extension"].entries(), ["a", "b"]);
}

#[test]
fn loopback_address_of_ipv6_is_used_only_where_it_is_assigned() {
    let loopback = "00000000000000000000000000000001 01 80 10 80       lo\n";
    let other = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n";
    assert!(has_v6_loopback(&format!("{other}{loopback}")));
    assert!(!has_v6_loopback(other));
    assert!(!has_v6_loopback(""));
}
