//! Tests that files which would cost much memory or time are closed instead.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::cost::{MAX_ITEMS, MAX_PROBLEMS};
use super::*;

const LARGE: &str = "it would take more than 6 MiB";

/// A site with this file and `a.txt`.
fn site(text: &str) -> (tempfile::TempDir, Site) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.txt"), "").unwrap();
    fs::write(dir.path().join(".htaccess"), text).unwrap();
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    (dir, site)
}

/// A site whose directories `a` and `b` have a long file and `x.txt`.
fn site_of_two() -> (tempfile::TempDir, Site) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let directory = dir.path().join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("x.txt"), "").unwrap();
        let text = format!("UnsetEnv{}", " a".repeat(2000));
        fs::write(directory.join(".htaccess"), text).unwrap();
    }
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    (dir, site)
}

fn lines(line: &str, count: usize) -> String {
    format!("{line}\n").repeat(count)
}

#[test]
fn pattern_that_would_take_much_memory_is_not_compiled() {
    for pattern in [
        "(?=(?:a{99}){300})",
        "(a{99}){9999}",
        "(?=.{65535})",
        "((((x{255}){255}){255}){255}){255}",
        &"(?=a)".repeat(700),
    ] {
        for (place, count) in [
            ("RedirectMatch 403 PATTERN", 1),
            ("RewriteRule PATTERN - [F]", 1),
            ("RewriteCond %{REQUEST_URI} PATTERN\nRewriteRule ^ - [F]", 1),
            ("SetEnvIf Request_URI PATTERN x\nRequire env x", 1),
            (
                "<FilesMatch \"PATTERN\">\nRequire all denied\n</FilesMatch>",
                1,
            ),
            ("<Files ~ \"PATTERN\">\nRequire all denied\n</Files>", 1),
            ("RedirectMatch 403 PATTERN", 200),
        ] {
            let place = place.replace("PATTERN", pattern);
            let text = format!("RewriteEngine On\n{}", lines(&place, count));
            let problems = read(&text).problems;
            let named = problems.iter().filter(|one| one.what.contains(LARGE));
            assert_eq!(named.count(), count.min(MAX_PROBLEMS), "{problems:?}");
            let (_dir, site) = site(&text);
            let found = site.resolve("/a.txt");
            assert!(matches!(found, Resolution::Denied(_)), "{place}: {found:?}");
        }
    }
}

/// Without the limit, this takes minutes.
#[test]
fn patterns_that_are_too_large_take_no_time() {
    for line in [
        "RewriteRule (a{99}){9999} -",
        "RewriteRule (?=a{9999}{9}) -",
        "<IfVersion ~ (a{99}){9999}>\n</IfVersion>",
    ] {
        let file = read(&lines(line, 10_000));
        let is_closed = file.is_broken || file.problems.iter().any(|one| one.closes);
        assert!(is_closed, "{line}");
    }
}

#[test]
fn file_whose_patterns_together_take_too_much_is_broken() {
    for line in [
        "RewriteRule ^(a{9}){90}$ -",
        "RewriteRule ^(?!a{99}) -",
        "BrowserMatch bot[0-9]{9} bad",
        // Nothing of these is kept.
        "<IfVersion ~ (?!x)[a-z]{99}>\n</IfVersion>",
        r"RewriteRule (a{99})\1 -",
    ] {
        let file = read(&lines(line, 5000));
        let [problem] = file.problems.as_slice() else {
            panic!("{line}: {:?}", file.problems.len());
        };
        assert!(
            file.is_broken && problem.closes && problem.is_logged,
            "{line}"
        );
        assert!(problem.what.contains("more than 64 MiB"), "{problem:?}");
        assert!(file.blocks.is_empty() && file.rewriting.is_none(), "{line}");
    }
}

#[test]
fn file_with_too_many_directives_or_arguments_is_broken() {
    let many = " a".repeat(MAX_ITEMS);
    let quoted = "\"\"".repeat(MAX_ITEMS);
    let sections = "<Limit GET>\nDeny from all\n</Limit>";
    for text in [
        format!("Allow from{many}"),
        format!("Require env{many}"),
        format!("Require env {quoted}"),
        format!("DirectoryIndex{many}"),
        format!("UnsetEnv{many}"),
        format!("AddType text/plain{many}"),
        format!("SetEnvIf Host x{many}"),
        format!("<RequireAll>\nRequire not env{many}\n</RequireAll>"),
        lines("Options", MAX_ITEMS + 1),
        lines("# x\nRequire all granted", MAX_ITEMS / 3 + 1),
        lines(sections, MAX_ITEMS / 5 + 1),
    ] {
        let file = read(&text);
        let [problem] = file.problems.as_slice() else {
            panic!("{}: {} problems", &text[..20], file.problems.len());
        };
        let says = format!("more than {MAX_ITEMS} directives and arguments");
        assert!(file.is_broken && problem.closes, "{}", &text[..20]);
        assert!(problem.what.contains(&says), "{problem:?}");
        let (_dir, site) = site(&text);
        let found = site.resolve("/a.txt");
        assert!(matches!(found, Resolution::Denied(Denial::BrokenHtaccess)));
    }
}

