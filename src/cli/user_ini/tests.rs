//! Tests which .user.ini files a booted engine does not read, and what that means.

use super::*;
use crate::app::site::Settings;

#[test]
fn nearest_user_ini_value_applies() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    std::fs::create_dir_all(root.join("app")).unwrap();
    let set = |directory: &str, text: &str| {
        std::fs::write(root.join(directory).join(".user.ini"), text).unwrap();
    };
    let value =
        |script: &str, name: &str| value(root, &root.join(script), name, "auto_prepend_file");
    assert_eq!(value("index.php", ".user.ini"), None);
    set(
        "",
        "; auto_prepend_file = no.php\n auto_prepend_file='a b.php' ; so\n",
    );
    assert_eq!(value("app/index.php", ".user.ini").unwrap(), "a b.php");
    assert_eq!(value("app/index.php", ""), None);
    set(
        "app",
        "auto_prepend_file = first.php\nauto_prepend_file = waf.php ; so\n",
    );
    assert_eq!(value("app/index.php", ".user.ini").unwrap(), "waf.php");
    assert_eq!(value("index.php", ".user.ini").unwrap(), "a b.php");
    let outside = value("../boot.php", ".user.ini");
    assert_eq!(outside.unwrap(), "a b.php");
    set("app", "auto_prepend_file = none");
    assert_eq!(value("app/index.php", ".user.ini").unwrap(), "");
}

#[test]
fn user_ini_files_off_the_path_to_the_script_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let root = &dir.path().canonicalize().unwrap();
    for directory in ["public/admin/deep", "public/blog", "other"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    for file in [
        "public",
        "public/admin",
        "public/admin/deep",
        "public/blog",
        "other",
    ] {
        std::fs::write(root.join(file).join(".user.ini"), "").unwrap();
    }
    let unread = |script: &str, name: &str| -> Vec<String> {
        let public = root.join("public");
        let settings = Settings {
            root: Some("public".into()),
            ..Settings::default()
        };
        let site = Site::open(root, &settings, None).unwrap();
        let found = unread(&site, &root.join(script), name, later());
        assert_eq!((found.stopped_by, found.unreadable), (None, Vec::new()));
        let files = found.files.iter();
        let inside = files.map(|file| file.strip_prefix(&public).unwrap());
        inside.map(|file| file.display().to_string()).collect()
    };
    assert_eq!(
        unread("public/admin/index.php", ".user.ini"),
        ["admin/deep/.user.ini", "blog/.user.ini"]
    );
    // For a script outside the document root, the root's own file counts.
    assert_eq!(unread("other/boot.php", ".user.ini").len(), 3);
    assert!(unread("public/index.php", "").is_empty());
    assert!(unread("public/index.php", "other.ini").is_empty());
    // PHP reads the file behind a link, too.
    std::os::unix::fs::symlink("../other", root.join("public/linked")).unwrap();
    let linked = unread("public/index.php", ".user.ini");
    assert_eq!(linked.last().unwrap(), "linked/.user.ini");
    assert_eq!(unread("other/boot.php", ".user.ini").len(), 3);
}

