//! Tests of sites and of attempts to get around their rules.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};

use proptest::prelude::*;
use tempfile::TempDir;

use std::time::Duration;

use super::*;

/// A project with a public directory; `secret`, `.env` and the source are outside it.
fn project() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "secret.txt",
        ".env",
        "src/ConfigGuard.php",
        "storage/a.txt",
        "public/index.php",
        "public/x.php",
        "public/X2.PHP",
        "public/old.phtml",
        "public/x.php~",
        "public/conf.inc",
        "public/style.css",
        "public/with space.txt",
        "public/é.txt",
        "public/.env",
        "public/.git/config",
        "public/.well-known/security.txt",
        "public/.well-known/.hidden",
        "public/blog/index.php",
        "public/docs/index.html",
        "public/empty/a.txt",
        "public/odd.php/style.css",
        "public/uploads/evil.php",
        "public/uploads/evil.PHP",
        "public/uploads/index.php",
        "public/uploads/a.png",
        "public/cdk.out/a/x.js",
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let link = |to: &str, name: &str| symlink(to, dir.path().join("public").join(name)).unwrap();
    link("style.css", "linked.css");
    link("blog", "journal");
    link("../secret.txt", "out.txt");
    link("../storage", "storage");
    link(".env", "env.txt");
    link("../.env", "env2.txt");
    link(".git", "git");
    link("cdk.out", "assets");
    link("cdk.out/a/x.js", "id_note");
    link("x.php", "source.txt");
    link("../src/ConfigGuard.php", "secret.txt");
    link("../src/ConfigGuard.php", "run.php");
    link("uploads/evil.php", "innocent.php");
    link("loop-b", "loop-a");
    link("loop-a", "loop-b");
    link("/etc/passwd", "passwd");
    link("nowhere", "dangling");
    nix_fifo(&dir.path().join("public/fifo"));
    nix_fifo(&dir.path().join("public/fifo.php"));
    std::mem::forget(std::os::unix::net::UnixListener::bind(
        dir.path().join("public/socket"),
    ));
    dir
}

fn nix_fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo")
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success());
}

/// The same site with and without `openat2`.
fn sites(dir: &TempDir, settings: &Settings) -> [Site; 2] {
    let with = Site::open(dir.path(), settings, None).unwrap();
    let mut without = Site::open(dir.path(), settings, None).unwrap();
    without.root = without.root.without_openat2();
    [with, without]
}

/// One line that tells what answers a path.
fn says(site: &Site, path: &str) -> String {
    let below = |path: &Path| {
        path.strip_prefix(site.root())
            .unwrap()
            .display()
            .to_string()
    };
    match site.resolve(path) {
        Resolution::File(found) => format!("file {}", below(&found.path)),
        Resolution::Script(s) => {
            assert_eq!(s.root.as_ref(), site.root().to_str().unwrap());
            assert_eq!(*s.filename, site.root().join(&s.name[1..]));
            format!(
                "run {}{}",
                s.name,
                if s.path_info.is_empty() {
                    String::new()
                } else {
                    format!(" + {}", s.path_info.as_encoded_bytes().escape_ascii())
                }
            )
        }
        Resolution::Redirect(to) => format!("to {to}"),
        Resolution::RedirectTo(status, to) => format!("{status} to {to}"),
        Resolution::Status(status, _) => status.to_string(),
        Resolution::NotFound => "not found".into(),
        Resolution::Denied(_) => "denied".into(),
        Resolution::Malformed(_) => "malformed".into(),
        Resolution::Failed(_) => "failed".into(),
    }
}

fn check(settings: &Settings, table: &[(&str, &str)]) {
    let dir = project();
    for site in sites(&dir, settings) {
        for (path, expected) in table {
            assert_eq!(says(&site, path), *expected, "{path} on {site:?}");
        }
    }
}