#[test]
fn usual_lists_are_far_from_the_limits() {
    let text = format!(
        "RewriteEngine On\n{}{}",
        lines(
            "RewriteCond %{HTTP_USER_AGENT} ^Some.?Bad[0-9]+Bot [NC,OR]",
            500
        ),
        lines("Deny from 203.0.113.0/24", 10_000)
    );
    let file = read(&text);
    assert!(!file.is_broken, "{:?}", file.problems);
    let bots = ["SomeBadBot"; 900].join("|");
    for long in [
        format!("RewriteRule ({bots}) - [F]"),
        format!("RewriteRule ({bots}) - [NC,F]"),
        format!("RedirectMatch 403 (?i)({bots})"),
        format!("SetEnvIfNoCase User-Agent ^({bots}) bad"),
    ] {
        assert_eq!(read(&long).problems, []);
    }
}

#[test]
fn problems_are_limited_in_number_and_length() {
    let text = lines(&format!("Deny from {}", "host ".repeat(20)), 100);
    let file = read(&text);
    assert_eq!(file.problems.len(), MAX_PROBLEMS + 1);
    let last = file.problems.last().unwrap();
    assert!(last.what.starts_with("1900 more problems"), "{last:?}");
    assert!(is_closed(&text, "x"));
    let long = format!(
        "Require expr {}\nRequire {}",
        "é".repeat(9000),
        "x".repeat(9000)
    );
    let file = read(&long);
    assert_eq!(file.problems.len(), 2);
    assert!(
        file.problems
            .iter()
            .all(|problem| problem.what.len() < 1100)
    );
}

#[test]
fn lists_beyond_the_memory_of_the_site_deny() {
    let (_dir, mut site) = site_of_two();
    limit(&mut site, SiteMemory::new(1 << 20));
    assert!(matches!(site.resolve("/a/x.txt"), Resolution::File(_)));
    assert!(matches!(
        site.resolve("/b/x.txt"),
        Resolution::Denied(Denial::BrokenHtaccess)
    ));
    assert!(matches!(site.resolve("/a/x.txt"), Resolution::File(_)));
}

#[test]
fn evaluation_that_takes_too_many_steps_is_denied() {
    let cond = "RewriteCond %{REQUEST_FILENAME}x -f\nRewriteRule ^ -";
    let headers = format!("%{{HTTP_COOKIE}}{}", "%{THE_REQUEST}".repeat(5000));
    for text in [
        format!(
            "RewriteEngine On\n{}RewriteRule ^ - [N]",
            lines("RewriteRule ^ -", 9000)
        ),
        format!("RewriteEngine On\n{}", lines(cond, 6000)),
        format!(
            "RewriteEngine On\n{}RewriteRule ^ - [N]",
            lines("RewriteRule (?=x)(?!a)b -", 100)
        ),
        format!(
            "RewriteEngine On\n{}",
            lines("RewriteRule ^ - [E=x:%{ENV:x}%{ENV:x}yyyyyyyy]", 60)
        ),
        format!(
            "RewriteEngine On\n{}",
            lines(&format!("RewriteCond {headers} x"), 12) + "RewriteRule ^ -"
        ),
        format!("DirectoryIndex{}", " none.html".repeat(20_000)),
        (0..9000).map(|n| format!("SetEnv x{n} 1\n")).collect(),
        (0..9000)
            .map(|n| format!("SetEnvIf Host ^ x{n}\n"))
            .collect(),
        format!(
            "RedirectMatch 302 ^(.*)$ /{}",
            "$1".repeat(20_000) + &"x".repeat(100_000)
        ),
        format!(
            "{}{}",
            lines("<If \"x\">\nRequire all granted\n</If>", 2000),
            lines("Allow from 203.0.113.1", 4000)
        ),
        format!(
            "{}{}",
            (0..4000)
                .map(|n| format!("SetEnvIf Host ^ x{n}\n"))
                .collect::<String>(),
            lines("Deny from env=nothing", 4000)
        ),
    ] {
        assert!(!read(&text).is_broken, "{}", &text[..50]);
        let (_dir, site) = site(&text);
        let path = "/a".repeat(2000);
        let found = ["/a.txt", "/", path.as_str()].map(|path| site.resolve(path));
        let is_denied =
            |found: &Resolution| matches!(found, Resolution::Denied(Denial::TooManySteps));
        assert!(found.iter().any(is_denied), "{}: {found:?}", &text[..50]);
    }
}

