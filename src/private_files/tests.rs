//! Tests of the list and of the decision by content.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;

/// The class of a file, decided as for sending by the front end and as for `surus lambda package`.
fn name_of(path: &str, purpose: Purpose) -> &'static str {
    let mut above = Path::new(path).ancestors().skip(1);
    let class = class_of(path, false, purpose).or_else(|| {
        above.find_map(|directory| class_of(directory.to_str().unwrap(), true, purpose))
    });
    class.map_or("", |class| class.name)
}

#[test]
fn private_name_in_any_directory_belongs_to_a_class() {
    for (path, class) in [
        ("auth.json", "credentials of tools"),
        (".npmrc", "credentials of tools"),
        (".aws/credentials", "credentials of tools"),
        (".ssh/config", "credentials of tools"),
        ("a/sftp-config.json", "credentials of tools"),
        ("htpasswd", "credentials of tools"),
        ("deep/er/id_rsa", "private keys"),
        ("id_ed25519.pub", "private keys"),
        ("config/jwt/private.pem", "private keys"),
        ("terraform.tfstate", "infrastructure state"),
        ("infra/terraform.tfstate.backup", "infrastructure state"),
        ("terraform.tfstate.d/prod/x", "infrastructure state"),
        ("prod.tfvars", "infrastructure state"),
        ("samconfig.toml", "infrastructure state"),
        ("template.yaml", "deployment files"),
        ("template.json", "deployment files"),
        ("packaged.json", "deployment files"),
        ("function.zip", "deployment files"),
        ("dump.sql", "dumps and databases"),
        ("a/dump.sql.gz", "dumps and databases"),
        ("dump.sql.tar.gz", "dumps and databases"),
        ("dump.sql.tgz", "dumps and databases"),
        ("dump.sql.lz4", "dumps and databases"),
        ("dump.sql.lzma", "dumps and databases"),
        ("dump.sql.z", "dumps and databases"),
        ("dump.sql.rar", "dumps and databases"),
        ("prod.dump.gz", "dumps and databases"),
        ("prod.dump.bz2", "dumps and databases"),
        ("a/app.sqlite.gz", "dumps and databases"),
        ("app.sqlite.xz", "dumps and databases"),
        ("app.sqlite3.zst", "dumps and databases"),
        ("app.sqlite.zip", "dumps and databases"),
        ("app.sqlite.tar.gz", "dumps and databases"),
        ("users.bson.gz", "dumps and databases"),
        ("app.db.7z", "dumps and databases"),
        ("cdk.out/asset.1/index.js", "infrastructure state"),
        ("cdk.out/id_1/index.html", "infrastructure state"),
        ("cvs/a.png", "version control"),
        ("data.sqlite-wal", "dumps and databases"),
        ("a/page.html~", "backups and editor copies"),
        ("a/page.html.bak", "backups and editor copies"),
        ("#page.html#", "backups and editor copies"),
        ("docker-compose.prod.yml", "container, CI and build files"),
        ("makefile", "container, CI and build files"),
        ("wp-content/debug.log", "logs"),
        ("app.log-20240101", "logs"),
        ("app.log-20240101.gz", "logs"),
        ("access.log.old.1", "logs"),
        ("error_log-20240101", "logs"),
        ("error_log.1", "logs"),
        ("php_errorlog", "logs"),
        ("php_errorlog-20260101", "logs"),
        ("php_errorlog.1", "logs"),
        ("php_error_log", "logs"),
        ("app.log-old", "logs"),
        ("app.log.xz", "logs"),
        ("app.log.bz2", "logs"),
        ("app.log.zst", "logs"),
        ("app.log.zip", "logs"),
        ("app.log.1.7z", "logs"),
        ("app.log_20260101", "logs"),
        ("error_log.gz", "logs"),
        ("error_log-old", "logs"),
        ("access_log", "logs"),
        ("access_log-20260101", "logs"),
        ("dump.sql-old", "dumps and databases"),
        ("x.db-20260101", "dumps and databases"),
        ("x.db.1", "dumps and databases"),
        ("x.sqlite.1", "dumps and databases"),
        ("x.dump-20260101", "dumps and databases"),
        ("x.dump.lzma", "dumps and databases"),
        ("x.mdb.bak2", "dumps and databases"),
        ("a.sql-1", "dumps and databases"),
        ("x.sqlitedb", "dumps and databases"),
        ("x.s3db", "dumps and databases"),
        ("x.psql", "dumps and databases"),
        ("x.pgdump.gz", "dumps and databases"),
        ("x.dmp", "dumps and databases"),
        ("x.mdf.1", "dumps and databases"),
        ("x.ibd", "dumps and databases"),
        ("db.zip", "dumps and databases"),
        ("a/dump.gz", "dumps and databases"),
        ("dump.tar", "dumps and databases"),
        ("database-2026-01-01.tar.bz2", "dumps and databases"),
        ("db_1.7z", "dumps and databases"),
        ("site.tar.gz", "backups and editor copies"),
        ("public_html.zip", "backups and editor copies"),
        ("www-20260101.tgz", "backups and editor copies"),
        ("nohup.out", "logs"),
        ("x.jceks", "private keys"),
        ("x.pkcs12", "private keys"),
        ("x.p12.1", "private keys"),
        ("x.jks-old", "private keys"),
        ("x.keystore.gz", "private keys"),
        ("x.kdbx.20260101", "private keys"),
        ("users.htpasswd", "credentials of tools"),
        ("htpasswd.1", "credentials of tools"),
        ("x.pgpass", "credentials of tools"),
        (".git/config", "version control"),
        (".env.local", "local environment files"),
    ] {
        for purpose in [Purpose::Sending, Purpose::Packaging] {
            assert_eq!(name_of(path, purpose), class, "{path} {purpose:?}");
        }
    }
    for (path, class) in [
        ("php.ini.1", "configuration files"),
        ("php.ini-20260101", "configuration files"),
        ("my.cnf.gz", "configuration files"),
        ("web.config.1", "configuration files"),
        ("parameters.yml-old", "configuration files"),
        ("config/database.yml", "configuration files"),
        ("settings.yml", "configuration files"),
        ("settings.yaml.gz", "configuration files"),
        ("google-credentials.json", "service accounts"),
        ("env.production", "environment files"),
        ("prod.env.1", "environment files"),
    ] {
        assert_eq!(name_of(path, Purpose::Sending), class, "{path}");
        assert_eq!(name_of(path, Purpose::Packaging), "", "{path}");
    }
    let account = "a/app-firebase-adminsdk-x1.json";
    assert_eq!(name_of(account, Purpose::Sending), "service accounts");
    assert_eq!(name_of(account, Purpose::Packaging), "");
}