#[test]
fn files_and_indexes_are_served_and_the_rest_goes_to_the_front_controller() {
    check(
        &Settings::default(),
        &[
            ("/", "run /index.php"),
            ("/index.php", "run /index.php"),
            ("/index.php/a/b", "run /index.php + /a/b"),
            ("/index.php/", "run /index.php + /"),
            ("/x.php", "run /x.php"),
            ("/x.php/extra", "run /x.php + /extra"),
            ("/x.php/.env", "run /x.php + /.env"),
            ("/x.php/a%2fb", "run /x.php + /a/b"),
            ("/%FF/../x.php/a/../%FF/", "run /x.php + /\\xff/"),
            ("/x.php/y.php/z", "run /x.php + /y.php/z"),
            ("/style.css", "file style.css"),
            ("/style.css/", "run /index.php"),
            ("/style.css/x.php", "run /index.php"),
            ("/with%20space.txt", "file with space.txt"),
            ("/%C3%A9.txt", "file é.txt"),
            ("/blog", "to /blog/"),
            ("/blog/", "run /blog/index.php"),
            ("/blog/post", "run /index.php"),
            ("/docs", "to /docs/"),
            ("/docs/", "file docs/index.html"),
            ("/empty", "run /index.php"),
            ("/empty/", "run /index.php"),
            ("/odd.php", "run /index.php"),
            ("/odd.php/style.css", "file odd.php/style.css"),
            ("/api/users/1", "run /index.php"),
            ("/none.php", "run /index.php"),
            ("/none.php/x", "run /index.php"),
            ("/.well-known/security.txt", "file .well-known/security.txt"),
            ("/.well-known/none", "run /index.php"),
            ("/group%2Fproject", "run /index.php"),
            ("/caf%E9", "run /index.php"),
        ],
    );
}

#[test]
fn hidden_files_are_not_served() {
    check(
        &Settings::default(),
        &[
            ("/.env", "not found"),
            ("/.git/config", "not found"),
            ("/%2egit/config", "not found"),
            ("/blog/../.git/config", "not found"),
            ("/.well-known/.hidden", "not found"),
            ("/.well-known/../.env", "not found"),
            ("/.%2fenv", "malformed"),
            ("/X2.PHP", "run /index.php"),
            ("/x.PHP", "run /index.php"),
            ("/x.php.", "run /index.php"),
            ("/x.php%20", "run /index.php"),
            ("/x.php::$DATA", "run /index.php"),
            ("/x.php%00.css", "malformed"),
            ("/old.phtml", "run /index.php"),
            ("/x.php~", "run /index.php"),
            ("/conf.inc", "run /index.php"),
            ("/x.p%E2%80%8Chp", "run /index.php"),
            ("/.php", "not found"),
            ("/..", "malformed"),
            ("/../secret.txt", "malformed"),
            ("/blog/%2e%2e/%2e%2e/secret.txt", "malformed"),
            ("/..%2fsecret.txt", "malformed"),
            ("/..%5csecret.txt", "malformed"),
            ("/%252e%252e/secret.txt", "run /index.php"),
            ("/x.php/caf%E9", "run /x.php + /caf\\xe9"),
            ("//evil.com/..", "run /index.php"),
            ("//docs", "to /docs/"),
            ("/%2fdocs", "run /index.php"),
            ("/\\docs", "run /index.php"),
            ("/fifo", "denied"),
            ("/fifo.php", "denied"),
            ("/socket", "denied"),
        ],
    );
}

#[test]
fn directory_redirect_stays_on_this_host() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["evil.com", "a b", "q?x#y", "é"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("index.html"), "").unwrap();
    }
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    for (path, expected) in [
        ("//evil.com", "to /evil.com/"),
        ("///evil.com", "to /evil.com/"),
        ("/x/..//evil.com", "to /evil.com/"),
        ("//evil.com/%2e", "file evil.com/index.html"),
        ("/a%20b", "to /a%20b/"),
        ("/q%3Fx%23y", "to /q%3Fx%23y/"),
        ("/%C3%A9", "to /%C3%A9/"),
        ("/none", "not found"),
    ] {
        assert_eq!(says(&site, path), expected, "{path}");
    }
}

#[test]
fn overlong_path_is_not_found() {
    let long = format!("/{}", "a".repeat(256));
    let longer = "/a".repeat(5000);
    let scripts = "/a.php".repeat(5000);
    check(
        &Settings::default(),
        &[
            (&long, "run /index.php"),
            (&longer, "run /index.php"),
            (&scripts, "run /index.php"),
        ],
    );
}

#[test]
fn inner_links_are_followed_but_expose_no_hidden_file() {
    for symlinks in [Symlinks::Inside, Symlinks::Owner, Symlinks::Follow] {
        check(
            &Settings {
                symlinks,
                no_php: vec!["/uploads".into()],
                ..Settings::default()
            },
            &[
                ("/linked.css", "file linked.css"),
                ("/journal/", "run /journal/index.php"),
                ("/journal", "to /journal/"),
                ("/env.txt", "run /index.php"),
                ("/git/config", "run /index.php"),
                ("/assets/a/x.js", "not found"),
                ("/id_note", "not found"),
                ("/source.txt", "run /index.php"),
                ("/innocent.php", "denied"),
                ("/loop-a", "run /index.php"),
                ("/dangling", "run /index.php"),
            ],
        );
    }
}

