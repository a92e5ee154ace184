//! Tests of document roots, front controllers and invalid settings.

use super::*;

#[test]
fn rare_document_root_is_found_if_it_alone_has_an_index() {
    for name in [
        "public_html",
        "html",
        "htdocs",
        "webroot",
        "pub",
        "p",
        "www",
        "docroot",
        "httpdocs",
        "wwwroot",
        "Web",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let root = || {
            let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
            site.root().to_owned()
        };
        fs::create_dir(dir.path().join(name)).unwrap();
        assert_eq!(root(), real);
        fs::write(dir.path().join(name).join("index.php"), "").unwrap();
        assert_eq!(root(), real.join(name));
        fs::write(dir.path().join("index.php"), "").unwrap();
        assert_eq!(root(), real, "{name} is one directory among others");
    }
}

#[test]
fn other_directories_that_could_be_the_root_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let others = |settings: &Settings| other_roots(dir.path(), settings);
    let put = |name: &str| {
        fs::create_dir_all(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("index.php"), "").unwrap();
    };
    put("htdocs");
    assert!(others(&Settings::default()).is_empty());
    put("html");
    assert_eq!(others(&Settings::default()), ["html/"]);
    put("public");
    assert_eq!(others(&Settings::default()), ["htdocs/", "html/"]);
    let configured = Settings {
        root: Some("html".into()),
        ..Settings::default()
    };
    assert!(others(&configured).is_empty());
    fs::remove_dir_all(dir.path().join("public")).unwrap();
    put(".");
    assert!(others(&Settings::default()).is_empty());
}

#[test]
fn fallback_set_to_false_returns_404_for_missing_files() {
    let settings = Settings {
        fallback: false,
        ..Settings::default()
    };
    check(
        &settings,
        &[
            ("/", "run /index.php"),
            ("/index.php/a", "run /index.php + /a"),
            ("/none", "not found"),
            ("/blog/none", "not found"),
            ("/empty/", "not found"),
            ("/style.css", "file style.css"),
        ],
    );
}

#[test]
fn htaccess_without_a_front_controller_answers_404() {
    let dir = project();
    let public = dir.path().join("public");
    let says_of = |text: &str, path: &str| {
        fs::write(public.join(".htaccess"), text).unwrap();
        let script = Site::open(dir.path(), &Settings::default(), None).unwrap();
        says(&script, path)
    };
    assert_eq!(says_of("Options -Indexes", "/none"), "not found");
    assert_eq!(says_of("Options -Indexes", "/"), "run /index.php");
    let rules = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ x.php [L]";
    assert_eq!(says_of(rules, "/none"), "run /x.php");
    fs::write(public.join("blog/.htaccess"), "RewriteEngine Off").unwrap();
    assert_eq!(says_of(rules, "/blog/none"), "not found");
    // A file of another directory does not count.
    fs::remove_file(public.join(".htaccess")).unwrap();
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    assert_eq!(says(&site, "/none"), "run /index.php");
    assert_eq!(says(&site, "/blog/none"), "not found");
}

#[test]
fn named_script_replaces_the_index_that_rules_lead_to() {
    let dir = project();
    let public = dir.path().join("public");
    let script = public.join("x.php");
    let resolve = |text: &str, path: &str| {
        fs::write(public.join(".htaccess"), text).unwrap();
        let site = Site::open(dir.path(), &Settings::default(), Some(&script)).unwrap();
        says(&site, path)
    };
    let rules =
        "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^ index.php [L]";
    assert_eq!(resolve(rules, "/none"), "run /x.php");
    assert_eq!(resolve("Options -Indexes", "/none"), "run /x.php");
    assert_eq!(resolve("Options -Indexes", "/"), "run /x.php");
    assert_eq!(resolve(rules, "/style.css"), "file style.css");
}

#[test]
fn document_root_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    let open = |root: Option<&str>| {
        let settings = Settings {
            root: root.map(PathBuf::from),
            ..Settings::default()
        };
        Site::open(dir.path(), &settings, None)
    };
    assert_eq!(open(None).unwrap().root(), real);
    assert!(open(None).unwrap().front_controller().is_none());
    fs::create_dir_all(dir.path().join("public")).unwrap();
    assert_eq!(open(None).unwrap().root(), real);
    fs::create_dir_all(dir.path().join("web")).unwrap();
    fs::write(dir.path().join("web/index.php"), "").unwrap();
    assert_eq!(open(None).unwrap().root(), real.join("web"));
    fs::write(dir.path().join("public/index.php"), "").unwrap();
    assert_eq!(open(None).unwrap().root(), real.join("public"));
    assert_eq!(open(Some("web")).unwrap().root(), real.join("web"));
    assert_eq!(open(Some(".")).unwrap().root(), real);
    symlink("web", dir.path().join("current")).unwrap();
    assert_eq!(open(Some("current")).unwrap().root(), real.join("web"));
}

#[test]
fn command_line_script_is_the_front_controller() {
    let dir = project();
    for (script, name) in [
        ("public/blog/index.php", "/blog/index.php"),
        ("src/ConfigGuard.php", "/ConfigGuard.php"),
    ] {
        let script = dir.path().join(script);
        let site = Site::open(dir.path(), &Settings::default(), Some(&script)).unwrap();
        for path in ["/", "/some/route"] {
            let Resolution::Script(found) = site.resolve(path) else {
                panic!()
            };
            assert_eq!(*found.filename, script.canonicalize().unwrap());
            assert_eq!(*found.name, *name);
        }
        assert_eq!(says(&site, "/x.php"), "run /x.php");
    }
}

#[test]
fn invalid_settings_stop_the_start_and_name_the_allowed_values() {
    let dir = project();
    let default = Settings::default;
    let fails = |settings: Settings, script: Option<&str>, text: &str| {
        let script = script.map(|script| dir.path().join(script));
        let error = Site::open(dir.path(), &settings, script.as_deref()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(text), "{error}");
    };
    fails(
        Settings {
            root: Some("none".into()),
            ..default()
        },
        None,
        "/none",
    );
    fails(
        Settings {
            root: Some("secret.txt".into()),
            ..default()
        },
        None,
        "must be a directory",
    );
    fails(
        Settings {
            root: Some("/".into()),
            ..default()
        },
        None,
        "contains the whole system",
    );
    fails(
        Settings {
            index: vec!["a/b.php".into()],
            ..default()
        },
        None,
        "names of files",
    );
    fails(
        Settings {
            index: vec![".x".into()],
            ..default()
        },
        None,
        "names of files",
    );
    fails(
        Settings {
            index: vec!["index.phtml".into()],
            ..default()
        },
        None,
        "end in .php",
    );
    for uploads in ["uploads", "/a/../b", "/", ""] {
        fails(
            Settings {
                no_php: Some(vec![uploads.into()]),
                ..default()
            },
            None,
            "`site.no_php` has",
        );
    }
    fails(default(), Some("none.php"), "none.php");
    fails(default(), Some("src"), "is a directory");
    fails(default(), Some("secret.txt"), "ends in .php");
    let error = toml::from_str::<Settings>("symlinks = \"maybe\"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("`inside`, `owner`, `follow`"), "{error}");
}
