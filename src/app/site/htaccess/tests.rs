//! Tests of merging, caching and denying, without a server.

use std::fs;
use std::time::Duration;

use http::HeaderMap;

use super::super::{Denial, Resolution, Settings, Site};
use super::facts::{Env, Facts};
use super::*;
use crate::app::site::normalize;
use crate::app::site::tests::nix_fifo;

mod firewalls;
mod hostile;
mod ignored;
mod media_types;
mod shortage;
mod uncertain;

fn read(text: &str) -> HtaccessFile {
    super::read(text, &SiteMemory::default())
}

fn facts(none: &HeaderMap) -> Facts<'_> {
    Facts::of_get("/", None, none)
}

fn merged(text: &str) -> MergedRules {
    MergedRules::below(None, "/", Arc::new(read(text)), &SiteMemory::default())
}

/// Limits a site to this memory.
fn limit(site: &mut Site, memory: SiteMemory) {
    site.htaccess = Some(Htaccess::new(Arc::new(SiteFiles {
        memory,
        ..SiteFiles::default()
    })));
}

fn is_closed(text: &str, name: &str) -> bool {
    let none = HeaderMap::new();
    let merged = merged(text);
    let facts = facts(&none);
    let rules = merged.for_file(name, &facts.steps);
    rules.check(&facts, &Env::default()).is_err()
}

#[test]
fn unevaluable_directive_denies_and_is_reported_with_its_line() {
    for (text, line, says) in [
        ("\nRequire valid-user", 2, "requires a password"),
        ("Require expr true", 1, "expr is not evaluated"),
        ("Require host example.org", 1, "host is not evaluated"),
        (
            "Order deny,allow\nDeny from evil.example.org",
            2,
            "is a host name",
        ),
        (
            "<If \"%{HTTP_HOST} == 'x'\">\nDeny from all\n</If>",
            1,
            "is not evaluated",
        ),
        (
            "<FilesMatch \"\\p{L}\">\nRequire all denied\n</FilesMatch>",
            1,
            "cannot be evaluated",
        ),
        (
            "RewriteEngine On\n<Files x>\nRewriteRule . - [F]\n</Files>",
            3,
            "rules in sections",
        ),
        ("SetEnvIfExpr x y\nRequire all denied", 1, "expressions"),
    ] {
        let file = read(text);
        let found = file.problems.first().unwrap_or_else(|| panic!("{text}"));
        assert!(found.line == line && found.what.contains(says), "{found:?}");
        assert!(is_closed(text, "x"), "{text}");
    }
}

#[test]
fn auto_prepend_file_is_reported_and_denies_no_file() {
    let text = "<IfModule mod_php7.c>\nphp_value auto_prepend_file '/srv/waf.php'\n</IfModule>\n\
                php_value auto_append_file none";
    let file = read(text);
    let [problem] = file.problems.as_slice() else {
        panic!("{:?}", file.problems);
    };
    assert!(problem.line == 2 && problem.is_logged && !problem.closes);
    assert!(problem.what.contains("/srv/waf.php") && problem.what.contains(".user.ini"));
    assert!(!is_closed(text, "x"));
}

#[test]
fn client_without_an_address_is_denied() {
    for text in [
        "Require ip 10.0.0.1",
        "Require local",
        "<RequireAll>\nRequire all granted\nRequire not ip 10.0.0.1\n</RequireAll>",
        "Order allow,deny\nAllow from 10.0.0.1",
        "Order allow,deny\nAllow from all\nDeny from 10.0.0.1",
    ] {
        assert!(is_closed(text, "x"), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.txt"), "").unwrap();
    for text in [
        "SetEnvIf Remote_Addr ^203\\. bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
        "SetEnvIf Remote_Host ^203\\. bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
        "SetEnvIf Server_Addr ^203\\. bad\nOrder allow,deny\nAllow from all\nDeny from env=bad",
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} ^203\\.\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} =203.0.113.1\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteCond %{IPV6} on\nRewriteRule ^ - [F]",
        "RewriteEngine On\nRewriteCond x%{SERVER_ADDR} ^x203\\.\nRewriteRule ^ - [F]",
        // The exemption is for clients with an address.
        "RewriteEngine On\nRewriteCond %{REMOTE_ADDR} !^203\\.\nRewriteRule ^ - [L]\nRewriteRule ^ \
         - [F]",
        "RewriteEngine On\nRewriteRule ^ - [E=ip:%{REMOTE_ADDR}]\nRewriteCond %{ENV:ip} \
         ^203\nRewriteRule ^ - [F]",
    ] {
        fs::write(dir.path().join(".htaccess"), text).unwrap();
        let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
        let found = site.resolve("/a.txt");
        assert!(matches!(found, Resolution::Denied(_)), "{text}: {found:?}");
    }
}