#[test]
fn outer_links_are_followed_as_configured() {
    for (symlinks, out, passwd) in [
        (Symlinks::Inside, false, false),
        (Symlinks::Owner, true, true),
        (Symlinks::Follow, true, true),
    ] {
        let or = |allowed: bool, says: &'static str| if allowed { says } else { "denied" };
        check(
            &Settings {
                symlinks,
                ..Settings::default()
            },
            &[
                ("/out.txt", or(out, "file out.txt")),
                ("/storage/a.txt", or(out, "file storage/a.txt")),
                ("/run.php", or(out, "run /run.php")),
                ("/env2.txt", or(out, "run /index.php")),
                ("/secret.txt", or(out, "run /index.php")),
                // The tests' user owns the link, and is root or does not own the file.
                (
                    "/passwd",
                    or(
                        passwd && (symlinks == Symlinks::Follow || is_root()),
                        "file passwd",
                    ),
                ),
            ],
        );
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn link_of_another_owner_does_not_lead_out() {
    if !is_root() {
        return; // Only root gives files away.
    }
    let dir = project();
    let public = dir.path().join("public");
    symlink("../storage/a.txt", public.join("theirs.txt")).unwrap();
    symlink("../storage", public.join("uploads/deep")).unwrap();
    for link in ["theirs.txt", "uploads/deep", "passwd"] {
        lchown(public.join(link), Some(4711), Some(4711)).unwrap();
    }
    for site in sites(&dir, &Settings::default()) {
        assert_eq!(says(&site, "/theirs.txt"), "denied");
        assert_eq!(says(&site, "/uploads/deep/a.txt"), "denied");
        assert_eq!(says(&site, "/passwd"), "denied");
        assert_eq!(says(&site, "/storage/a.txt"), "file storage/a.txt");
        let Resolution::Denied(denial) = site.resolve("/theirs.txt") else {
            panic!()
        };
        assert!(denial.why().contains("symlinks = \"follow\""));
    }
    chown(dir.path().join("storage/a.txt"), Some(4711), Some(4711)).unwrap();
    for site in sites(&dir, &Settings::default()) {
        assert_eq!(says(&site, "/theirs.txt"), "file theirs.txt");
        // The directory that the link leads to belongs to another user; the file need not.
        assert_eq!(says(&site, "/uploads/deep/a.txt"), "denied");
    }
}

#[test]
fn files_that_kubernetes_mounts_through_dotted_links_are_served() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("..2025_01_01")).unwrap();
    fs::write(dir.path().join("..2025_01_01/a.txt"), "").unwrap();
    symlink("..2025_01_01", dir.path().join("..data")).unwrap();
    symlink("..data/a.txt", dir.path().join("a.txt")).unwrap();
    for site in sites(&dir, &Settings::default()) {
        assert_eq!(says(&site, "/a.txt"), "file a.txt");
        assert_eq!(says(&site, "/..data/a.txt"), "not found");
    }
}