#[test]
fn application_and_browser_files_belong_to_no_class() {
    for path in [
        ".well-known/acme-challenge/x",
        ".well-known/pki/ca.pem",
        "locales/en/auth.json",
        "wp-includes/js/jquery/jquery.min.js",
        "lang/id_id.json",
        "id_card.png.html",
        "downloads/manual.zip",
        "releases/app-1.0.zip",
        "releases/db-tools-1.0.tar.gz",
        "downloads/site-template.zip",
        "admin/config.yml",
        "database.json",
        "robots.txt",
        "readme.html",
        "manifest.json",
        "packages.json",
        "src/makefile",
        "js/vendor/jquery/jquery.min.js",
        "files/template.yaml",
        "catmull.log.min.js",
        "downloads/natural.log.html",
        "error_log.html",
        "ace/snippets/dockerfile.js",
        "id_maps/a.png",
        "queries/users.sql.php",
        "queries/users.sql.js",
        "sqlite.zip",
        "adminer.sqlite.html",
        "guides/php.ini-2026.html",
        "guides/turn.key-2.html",
        "guides/x.db-2.html",
        "key.txt",
        "monkey.1",
        "turnkey-2.html",
        "core.php",
        "core/index.html",
        "score.1",
        "env.html",
        "env.json",
        "production/index.html",
        "jks.html",
        "downloads/manual.db.html",
    ] {
        // `id_*` is decided by content.
        let class = class_of(path, false, Purpose::Sending)
            .filter(|class| !class.excuses(&b"{}"[..], Purpose::Sending));
        assert_eq!(class, None, "{path}");
    }
    for path in [
        "composer.json",
        "composer.lock",
        ".env",
        "vendor/composer/ca-bundle/res/cacert.pem",
        "vendor/a/b/schema.sql",
        "database/schema/mysql-schema.sql",
        "config/app.ini",
        "queries/users.sql.php",
        "queries/users.sql.js",
        "queries/users.sql.twig",
    ] {
        assert_eq!(name_of(path, Purpose::Packaging), "", "{path}");
    }
    assert!(class_of("lib/id_map", true, Purpose::Packaging).is_none());
}