#[test]
fn unevaluable_rule_denies_its_urls_and_exempts_none() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for name in ["index.php", "a.txt", "b.txt", "c.txt", "d.txt"] {
        fs::write(root.join(name), "").unwrap();
    }
    let rules = "RewriteEngine On\n\
        RewriteCond %{LA-U:REMOTE_USER} ^$\nRewriteRule ^a - [F]\n\
        RewriteCond %{TIME_HOUR} >12\nRewriteRule ^b - [L]\nRewriteRule ^b - [F]\n\
        RewriteCond ${map:x} y\nRewriteCond %{REQUEST_METHOD} POST\nRewriteRule ^c - [F]\n\
        RewriteRule ^d$ http://127.0.0.1:1/ [P]\n";
    fs::write(root.join(".htaccess"), rules).unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    let denied = |path: &str| matches!(site.resolve(path), Resolution::Denied(_));
    assert!(denied("/a.txt"));
    assert!(denied("/b.txt"));
    // The other condition certainly does not hold.
    assert!(!denied("/c.txt"));
    assert!(denied("/d"));
    assert!(!denied("/d.txt"));
    assert_eq!(read(rules).problems.len(), 4);
}

/// Apache answers 500 for such a file.
#[test]
fn pattern_that_pcre_rejects_denies_and_is_reported_wherever_it_stands() {
    for pattern in [
        "a**",
        "^*",
        r"[\w-.]",
        r"[a-\d]",
        "[[:foo:]]",
        "a{3,2}",
        "(?u)a",
        r"\p{L}",
        "(?<=a*)",
        "(?<=(a|b)+)",
        "(?(1)a)",
        "(?()a)",
        "(a)?(?(1)a|b|c)",
        "(?<1a>b)",
        r"(?x)[\w-.]",
    ] {
        for (line, place) in [
            (
                1,
                "<FilesMatch \"PATTERN\">\nRequire all denied\n</FilesMatch>",
            ),
            (1, "<Files ~ \"PATTERN\">\nDeny from all\n</Files>"),
            (
                2,
                "Require all denied\n<FilesMatch \"PATTERN\">\nRequire all granted\n</FilesMatch>",
            ),
            (2, "RewriteEngine On\nRewriteRule PATTERN - [F]"),
            (2, "RewriteEngine On\nRewriteRule !PATTERN - [F]"),
            (
                2,
                "RewriteEngine On\nRewriteRule PATTERN - [L]\nRewriteRule ^ - [F]",
            ),
            (
                2,
                "RewriteEngine On\nRewriteCond %{REQUEST_URI} PATTERN\nRewriteRule ^ - [F]",
            ),
            (1, "RedirectMatch 403 PATTERN"),
            (
                1,
                "SetEnvIf Request_URI PATTERN x\nOrder allow,deny\nAllow from all\nDeny from env=x",
            ),
            (1, "SetEnvIf Request_URI PATTERN x\nRequire env x"),
            (1, "BrowserMatch PATTERN x\nRequire env x"),
            (1, "<IfVersion ~ PATTERN>\nRequire all denied\n</IfVersion>"),
        ] {
            let text = place.replace("PATTERN", pattern);
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("a.txt"), "").unwrap();
            fs::write(dir.path().join(".htaccess"), &text).unwrap();
            let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
            let found = site.resolve("/a.txt");
            assert!(matches!(found, Resolution::Denied(_)), "{text}");
            let problems = read(&text).problems;
            assert!(
                problems.iter().any(|one| one.line == line && one.closes),
                "{text} {problems:?}"
            );
        }
    }
}

#[test]
fn too_long_or_unreadable_file_denies() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir(root.join("long")).unwrap();
    fs::write(root.join("long/a.txt"), "").unwrap();
    fs::write(root.join("long/.htaccess"), "#\n".repeat(1 << 20)).unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    let found = site.resolve("/long/a.txt");
    assert!(matches!(found, Resolution::Denied(Denial::BrokenHtaccess)));
}

