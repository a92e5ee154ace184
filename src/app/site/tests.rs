//! Tests of sites and of attempts to bypass their rules.

mod denied;
mod links;
mod start;

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

pub(super) fn nix_fifo(path: &Path) {
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

/// Describes the resolution of a path in one line.
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
        Resolution::Later(_) => "later".into(),
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

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn arbitrary_path_never_leads_out_or_to_a_dot_file(
        raw in raw_path(),
        follow in any::<bool>(),
        uploads in any::<bool>(),
    ) {
        use std::sync::LazyLock;
        static PROJECT: LazyLock<TempDir> = LazyLock::new(project);
        let symlinks = if follow { Symlinks::Follow } else { Symlinks::Inside };
        let uploads = if uploads { vec!["/uploads".to_owned()] } else { Vec::new() };
        let settings = Settings { symlinks, no_php: Some(uploads.clone()), ..Settings::default() };
        for site in sites(&PROJECT, &settings) {
            let filename = match site.resolve(&raw) {
                Resolution::File(found) => {
                    prop_assert!(found.metadata.is_file());
                    let name = found.path.file_name().unwrap().to_str().unwrap();
                    prop_assert!(kind(name) == NameKind::Plain);
                    let text = fs::read_to_string(&found.path).unwrap();
                    // A file's content is its own name; `odd.php` is a directory, too.
                    let name = text.rsplit('/').next().unwrap();
                    prop_assert!(
                        !name.to_lowercase().contains(".php"),
                        "source was sent: {}",
                        text
                    );
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
            let name = Path::new(real.file_name().unwrap());
            let beneath = real.strip_prefix(site.root()).unwrap_or(name);
            let hidden = |name: &std::ffi::OsStr| {
                name.to_string_lossy().starts_with('.') && name != ".well-known"
            };
            prop_assert!(!beneath.iter().any(hidden), "{} is hidden", real.display());
        }
    }
}

/// Paths made of existing names, separators and traversal attempts, with any byte percent-encoded;
/// and noise.
fn raw_path() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            "/", "/", "/", "..", ".", ".env", ".git", ".well-known", "blog", "config", "docs",
            "fifo", "git", "journal", "loop-a", "passwd", "public", "src", "storage", "uploads",
            "ConfigGuard.php", "evil.php", "index.php", "innocent.php", "odd.php", "run.php",
            "x.php", "X2.PHP", "a.txt", "env.txt", "env2.txt", "out.txt", "secret.txt",
            "security.txt", "source.txt", "index.html", "linked.css", "style.css",
        ])
        .prop_map(|name| name.as_bytes().to_vec()),
        1 => prop::sample::select(vec![
            "%2f", "%5c", "\\", "%00", " ", ".", "::$DATA", "~", "%e2%80%8c", "%c3", "%", "?",
        ])
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