#[test]
fn files_that_the_application_writes_are_not_packaged() {
    for path in [
        "var/cache/prod/App_KernelProdContainer.php",
        "var/share/prod/pools/app/a",
        "storage/framework/views/a.php",
    ] {
        let class = name_of(path, Purpose::Packaging);
        assert_eq!(class, "what the application writes", "{path}");
    }
}

/// The crate `ignore` has the syntax of `.gitignore` from git's own tests.
#[test]
fn patterns_match_as_in_a_gitignore_file() {
    for purpose in [Purpose::Sending, Purpose::Packaging] {
        let mut builder = ignore::gitignore::GitignoreBuilder::new("");
        let concerned = || classes().filter(|class| class.concerns(purpose));
        let patterns: Vec<_> = concerned().flat_map(|class| class.patterns).collect();
        for pattern in &patterns {
            builder.add_line(None, pattern).unwrap();
        }
        let gitignore = builder.build().unwrap();
        let ours = Patterns::new(purpose).unwrap();
        let mut matching = 0;
        for path in patterns.iter().flat_map(|pattern| paths_like(pattern)) {
            for is_directory in [false, true] {
                let glob = match gitignore.matched(&path, is_directory) {
                    ignore::Match::Ignore(glob) => Some(glob),
                    _ => None,
                };
                matching += usize::from(glob.is_some());
                let expected = glob.map(|glob| {
                    let has_it = |class: &&Class| class.patterns.contains(&glob.original());
                    concerned().filter(has_it).last().unwrap().name
                });
                let found = ours.class_of(&path, is_directory).map(|class| class.name);
                assert_eq!(found, expected, "{path} {is_directory} {purpose:?}");
            }
        }
        assert!(matching > 500, "{matching}");
    }
}

/// Paths that match a pattern, and some that nearly do.
fn paths_like(pattern: &str) -> Vec<String> {
    let plain = pattern.trim_start_matches('!').trim_matches('/');
    let classes = regex::Regex::new(r"\[[^]]*\]").unwrap();
    let plain = classes.replace_all(plain, "-").replace("**/", "a/b/");
    let digits = classes.replace_all(pattern.trim_matches('/'), "7");
    let plain = plain.replace("**", "a").replace('\\', "");
    let name = plain.replace('*', "x");
    vec![
        plain.replace('*', "x/y"),
        digits.replace('*', "x"),
        plain.replace("a/b/", "").replace('*', ""),
        format!("deep/er/{name}"),
        format!("{name}/file.txt"),
        format!("{name}x"),
        name,
    ]
}