#[test]
fn file_is_parsed_again_only_after_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/.htaccess"), "Require all denied").unwrap();
    fs::write(root.join("a/b/x.txt"), "").unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    let htaccess = site.htaccess.as_ref().unwrap();
    let now = Instant::now();
    let at = |after: u64| now + Duration::from_millis(after);
    let merged = |after| htaccess.merged(&site.root, "/a/b/x.txt", at(after));
    let (first, end) = merged(0);
    assert_eq!(end, "/a/b/".len());
    let (same, _) = merged(2000);
    assert!(Arc::ptr_eq(&first, &same), "nothing has changed");
    let find = |after| site.find(&normalize("/a/b/x.txt").unwrap(), at(after));
    assert!(matches!(
        find(2000),
        Resolution::Denied(Denial::DeniedByHtaccess)
    ));
    fs::write(root.join("a/.htaccess"), "# Require all granted").unwrap();
    // Look-ups of the last second are cached.
    assert!(matches!(find(2999), Resolution::Denied(_)));
    assert!(matches!(find(3000), Resolution::File(_)));
    fs::remove_file(root.join("a/.htaccess")).unwrap();
    fs::write(root.join(".htaccess"), "Deny from all").unwrap();
    assert!(matches!(find(4000), Resolution::Denied(_)));
}

#[test]
fn new_directory_with_htaccess_is_denied_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join(".htaccess"), "DirectoryIndex index.html").unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    let now = Instant::now();
    let find = || site.find(&normalize("/new/below/x.txt").unwrap(), now);
    assert!(matches!(find(), Resolution::NotFound));
    fs::create_dir_all(root.join("new/below")).unwrap();
    fs::write(root.join("new/below/x.txt"), "").unwrap();
    fs::write(root.join("new/.htaccess"), "Require all denied").unwrap();
    assert!(matches!(
        find(),
        Resolution::Denied(Denial::DeniedByHtaccess)
    ));
}

#[test]
fn non_file_in_place_of_htaccess_denies() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join(".rules"), "Require all denied").unwrap();
    fs::write(root.join("rules.php"), "Require all denied").unwrap();
    for (name, target) in [
        ("dot", Some("../.rules")),
        ("php", Some("../rules.php")),
        ("is", None),
        ("fifo", None),
    ] {
        let directory = root.join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("x.txt"), "").unwrap();
        match target {
            Some(target) => std::os::unix::fs::symlink(target, directory.join(".htaccess")),
            None if name == "fifo" => {
                nix_fifo(&directory.join(".htaccess"));
                Ok(())
            }
            None => fs::create_dir(directory.join(".htaccess")),
        }
        .unwrap();
    }
    for strict in [true, false] {
        let mut site = Site::open(root, &Settings::default(), None).unwrap();
        if !strict {
            site.root = site.root.without_openat2();
        }
        for name in ["dot", "php", "is", "fifo"] {
            let found = site.resolve(&format!("/{name}/x.txt"));
            assert!(matches!(found, Resolution::Denied(_)), "{name}: {found:?}");
        }
        let found = site.resolve("/dot/.htaccess");
        assert!(matches!(found, Resolution::NotFound), "{found:?}");
    }
}

#[test]
fn source_of_php_is_not_sent_where_php_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join("x.php"), "<?php").unwrap();
    fs::write(root.join("page.html"), "<?php").unwrap();
    let text = "php_flag engine off\nAddType application/x-httpd-php .html";
    fs::write(root.join(".htaccess"), text).unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    for path in ["/x.php", "/x.php/y", "/page.html"] {
        assert!(
            matches!(site.resolve(path), Resolution::Denied(Denial::PhpOff)),
            "{path}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_file_is_read_and_denials_below_it_hold(
        lines in proptest::collection::vec(proptest::sample::select(vec![
            "Require all granted", "Allow from all", "Order deny,allow", "Satisfy \
                any", "RewriteEngine On", "RewriteRule . - [L]",
            "RewriteRule ^(.*)$ x/$1 [N]", "RewriteCond %{REQUEST_FILENAME} !-f \
                [OR]", "RewriteRule ^ /index.php [L]", "SetHandler none",
            "<Files *>", "</Files>", "<IfModule \
                x>", "</IfModule>", "<RequireAny>", "</RequireAny>", "Redirect /a \
                /b", "RewriteRule ( - [F]",
            "FallbackResource /a.txt", "DirectoryIndex a.txt", "RewriteRule ^a /b.txt \
                [C]", "RewriteRule ^b b/b/b", "<If true>", "</If>",
        ]), 0..12),
        path in "/(a|b|\\.|/|x|%2e|\\?){0,8}",
    ) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("closed")).unwrap();
        fs::write(root.join("closed/a.txt"), "").unwrap();
        let closed = "<RequireAll>\nRequire all denied\n</RequireAll>\nSatisfy all\nDeny from all";
        fs::write(root.join("closed/.htaccess"), closed).unwrap();
        fs::write(root.join("a.txt"), "").unwrap();
        fs::write(root.join(".htaccess"), lines.join("\n")).unwrap();
        let site = Site::open(root, &Settings::default(), None).unwrap();
        let _ = site.resolve(&path);
        // As in Apache, sections about names apply after those of directories.
        let opens = lines.iter().any(|line| line.starts_with("<Files"));
        let found = site.resolve("/closed/a.txt");
        let is_sent = matches!(
            found,
            Resolution::File(ref found) if found.path.ends_with("closed/a.txt")
        );
        proptest::prop_assert!(opens || !is_sent, "{:?}", lines);
    }
}