#[test]
fn uploaded_php_is_neither_run_nor_sent() {
    check(
        &Settings {
            no_php: vec!["/uploads/".into()],
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

/// A site of these files, with patterns for `hidden`.
fn site_of(names: &[&str], hidden: &[&str]) -> (TempDir, Site) {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let settings = Settings {
        hidden: hidden.iter().map(|pattern| pattern.to_string()).collect(),
        ..Settings::default()
    };
    let site = Site::open(dir.path(), &settings, None).unwrap();
    (dir, site)
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
    for wrong in ["x{", "", "# notes"] {
        let settings = format!("hidden = [{wrong:?}]");
        let error = toml::from_str::<Settings>(&settings).unwrap_err();
        assert!(error.to_string().contains("is no pattern"), "{error}");
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

#[test]
fn rare_document_root_is_found_if_it_alone_has_an_index() {
    for name in ["public_html", "html", "htdocs", "webroot", "pub", "p"] {
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
fn fallback_set_to_false_answers_404_for_what_is_missing() {
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
fn found_script_is_cached_for_a_second_and_a_missing_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), "").unwrap();
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    let start = Instant::now();
    let says = |after| {
        let path = normalize("/new.php/x").unwrap();
        match site.find(&path, start + Duration::from_millis(after)) {
            Resolution::Script(script) => {
                format!("{} + {}", script.name, script.path_info.display())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(says(0), "/index.php + ");
    std::fs::write(dir.path().join("new.php"), "").unwrap();
    assert_eq!(says(0), "/new.php + /x");
    std::fs::remove_file(dir.path().join("new.php")).unwrap();
    assert_eq!(says(999), "/new.php + /x");
    assert_eq!(says(1000), "/index.php + ");
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
        "holds everything",
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
                no_php: vec![uploads.into()],
                ..default()
            },
            None,
            "`uploads` has",
        );
    }
    fails(default(), Some("none.php"), "none.php");
    fails(default(), Some("src"), "is a directory");
    fails(default(), Some("secret.txt"), "something.php");
    let error = toml::from_str::<Settings>("symlinks = \"maybe\"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("`inside`, `owner`, `follow`"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn arbitrary_path_never_leads_out_or_to_a_dot_file(raw in raw_path(), follow in any::<bool>(), uploads in any::<bool>()) {
        use std::sync::LazyLock;
        static PROJECT: LazyLock<TempDir> = LazyLock::new(project);
        let symlinks = if follow { Symlinks::Follow } else { Symlinks::Inside };
        let uploads = if uploads { vec!["/uploads".to_owned()] } else { Vec::new() };
        let settings = Settings { symlinks, no_php: uploads.clone(), ..Settings::default() };
        for site in sites(&PROJECT, &settings) {
            let filename = match site.resolve(&raw) {
                Resolution::File(found) => {
                    prop_assert!(found.metadata.is_file());
                    prop_assert!(kind(found.path.file_name().unwrap().to_str().unwrap()) == Kind::Plain);
                    let text = fs::read_to_string(&found.path).unwrap();
                    // A file's content is its own name; `odd.php` is a directory, too.
                    let name = text.rsplit('/').next().unwrap();
                    prop_assert!(!name.to_lowercase().contains(".php"), "source was sent: \
                        {}", text);
                    found.path
                }
                Resolution::Script(script) => {
                    prop_assert!(script.name.ends_with(".php") && script.name.starts_with('/'));
                    prop_assert!(uploads.is_empty() || !script.name.contains("upload"));
                    prop_assert!(script.filename.is_file());
                    script.filename.to_path_buf()
                }
                Resolution::Redirect(to) => {
                    prop_assert!(to.starts_with('/') && !to.starts_with("//") && to.ends_with('/'));
                    continue;
                }
                _ => continue,
            };
            prop_assert!(filename.starts_with(site.root()));
            let real = filename.canonicalize().unwrap();
            prop_assert!(follow || real.starts_with(site.root()), "{} is outside", real.display());
            let beneath = real.strip_prefix(site.root()).unwrap_or(Path::new(real.file_name().unwrap()));
            let hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.') && name != ".well-known";
            prop_assert!(!beneath.iter().any(hidden), "{} is hidden", real.display());
        }
    }
}

/// Paths made of existing names, of separators and of tricks, any byte percent-encoded; and noise.
fn raw_path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            "/", "/", "/", "index.php", "x.php", "X2.PHP", "style.css", "uploads", "evil.php", "blog", "docs", "index.html",
            "odd.php", ".well-known", "security.txt", "storage", "a.txt", "out.txt", "env.txt", "env2.txt", "git", "config",
            "source.txt", "secret.txt", "run.php", "innocent.php", "passwd", "journal", "loop-a", "fifo", "public", "src",
            "ConfigGuard.php", ".env", ".git", "..", ".", "linked.css",
        ])
        .prop_map(|name| name.as_bytes().to_vec()),
        1 => prop::sample::select(vec!["%2f", "%5c", "\\", "%00", " ", ".", "::$DATA", "~", "%e2%80%8c", "%c3", "%", "?"])
            .prop_map(|trick| trick.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    let encoded = (piece, any::<u64>()).prop_map(|(bytes, mask)| {
        let mut text = String::new();
        for (at, byte) in bytes.iter().enumerate() {
            let keep = byte.is_ascii() && (*byte == b'%' || mask >> (at % 60) & 7 != 0);
            if keep {
                text.push(char::from(*byte));
            } else {
                text.push_str(&format!("%{byte:02x}"));
            }
        }
        text
    });
    prop::collection::vec(encoded, 0..10).prop_map(|pieces| format!("/{}", pieces.concat()))
}