#[test]
fn private_key_is_distinguished_from_certificate_by_content() {
    const KEY: &[u8] = b"-----BEGIN RSA PRIVATE KEY-----\nMII";
    const CERTIFICATE: &[u8] = b"# RDS\n-----BEGIN CERTIFICATE-----\nMII";
    const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0";
    const WIREGUARD: &[u8] = b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
    let long = |line: &str| format!("{}\n{line}\n", "#".repeat(500)).into_bytes();
    let age = long("AGE-SECRET-KEY-1QQQ");
    let putty = long("PuTTY-User-Key-File-3: ssh-ed25519");
    let peer = long("PrivateKey = yAnz5TF+");
    let keynote = [b"PK\x03\x04\x14\0\0\0 PRIVATE KEY", [b'k'; 300].as_slice()].concat();
    let der = [b"0\x82\x03\x10\x30\x82\x02\xf8\xa0", [b'c'; 300].as_slice()].concat();
    let both = [CERTIFICATE, KEY].concat();
    let late = [&[b'#'; 2000], KEY].concat();
    let archive = [GZIP, [b'z'; 20_000].as_slice()].concat();
    for (path, content, sent, packaged) in [
        ("server.key", KEY, false, false),
        ("id_deploy", KEY, false, false),
        ("apns.p8", KEY, false, false),
        ("office.ovpn", KEY, false, false),
        (
            "public.asc",
            b"-----BEGIN PGP PUBLIC KEY BLOCK-----",
            true,
            true,
        ),
        ("stream.key", &b"\x01\x02345678901234\0\0"[..], true, true),
        ("empty.key", b"", true, true),
        ("age.key", &age, false, false),
        ("id_age", &age, false, false),
        ("putty.key", &putty, false, false),
        ("wg.key", WIREGUARD, false, false),
        ("peer.key", &peer, false, false),
        (
            "master.key",
            b"00112233445566778899aabbccddeeff",
            false,
            false,
        ),
        ("sodium.key", &[7; 32], false, false),
        (
            "public.key",
            b"-----BEGIN PUBLIC KEY-----\nMCo=",
            true,
            true,
        ),
        ("id_list", b"{\"a\": 1}", true, true),
        ("stream.key", b"0\x0e\x02\x01\x0012345678901", true, true),
        ("talk.key", &keynote, true, true),
        ("rsa.key", b"0\x82\x04\xa4\x02\x01\0\x02\x82", false, false),
        ("ec.key", b"0\x77\x02\x01\x01\x04\x20", false, false),
        ("pkcs8.key", b"0\x2e\x02\x01\x00\x30", false, false),
        ("sealed.key", b"0\x81\x9b0\x57\x06\x09\x2a", false, false),
        ("certificate.key", &der, true, true),
        ("late.key", &late, false, false),
        ("rds.pem", CERTIFICATE, false, true),
        ("both.pem", &both, false, false),
        ("unknown.pem", b"secret", false, false),
        ("id_rsa", CERTIFICATE, false, true),
        ("dump.sql", CERTIFICATE, false, false),
        ("server.key.1", KEY, false, false),
        ("server.key-20260101", KEY, false, false),
        ("server.key.old", KEY, false, false),
        ("server.key.gz", GZIP, false, false),
        ("server.key.1.gz", GZIP, false, false),
        ("server.pem.1", KEY, false, false),
        ("server.pem-old", KEY, false, false),
        ("server.pem.gz", GZIP, false, false),
        ("cert.key.pem.new", KEY, false, false),
        ("server.key.new", KEY, false, false),
        ("oauth-private.key.1", KEY, false, false),
        ("private.key.20260101", KEY, false, false),
        ("ssl.key.txt", KEY, false, false),
        ("ssl.pem.txt", KEY, false, false),
        ("apns.p8.1", KEY, false, false),
        ("key.asc.1", KEY, false, false),
        ("wg.key.1", WIREGUARD, false, false),
        ("server.key.1", CERTIFICATE, true, true),
        ("chain.pem.1", CERTIFICATE, true, true),
        ("ssl.key.txt", b"See the manual.", true, true),
        ("talk.key.zip", &archive, true, true),
        ("cacert.pem.gz", &archive, true, true),
    ] {
        for (purpose, expected) in [(Purpose::Sending, sent), (Purpose::Packaging, packaged)] {
            let class = class_of(path, false, purpose).unwrap();
            assert_eq!(
                class.excuses(content, purpose),
                expected,
                "{path} {purpose:?}"
            );
        }
    }
}

#[test]
fn core_dump_is_kept_back_by_its_content() {
    const DUMP: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0";
    for purpose in [Purpose::Sending, Purpose::Packaging] {
        for path in [
            "core",
            "a/core.1234",
            "core-php-1234",
            "core.php-fpm.1234",
            "core.1234.web1",
            "php.core",
        ] {
            let class = class_of(path, false, purpose).unwrap();
            assert_eq!(class.name, "core dumps", "{path}");
            assert!(!class.excuses(DUMP, purpose), "{path}");
            assert!(class.excuses(&b"<html>"[..], purpose), "{path}");
            assert!(class.excuses(&b""[..], purpose), "{path}");
            assert!(class_of(path, true, purpose).is_none(), "{path}");
        }
    }
}

#[test]
fn libraries_expose_only_browser_assets() {
    for path in [
        "vendor/a/b/x.css",
        "node_modules/x/dist/x.min.js",
        "src/vendor/x.php",
    ] {
        assert!(!is_in_libraries(path, false), "{path}");
    }
    for path in [
        "vendor/autoload.php",
        "vendor/a/README.md",
        "vendor/a/x.html",
        "vendor/a/x",
    ] {
        assert!(is_in_libraries(path, false), "{path}");
    }
    assert!(is_in_libraries("vendor", true));
    assert!(!is_in_libraries("vendor", false));
}