#[test]
fn missing_path_below_file_of_comments_gets_the_front_controller() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join("index.php"), "<?php").unwrap();
    for (text, falls_back) in [
        ("# RewriteRule . /index.php\n\n  # nothing else\n", true),
        ("", true),
        ("# x\nOptions -Indexes\n", false),
        // The comment continues on the second line.
        ("# x \\\n# y\n", true),
    ] {
        fs::write(root.join(".htaccess"), text).unwrap();
        let site = Site::open(root, &Settings::default(), None).unwrap();
        let found = site.resolve("/missing");
        assert_eq!(
            matches!(found, Resolution::Script(_)),
            falls_back,
            "{text:?}: {found:?}"
        );
    }
}

#[test]
fn header_denial_matches_every_line_and_byte_of_the_header() {
    let text = "SetEnvIfNoCase User-Agent badbot Bad_Bot\nOrder allow,deny\nAllow from all\nDeny \
        from env=bad_bot";
    let closes = |lines: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            let value = http::HeaderValue::from_bytes(line).unwrap();
            headers.append(http::header::USER_AGENT, value);
        }
        let merged = merged(text);
        let mut env = Env::default();
        let facts = facts(&headers);
        let file_rules = merged.for_file("x.txt", &facts.steps);
        file_rules.set_env(&facts, "/x.txt", &mut env);
        file_rules.check(&facts, &env).is_err()
    };
    assert!(closes(&[b"badbot"]));
    assert!(closes(&[b"badbot\xe9"]));
    assert!(closes(&[b"good", b"badbot"]));
    assert!(!closes(&[b"good"]));
}

#[test]
fn redirect_group_that_ends_inside_a_character_does_not_panic() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(
        root.join(".htaccess"),
        "RedirectMatch 301 ^/d/(.)(.*)$ /new/$2",
    )
    .unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    let found = site.resolve("/d/%C3%A9x");
    assert!(matches!(found, Resolution::RedirectTo(301, _)), "{found:?}");
}

#[test]
fn endlessly_growing_rules_return_500() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let rules = "RewriteEngine On\nRewriteRule ^q(.*)$ q$1z$1 [N]\nRewriteRule ^s - \
        [S=18446744073709551615]";
    fs::write(root.join(".htaccess"), rules).unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    assert!(matches!(site.resolve("/qa"), Resolution::Status(500, _)));
    assert!(matches!(site.resolve("/s"), Resolution::NotFound));
}

#[test]
fn patterns_beyond_the_memory_limit_deny_until_memory_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let protect = |name: &str| {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::write(root.join(name).join("x.txt"), "").unwrap();
        let text = "RewriteEngine On\nRewriteRule ^y - [F]\nRewriteRule ^z - [F]";
        fs::write(root.join(name).join(".htaccess"), text).unwrap();
    };
    protect("a");
    protect("b");
    let mut site = Site::open(root, &Settings::default(), None).unwrap();
    // Enough for three patterns.
    limit(&mut site, SiteMemory::new(100 << 10));
    let now = Instant::now();
    let find = |path: &str, after: u64| {
        let now = now + Duration::from_secs(after);
        site.find(&normalize(path).unwrap(), now)
    };
    assert!(matches!(find("/a/x.txt", 0), Resolution::File(_)));
    assert!(matches!(
        find("/b/x.txt", 0),
        Resolution::Denied(Denial::BrokenHtaccess)
    ));
    assert!(matches!(find("/a/x.txt", 0), Resolution::File(_)));
    fs::remove_file(root.join("a/.htaccess")).unwrap();
    find("/a/x.txt", 2);
    // It is not read again for every request.
    assert!(matches!(find("/b/x.txt", 9), Resolution::Denied(_)));
    assert!(matches!(find("/b/x.txt", 10), Resolution::File(_)));
}

#[test]
fn set_env_in_unevaluated_expression_is_not_reported() {
    assert_eq!(read("<If \"true\">\nSetEnv no-gzip 1\n</If>").problems, []);
    assert_eq!(
        read("<If \"true\">\nDeny from all\n</If>").problems.len(),
        1
    );
}

#[test]
fn invalid_address_denies_the_directory() {
    for text in [
        "Deny from ::ffff:10.0.0.1",
        "Allow from 10.0.0.0/0",
        "Require ip 10.1/16",
    ] {
        assert!(read(text).is_broken, "{text}");
    }
}
