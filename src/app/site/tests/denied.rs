//! Tests of files that must not be served.

use super::*;

#[test]
fn uploaded_php_is_neither_run_nor_sent() {
    check(
        &Settings {
            no_php: Some(vec!["/uploads/".into()]),
            ..Settings::default()
        },
        &[
            ("/uploads/evil.php", "denied"),
            ("/uploads/evil.php/x", "denied"),
            ("/uploads/evil.PHP", "denied"),
            ("/UPLOADS/evil.php", "denied"),
            ("/upl%6fads/evil.ph%70", "denied"),
            ("//uploads/./evil.php", "denied"),
            ("/blog/../uploads/evil.php", "denied"),
            ("/uploads%2fevil.php", "denied"),
            ("/uploads/none.phtml", "denied"),
            ("/uploads/evil.php.bak", "denied"),
            ("/uploads/evil.php%20", "denied"),
            ("/uploads/a.png", "file uploads/a.png"),
            ("/uploads/a.png/x.php", "denied"),
            ("/uploads/", "run /index.php"),
            ("/uploads", "run /index.php"),
            ("/x.php", "run /x.php"),
        ],
    );
}

#[test]
fn unreadable_file_is_denied() {
    use std::os::unix::fs::PermissionsExt;
    if is_root() {
        return; // Root may read everything.
    }
    let dir = project();
    fs::set_permissions(
        dir.path().join("public/style.css"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    assert_eq!(says(&site, "/style.css"), "denied");
    let docs = dir.path().join("public/docs");
    fs::set_permissions(&docs, fs::Permissions::from_mode(0o111)).unwrap();
    assert_eq!(says(&site, "/docs"), "to /docs/");
    fs::set_permissions(&docs, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(says(&site, "/docs"), "denied");
    fs::set_permissions(&docs, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn siblings_obey_the_same_rules() {
    let dir = project();
    let public = dir.path().join("public");
    fs::write(public.join("style.css.br"), "").unwrap();
    symlink("/etc/passwd", public.join("style.css.gz")).unwrap();
    let settings = Settings {
        symlinks: Symlinks::Inside,
        ..Settings::default()
    };
    for site in sites(&dir, &settings) {
        let Resolution::File(found) = site.resolve("/style.css") else {
            panic!()
        };
        assert_eq!(
            site.sibling(&found.path, ".br").unwrap().path,
            site.root().join("style.css.br")
        );
        assert!(site.sibling(&found.path, ".gz").is_none());
        assert!(site.sibling(&found.path, ".zst").is_none());
    }
}

#[test]
fn htaccess_closes_its_directory() {
    let dir = project();
    let public = dir.path().join("public");
    let put = |name: &str, text: &str| {
        let path = public.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("data/pages/start.txt", "");
    put("data/run.php", "");
    put("data/open/logo.txt", "");
    put("data/.htaccess", "Order allow,deny\nDeny from all\n");
    put("data/open/.htaccess", "Allow from all\n");
    put("docs/.htaccess", "Options -Indexes\n");
    for site in sites(&dir, &Settings::default()) {
        for closed in [
            "/data/pages/start.txt",
            "/data/run.php",
            "/data/run.php/more",
        ] {
            assert_eq!(says(&site, closed), "denied", "{closed}");
        }
        assert_eq!(
            says(&site, "/data/open/logo.txt"),
            "file data/open/logo.txt"
        );
        assert_eq!(says(&site, "/docs/"), "file docs/index.html");
        assert_eq!(says(&site, "/style.css"), "file style.css");
        // Clients must not learn from it what exists.
        assert_eq!(says(&site, "/data/nothing"), "denied");
        assert_eq!(says(&site, "/data"), "denied");
    }
    let open = Settings {
        htaccess: false,
        ..Settings::default()
    };
    for site in sites(&dir, &open) {
        assert_eq!(
            says(&site, "/data/pages/start.txt"),
            "file data/pages/start.txt"
        );
    }
    // A removed rule has no effect after a second.
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    let at = |now| {
        matches!(
            site.find(&normalize("/data/pages/start.txt").unwrap(), now),
            Resolution::File(_)
        )
    };
    let now = Instant::now();
    assert!(!at(now));
    fs::remove_file(public.join("data/.htaccess")).unwrap();
    assert!(at(now + Duration::from_secs(1)));
}

#[test]
fn configuration_is_hidden_under_every_name() {
    let dir = project();
    let public = dir.path().join("public");
    for name in ["prod.toml", "prod.toml~", "prod.toml.bak", "other.toml"] {
        fs::write(public.join(name), "").unwrap();
    }
    fs::hard_link(public.join("prod.toml"), public.join("notes.txt")).unwrap();
    symlink("prod.toml", public.join("link.txt")).unwrap();
    let settings = Settings {
        configuration: Some(public.join("prod.toml")),
        ..Settings::default()
    };
    let site = Site::open(dir.path(), &settings, None).unwrap();
    let is_secret = |path: &str| match site.resolve(path) {
        Resolution::File(found) => site.is_secret(&found),
        // Copies of any file are hidden.
        Resolution::NotFound => true,
        other => panic!("{path}: {other:?}"),
    };
    for path in [
        "/prod.toml",
        "/prod.toml~",
        "/prod.toml.bak",
        "/notes.txt",
        "/link.txt",
    ] {
        assert!(is_secret(path), "{path}");
    }
    assert!(!is_secret("/other.toml"));
    // Saved as editors do: another file of that name.
    fs::remove_file(public.join("prod.toml")).unwrap();
    fs::write(public.join("prod.toml"), "").unwrap();
    assert!(is_secret("/prod.toml"));
    for path in ["/surus.toml", "/surus.toml~", "/Surus.toml.bak"] {
        fs::write(public.join(&path[1..]), "").unwrap();
        assert!(matches!(site.resolve(path), Resolution::NotFound), "{path}");
    }
}

#[test]
fn private_file_is_not_found_and_a_missing_one_goes_to_the_front_controller() {
    let private = [
        "composer.json",
        "composer.lock",
        "auth.json",
        "terraform.tfstate",
        "terraform.tfstate.backup",
        "key.pem",
        "data.sqlite",
        "Dump.SQL",
        "a/page.html.bak",
        "a/page.html~",
        "docker-compose.yml",
        "docker-compose.override.yaml",
        "function.zip",
        "phpunit.xml",
        "Makefile",
        "package.json",
        "prod.env",
        "debug.log",
        "vendor/autoload.php",
        "vendor/composer/installed.json",
        "vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php",
        "lib/vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php",
        "vendor/a/demo/index.php",
        "vendor/a/docs/index.html",
        "node_modules/a/README.md",
    ];
    let sent = [
        ".well-known/acme-challenge/x.pem",
        "vendor/jquery/jquery.min.js",
        "node_modules/a/a.css",
        "locales/en/auth.json",
        "stream.key",
        "downloads/manual.zip",
        "readme.html",
        "a/Makefile",
    ];
    let all = [&["index.php"], &private[..], &sent[..]].concat();
    let (dir, site) = site_of(&all, &[]);
    for name in private {
        assert_eq!(says(&site, &format!("/{name}")), "not found", "{name}");
        // A script is found by the beginning of a path.
        if name.ends_with(".php") {
            assert_eq!(
                says(&site, &format!("/{name}/a.css")),
                "not found",
                "{name}"
            );
        }
    }
    for name in sent {
        assert_eq!(says(&site, &format!("/{name}")), format!("file {name}"));
    }
    assert_eq!(says(&site, "/vendor/a/demo/"), "not found");
    assert_eq!(says(&site, "/vendor/a/demo"), "not found");
    assert_eq!(says(&site, "/VENDOR/autoload.php"), "run /index.php");
    for route in [
        "/vendor/17",
        "/export.sql",
        "/api/composer.json",
        "/vendor/",
    ] {
        assert_eq!(says(&site, route), "run /index.php", "{route}");
    }
    symlink("Dump.SQL", dir.path().join("latest.txt")).unwrap();
    assert_eq!(says(&site, "/latest.txt"), "not found");
    fs::write(dir.path().join("tls.key"), "-----BEGIN PRIVATE KEY-----").unwrap();
    assert_eq!(says(&site, "/tls.key"), "not found");
    // A script decides itself what it sends.
    let path = normalize("/Dump.SQL").unwrap();
    let found = site.find_for_script(&path, Instant::now());
    assert!(matches!(found, Resolution::File(_)), "{found:?}");
}

#[test]
fn hidden_setting_adds_and_lifts() {
    let names = [
        "index.php",
        "cron.php",
        "notes.txt",
        "internal/a.txt",
        "internal/run.php",
        "downloads/dump.sql",
        "other/dump.sql",
        "vendor/a/connector.php",
        "vendor/a/other.php",
    ];
    let hidden = [
        "/cron.php",
        "NOTES.*",
        "/internal/",
        "!/downloads/",
        "!/vendor/a/connector.php",
    ];
    let (_dir, site) = site_of(&names, &hidden);
    for (path, expected) in [
        ("/cron.php", "not found"),
        ("/cron.php/x", "not found"),
        ("/notes.txt", "not found"),
        ("/internal/a.txt", "not found"),
        ("/internal/run.php", "not found"),
        ("/downloads/dump.sql", "file downloads/dump.sql"),
        ("/other/dump.sql", "not found"),
        ("/vendor/a/connector.php", "run /vendor/a/connector.php"),
        ("/vendor/a/other.php", "not found"),
        ("/index.php", "run /index.php"),
    ] {
        assert_eq!(says(&site, path), expected, "{path}");
    }
    for wrong in ["x{", "", "# notes", "*.csv["] {
        let settings = format!("hidden = [{wrong:?}]");
        let error = toml::from_str::<Settings>(&settings).unwrap_err();
        assert!(
            error.to_string().contains("is not a .gitignore pattern"),
            "{error}"
        );
    }
}

#[test]
fn vendor_directory_of_public_root_without_composer_is_open() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "public/index.php",
        "public/vendor/filemanager/connector.php",
        "public/vendor/telescope/mix.json",
        "public/dump.sql",
        "composer.json",
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let open = || Site::open(dir.path(), &Settings::default(), None).unwrap();
    let connector = "/vendor/filemanager/connector.php";
    assert_eq!(says(&open(), connector), format!("run {connector}"));
    assert_eq!(
        says(&open(), "/vendor/telescope/mix.json"),
        "file vendor/telescope/mix.json"
    );
    assert_eq!(says(&open(), "/dump.sql"), "not found");
    fs::write(dir.path().join("public/vendor/autoload.php"), "").unwrap();
    assert_eq!(says(&open(), connector), "not found");
}