/// Look-around on so long a text is undecided, and so are its groups.
#[test]
fn condition_on_groups_of_an_undecided_pattern_denies() {
    let long = "a".repeat(3000);
    let (dir, closed) =
        site("RewriteEngine On\nRewriteCond $1 ^admin/\nRewriteRule ^(?!public/)(.+)$ - [F]");
    fs::create_dir(dir.path().join("admin")).unwrap();
    fs::write(dir.path().join("admin/x.php"), "<?php").unwrap();
    for path in ["/admin/x.php", &format!("/admin/x.php/{long}")] {
        let found = closed.resolve(path);
        assert!(
            matches!(found, Resolution::Denied(_)),
            "{path:.20}: {found:?}"
        );
    }
    assert!(matches!(closed.resolve("/a.txt"), Resolution::File(_)));
    let (_dir, closed) = site(
        "RewriteEngine On\nRewriteCond %{HTTP:X-A} ^(?=.)(.*)$\nRewriteCond %1 bad\n\
         RewriteRule ^ - [F]",
    );
    for (value, is_denied) in [
        ("bad", true),
        (&format!("bad{long}"), true),
        ("good", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", value.parse().unwrap());
        let path = normalize("/a.txt").unwrap();
        let found = closed.find_for(&facts(&headers), &path, Instant::now());
        assert_eq!(
            matches!(found, Resolution::Denied(_)),
            is_denied,
            "{value:.20}: {found:?}"
        );
    }
}

/// Threads that need the same file wait for the one that reads it.
#[test]
fn file_is_read_once_for_many_threads() {
    let (_dir, site) = site(&lines("BrowserMatch bot[0-9]{9} bad", 500));
    let htaccess = site.htaccess.as_ref().unwrap();
    let seen = AtomicUsize::new(0);
    let read = || {
        let (merged, _) = htaccess.merged(&site.root, "/a.txt", Instant::now());
        seen.fetch_add(1, Ordering::Relaxed);
        merged
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(seen.into_inner(), 4);
    let file = htaccess.file(&site.root, "", Instant::now(), &|| Err(Unread));
    let file = file.unwrap().unwrap();
    assert!(all.iter().all(|merged| merged.ends_in(&file)));
}

#[test]
fn site_whose_files_take_too_long_to_read_waits() {
    let (_dir, mut site) = site_of_two();
    site.htaccess = Some(Htaccess::new(Arc::new(SiteFiles {
        reading: Mutex::new(ReadingRate::new(1000)),
        ..SiteFiles::default()
    })));
    let now = Instant::now();
    let find = |path: &str, after: u64| {
        let now = now + Duration::from_millis(after);
        site.find(&normalize(path).unwrap(), now)
    };
    assert!(matches!(find("/a/x.txt", 0), Resolution::File(_)));
    assert!(matches!(find("/b/x.txt", 0), Resolution::Failed(_)));
    // It has been read already.
    assert!(matches!(find("/a/x.txt", 0), Resolution::File(_)));
    assert!(matches!(find("/b/x.txt", 1000), Resolution::File(_)));
}

#[test]
fn document_trees_of_a_site_share_its_limits() {
    let (dir, mut site) = site_of_two();
    limit(&mut site, SiteMemory::new(1 << 20));
    let open = |name: &str| Site::open(&dir.path().join(name), &Settings::default(), None);
    let [a, b] = ["a", "b"].map(|name| open(name).unwrap().of_site(&site));
    assert!(matches!(a.resolve("/x.txt"), Resolution::File(_)));
    assert!(matches!(
        b.resolve("/x.txt"),
        Resolution::Denied(Denial::BrokenHtaccess)
    ));
    // The file has been read already.
    assert!(matches!(site.resolve("/a/x.txt"), Resolution::File(_)));
    let other = open("b").unwrap();
    assert!(matches!(other.resolve("/x.txt"), Resolution::File(_)));
}
