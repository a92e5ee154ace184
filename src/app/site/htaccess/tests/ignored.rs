//! Tests which ignored directives are reported, and that usual files cause few lines.

use super::*;

fn reported(text: &str) -> Vec<(u32, String)> {
    let problems = read(text).problems;
    assert!(problems.iter().all(|one| one.is_logged && !one.closes));
    let lines = problems.into_iter().map(|one| (one.line, one.what));
    lines.collect()
}

#[test]
fn ignored_directive_is_reported_with_its_replacement() {
    for (line, says) in [
        (
            "SetEnv APP_ENV production",
            "SetEnv do not reach PHP from here; set them in [env]: APP_ENV",
        ),
        (
            "RewriteRule ^ - [L,E=APP_ENV:production]",
            "whose value is always the same: APP_ENV",
        ),
        (
            "RewriteRule ^ - \"[L, ENV=APP_ENV:production]\"",
            "flag E do not reach PHP from here",
        ),
        (
            "RewriteRule ^ - [ENV=HTTP_MOD_REWRITE:On]",
            ": HTTP_MOD_REWRITE",
        ),
        (
            "RewriteRule ^(\\w+)/ - [E=HTTP_X_TENANT:$1]",
            ": HTTP_X_TENANT",
        ),
        (
            "php_flag auto_detect_line_endings on",
            "php_flag auto_detect_line_endings is ignored",
        ),
        (
            "php_value memory_limit 1G",
            "php_value memory_limit is ignored; write it into .user.ini",
        ),
        ("php_flag display_errors on", "into [php] of surus.toml"),
        (
            "ErrorDocument 404 /missing.html",
            "write 404.html into `errors`",
        ),
        (
            "Header set X-Frame-Options DENY",
            "write `headers` into a [[route]]",
        ),
        ("Options +MultiViews", "MultiViews is ignored"),
        ("Options Indexes multiviews", "MultiViews is ignored"),
        (
            "<IfModule mod_php.c>\nphp_value upload_max_filesize 9M\n</IfModule>",
            "upload_max",
        ),
    ] {
        let reported = reported(line);
        assert_eq!(reported.len(), 1, "{line}: {reported:?}");
        assert!(reported[0].1.contains(says), "{line}: {reported:?}");
        assert!(!is_closed(line, "x"), "{line}");
    }
}

#[test]
fn directive_that_is_not_missed_is_not_reported() {
    for text in [
        "SetEnv no-gzip 1",
        "SetEnv modHeadersAvailable true",
        "RewriteRule ^ - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]",
        "RewriteRule ^ - [E=HTTP_X_XSRF_TOKEN:%{HTTP:X-XSRF-Token}]",
        "RewriteRule . index.php [PT,E=PATH_INFO:$1]",
        "RewriteRule ^ - [E=HTTP_AUTHORIZATION:%0]",
        "RewriteRule ^ - [E=!APP_ENV]",
        "ErrorDocument 404 default",
        "ErrorDocument",
        "Options -MultiViews -Indexes",
        "php_flag engine on",
        "<IfModule mod_lua.c>\nSetEnv APP_ENV production\n</IfModule>",
    ] {
        assert_eq!(reported(text), [], "{text}");
    }
}

#[test]
fn variable_that_a_condition_tests_is_not_reported() {
    for text in [
        "Deny from env=A",
        "Deny from env=!A",
        "RewriteRule ^a http%{ENV:A}://b/ [R]",
        "Require  env\tB A",
        "<RequireAll>\nRequire all granted\nRequire not env A\n</RequireAll>",
        "Require expr \"reqenv('A') == '1'\"",
        "<If \"env( \\\"A\\\" ) == '1'\">\nDeny from all\n</If>",
        "SetEnvIfExpr \"%{reqenv:A} == '1'\" c",
        "SetEnvIfNoCase A ^1 c",
    ] {
        for set in ["SetEnv a 1", "RewriteRule ^ - [E=a:1]"] {
            let file = read(&format!("{set}\n{text}"));
            let is_missed = |one: &Problem| one.what.contains("do not reach PHP");
            assert!(!file.problems.iter().any(is_missed), "{text}");
        }
    }
}

#[test]
fn all_variables_of_a_kind_are_in_one_line() {
    let text = "# nothing\nSetEnv B 1\nSetEnv A 2\nSetEnv b 3\nSetEnv C 4\n\
                Deny from env=C\nRewriteRule ^ - [E=D:1,E=E:1]\nRewriteRule ^ - [E=F:1]";
    let of_set_env = "variables of SetEnv do not reach PHP from here; set them in [env]: A, B";
    let of_rules = "variables of the flag E do not reach PHP from here; set those in [env] whose \
                    value is always the same: D, E, F";
    let expected: [(u32, String); 2] = [(2, of_set_env.to_owned()), (7, of_rules.to_owned())];
    assert_eq!(reported(text), expected);
}

#[test]
fn each_kind_is_reported_once_in_a_file() {
    let text = "Header set A 1\nSetEnv A 1\nHeader set B 2\nSetEnv B 2\nphp_value a 1\n\
                <FilesMatch \"\\.css$\">\nHeader set C 3\n</FilesMatch>\nphp_flag b on\n";
    let lines: Vec<_> = reported(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 2, 5]);
}

#[test]
fn usual_applications_cause_at_most_a_line_of_each_kind() {
    for (application, expected) in [
        (
            include_str!("../../../../../tests/http/htaccess/sites/wordpress.toml"),
            0,
        ),
        (
            include_str!("../../../../../tests/http/htaccess/sites/laravel.toml"),
            0,
        ),
        (
            include_str!("../../../../../tests/http/htaccess/sites/symfony.toml"),
            0,
        ),
        (
            include_str!("../../../../../tests/http/htaccess/sites/nextcloud.toml"),
            3,
        ),
    ] {
        let site: toml::Table = toml::from_str(application).unwrap();
        let files = site["files"].as_table().unwrap();
        let texts = files.iter().filter(|(name, _)| name.ends_with(".htaccess"));
        let logged: usize = texts
            .map(|(_, text)| {
                let problems = read(text.as_str().unwrap()).problems;
                problems.iter().filter(|one| one.is_logged).count()
            })
            .sum();
        assert_eq!(logged, expected, "{application}");
    }
}