#[test]
fn user_ini_of_directories_in_which_no_script_runs_is_not_missed() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let public = dir.path().canonicalize().unwrap().join("public");
    for name in [
        "api",
        "uploads/2026",
        "UPLOADS",
        "uploads-of-staff",
        "internal/deep",
        "cdk.out/a",
        ".git",
        ".well-known",
    ] {
        std::fs::create_dir_all(public.join(name)).unwrap();
        std::fs::write(public.join(name).join(".user.ini"), "").unwrap();
    }
    std::fs::write(public.join("index.php"), "<?php").unwrap();
    symlink("uploads", public.join("pictures")).unwrap();
    let unread = |settings: Settings| -> Vec<String> {
        let site = Site::open(dir.path(), &settings, None).unwrap();
        let found = unread(&site, &public.join("index.php"), ".user.ini", later());
        assert_eq!((found.stopped_by, found.unreadable), (None, Vec::new()));
        let directories = found.files.iter().map(|file| file.parent().unwrap());
        let inside = directories.map(|path| path.strip_prefix(&public).unwrap());
        inside.map(|path| path.display().to_string()).collect()
    };
    let settings = |hidden: &[&str]| Settings {
        no_php: Some(vec!["/uploads".to_owned()]),
        hidden: hidden.iter().map(|pattern| (*pattern).to_owned()).collect(),
        ..Settings::default()
    };
    let found = unread(settings(&["/internal/"]));
    assert_eq!(found, [".well-known", "api", "uploads-of-staff"]);
    // A script below it may be shown.
    let found = unread(settings(&["/internal/", "!/internal/deep/shown.php"]));
    assert!(found.contains(&"internal/deep".to_owned()), "{found:?}");
    let found = unread(Settings::default());
    assert!(found.contains(&"uploads/2026".to_owned()), "{found:?}");
    let found = unread(Settings {
        files: false,
        ..Settings::default()
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn search_that_takes_too_long_says_so() {
    let project = project_with_pools();
    let site = Site::open(project.path(), &Settings::default(), None).unwrap();
    let script = site.root().join("index.php");
    let found = unread(&site, &script, ".user.ini", Instant::now());
    assert_eq!(found.stopped_by, Some(WalkLimit::Time));
    assert!(found.files.is_empty());
}

#[test]
fn user_ini_of_a_directory_that_a_rule_sends_to_another_pool_is_not_missed() {
    use crate::app::site::routes::RouteRule;
    let rule = |prefix: &str, engine: &str| RouteRule {
        prefix: Some(prefix.to_owned()),
        engine: Some(engine.to_owned()),
        ..RouteRule::default()
    };
    let denied = RouteRule {
        prefix: Some("/denied/".to_owned()),
        deny: true,
        ..RouteRule::default()
    };
    let of_get = RouteRule {
        methods: Some(vec!["GET".to_owned()]),
        ..rule("/get/", "classic")
    };
    let rules = [
        rule("/admin/", "classic"),
        rule("/api/", "rewind"),
        rule("/other/index.php", "classic"),
        of_get,
        denied,
    ];
    let routes = Routes::new(&rules, &Settings::default()).unwrap();
    let root = Path::new("/srv/app");
    for (file, pool, expected) in [
        ("admin/.user.ini", "rewind", true),
        ("admin/deep/.user.ini", "shop/rewind", true),
        ("admin/.user.ini", "shop/classic", false),
        ("api/.user.ini", "rewind", false),
        ("denied/.user.ini", "rewind", true),
        ("other/.user.ini", "rewind", false),
        ("get/.user.ini", "rewind", false),
        (".user.ini", "rewind", false),
    ] {
        let found = is_for_another(&routes, root, &root.join(file), pool, true);
        assert_eq!(found, expected, "{file} {pool}");
    }
    for (file, expected) in [("api/.user.ini", false), ("blog/.user.ini", true)] {
        let found = is_for_another(&routes, root, &root.join(file), "rewind", false);
        assert_eq!(found, expected, "{file}");
    }
}

/// Whatever host, header or script they are for, unless all requests below go elsewhere before.
#[test]
fn rules_with_conditions_may_lead_to_a_pool() {
    let rule = |prefix: &str, engine: &str| RouteRule {
        prefix: Some(prefix.to_owned()),
        engine: Some(engine.to_owned()),
        ..RouteRule::default()
    };
    let by_header = |prefix: &str, engine: &str| RouteRule {
        header: Some("x-api".to_owned()),
        ..rule(prefix, engine)
    };
    let headers_only = RouteRule {
        prefix: Some("/sub/".to_owned()),
        ..RouteRule::default()
    };
    for (rules, expected) in [
        (vec![], false),
        (vec![rule("/sub/", "api")], true),
        (vec![rule("/sub/admin", "api")], true),
        (vec![rule("/other/", "api")], false),
        (vec![rule("/sub/", "classic"), rule("/", "api")], false),
        (vec![by_header("/", "api")], true),
        (vec![by_header("/", "classic"), rule("/", "api")], true),
        (vec![rule("/", "classic"), by_header("/sub/", "api")], false),
        (vec![headers_only, by_header("/sub/deep/", "api")], true),
        (vec![by_header("/other/", "api")], false),
    ] {
        let file = Path::new("/srv/app/sub/.user.ini");
        let found = may_lead_to(&rules, Path::new("/srv/app"), file, "shop/api");
        assert_eq!(found, expected, "{rules:?}");
    }
}

#[test]
fn pool_of_a_route_does_not_miss_files_of_the_main_pool() {
    let project = project_with_pools();
    let pools = pools_of(project.path());
    let (main, api) = (&pools[0], &pools[1]);
    assert_eq!((main.name, api.name), ("classic", "rewind"));
    assert!(unread_by(project.path(), main, true, &report()).is_none());
    let found = unread_by(project.path(), api, false, &report()).unwrap();
    assert_eq!(found.limit(), None);
    assert_eq!(found.files.len(), 1, "{:?}", found.files);
    assert!(found.files[0].ends_with("public/api/.user.ini"));
    let obstacle = found.obstacle().unwrap();
    let expected = "public/api/.user.ini sets auto_prepend_file (waf.php), which would not run: ";
    assert!(obstacle.contains(expected), "{obstacle}");
}

#[test]
fn setting_that_applies_to_every_request_is_no_obstacle() {
    let project = project_with_pools();
    let public = project.path().join("public");
    let obstacle = |of_directory: &str, of_root: &str, of_php: &str| {
        for (directory, text) in [("api", of_directory), ("", of_root)] {
            std::fs::write(public.join(directory).join(".user.ini"), text).unwrap();
        }
        let report = format!("user_ini.filename=.user.ini\nauto_prepend_file={of_php}\n");
        let (pools, report) = (pools_of(project.path()), Report::read(&report));
        let found = unread_by(project.path(), &pools[1], false, &report).unwrap();
        found.obstacle().is_some()
    };
    for (of_directory, of_root, of_php, expected) in [
        ("auto_prepend_file = /a.php", "", "", true),
        ("auto_append_file = /a.php", "", "/a.php", true),
        ("auto_prepend_file = /a.php", "", "/a.php", false),
        ("auto_prepend_file = a.php", "", "a.php", true),
        (
            "auto_prepend_file = '/a.php'",
            "auto_prepend_file = /a.php",
            "/b.php",
            false,
        ),
        (
            "auto_prepend_file = /a.php",
            "auto_prepend_file = /b.php",
            "/a.php",
            true,
        ),
        ("auto_prepend_file = Off ; so", "", "/a.php", false),
        ("precision = 9", "", "/a.php", false),
    ] {
        let found = obstacle(of_directory, of_root, of_php);
        assert_eq!(found, expected, "{of_directory} {of_root} {of_php}");
    }
}

#[test]
fn user_ini_that_cannot_be_opened_is_reported_as_not_examined() {
    let project = project_with_pools();
    let file = project.path().join("public/api/.user.ini");
    std::fs::remove_file(&file).unwrap();
    // Not a regular file, so root cannot read it either.
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    let pools = pools_of(project.path());
    let found = unread_by(project.path(), &pools[1], false, &report()).unwrap();
    let limit = found.limit().unwrap();
    assert!(
        limit.ends_with(
            "public/api/.user.ini cannot be read; .user.ini files there were not examined"
        ),
        "{limit}"
    );
}

#[test]
fn script_that_cannot_be_opened_is_reported() {
    let project = project_with_pools();
    let pools = pools_of(project.path());
    std::fs::remove_file(project.path().join("public/index.php")).unwrap();
    let found = unread_by(project.path(), &pools[1], false, &report()).unwrap();
    assert!(found.files.is_empty());
    // A reload of a release at another place is such a case: Landlock keeps the front end from it.
    assert!(found.limit().is_some() && found.obstacle().is_none());
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn report() -> Report {
    Report::read("user_ini.filename=.user.ini\n")
}

/// A project whose main pool boots no script, and one of a route does.
fn project_with_pools() -> tempfile::TempDir {
    let project = tempfile::tempdir().unwrap();
    for directory in ["public/api", "public/blog"] {
        let directory = project.path().join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        let text = "auto_prepend_file = waf.php\n";
        std::fs::write(directory.join(".user.ini"), text).unwrap();
    }
    std::fs::write(project.path().join("public/index.php"), "<?php").unwrap();
    project
}

fn pools_of(project: &Path) -> Vec<PoolConfig> {
    let config = "[engine]\nname = \"classic\"\n\
        [[route]]\nprefix = \"/api/\"\nengine = \"rewind\"\n";
    let config = toml::from_str(config).unwrap();
    engine_setup::pools(project, &config, &[]).unwrap()
}
