//! Tests of rules that depend on groups or variables which cannot be evaluated.

use super::*;

/// The client has no address, so it is unknown whether such a condition holds.
const UNKNOWN: &str = "RewriteCond %{REMOTE_ADDR} ^(.)";
const UNKNOWN_OR: &str = "RewriteCond %{REMOTE_ADDR} ^(.) [OR]";
const NAME: &str = r"RewriteCond %{REQUEST_URI} /(.)\.txt$";
const SLASH: &str = "RewriteCond %{REQUEST_URI} ^(/)";
const DENY: &str = "RewriteRule ^ - [F]";

/// The response for `x.txt` next to this file.
fn found(text: &str) -> Resolution {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("x.txt"), "").unwrap();
    fs::write(dir.path().join(".htaccess"), text).unwrap();
    let site = Site::open(dir.path(), &Settings::default(), None).unwrap();
    site.resolve("/x.txt")
}

fn found_by_rules(lines: &[&str]) -> Resolution {
    found(&format!("RewriteEngine On\n{}", lines.join("\n")))
}

#[test]
fn unknown_groups_deny_wherever_they_are_used() {
    for lines in [
        [UNKNOWN, "RewriteCond %1 2", DENY].as_slice(),
        &[
            r"RewriteCond %{TIME_HOUR} ^(\d+)$",
            "RewriteCond %1 >17",
            DENY,
        ],
        &[
            r"RewriteCond %{REQUEST_URI} (\p{L})",
            "RewriteCond %1 x",
            DENY,
        ],
        &["RewriteCond ${map:x} (.)", "RewriteCond %1 x", DENY],
        &["RewriteCond expr \"true\"", "RewriteCond %1 x", DENY],
        &["RewriteCond $1 x", r"RewriteRule ^(\p{L}) - [F]"],
        // A condition that holds does not make the groups of the others known.
        &[UNKNOWN_OR, SLASH, "RewriteCond %1 2", DENY],
        &[
            UNKNOWN_OR,
            "RewriteCond %{HTTPS} off",
            "RewriteCond %1 2",
            DENY,
        ],
        &[NAME, UNKNOWN, "RewriteCond %1 2", DENY],
        &[UNKNOWN, SLASH, UNKNOWN, "RewriteCond %1 2", DENY],
        &[UNKNOWN_OR, SLASH, "RewriteRule ^x %1.txt [L]"],
        &[
            UNKNOWN_OR,
            SLASH,
            "RewriteRule ^ - [E=a:%1]",
            "RewriteCond %{ENV:a} 2",
            DENY,
        ],
        &[
            UNKNOWN,
            "RewriteCond %1 2",
            "RewriteRule ^ - [E=a:1]",
            "RewriteCond %{ENV:a} 1",
            DENY,
        ],
        &[UNKNOWN, "RewriteCond %1 2", "RewriteRule ^ - [C]", DENY],
        &[
            UNKNOWN_OR,
            SLASH,
            "RewriteRule ^ - [E=a:%1,C]",
            "RewriteCond %{ENV:a} 2",
            DENY,
        ],
        &[
            "RewriteCond %{ENV:a} 2",
            DENY,
            "RewriteCond %{ENV:b} !1",
            UNKNOWN_OR,
            SLASH,
            "RewriteRule ^ - [E=a:%1,E=b:1,N]",
        ],
        // The exemption exempts nothing.
        &[
            UNKNOWN_OR,
            SLASH,
            "RewriteCond %1 /",
            "RewriteRule ^ - [L]",
            DENY,
        ],
    ] {
        let found = found_by_rules(lines);
        assert!(
            matches!(found, Resolution::Denied(_)),
            "{lines:?}: {found:?}"
        );
    }
}

#[test]
fn groups_that_no_unknown_condition_sets_stay_known() {
    for lines in [
        // A later match replaces the groups.
        [UNKNOWN, NAME, "RewriteCond %1 y", DENY].as_slice(),
        // Neither a negated pattern nor a comparison has groups.
        &[
            NAME,
            "RewriteCond %{REMOTE_ADDR} !^(2)",
            "RewriteCond %1 y",
            DENY,
        ],
        &[
            NAME,
            "RewriteCond %{REMOTE_ADDR} >2",
            "RewriteCond %1 y",
            DENY,
        ],
        &[
            NAME,
            "RewriteCond %{REMOTE_ADDR} !^(2) [OR]",
            "RewriteCond %{HTTPS} =off",
            "RewriteCond %1 y",
            DENY,
        ],
        // Apache evaluates a later condition of a chain only if the earlier ones do not hold.
        &[
            NAME,
            UNKNOWN_OR,
            "RewriteCond %1 x",
            "RewriteRule ^ - [L]",
            DENY,
        ],
        &[UNKNOWN, "RewriteCond $1 y", "RewriteRule ^(.) - [F]"],
        // As in Apache, the groups of a negated pattern are empty.
        &["RewriteCond $1 x", r"RewriteRule !(\p{L}) - [F]"],
        // Groups of an earlier rule do not count.
        &[
            UNKNOWN,
            "RewriteRule ^y - [F]",
            "RewriteCond %1 x",
            "RewriteRule ^x - [F]",
        ],
    ] {
        let found = found_by_rules(lines);
        assert!(matches!(found, Resolution::File(_)), "{lines:?}: {found:?}");
    }
}

#[test]
fn flag_that_takes_a_name_from_the_request_denies_and_is_reported() {
    for rule in [
        "RewriteRule ^(x) - [E=$1:1]",
        "RewriteRule ^(x) - [E=!$1]",
        "RewriteRule ^ - [E=%{REQUEST_METHOD}:1]",
        "RewriteRule ^(x) - [H=application/$1]",
        "RewriteRule ^(x) - [T=text/$1]",
    ] {
        let found = found_by_rules(&[rule]);
        assert!(matches!(found, Resolution::Denied(_)), "{rule}: {found:?}");
        let problems = read(rule).problems;
        assert!(
            problems.iter().any(|one| one.closes),
            "{rule}: {problems:?}"
        );
    }
    let usual = "RewriteRule ^x - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization},E=!a,T=text/css]";
    assert_eq!(read(usual).problems, []);
}

/// Apache has the variable `MATCH_FIRST`.
#[test]
fn named_group_of_a_section_is_unknown() {
    let section = "<FilesMatch \"^(?<first>.)\">\n</FilesMatch>";
    for text in [
        "RewriteEngine On\nRewriteCond %{ENV:MATCH_FIRST} x\nRewriteRule ^ - [F]",
        "Order allow,deny\nAllow from all\nDeny from env=match_first",
        "SetEnvIf MATCH_FIRST x y\nOrder allow,deny\nAllow from all\nDeny from env=y",
    ] {
        let found = found(&format!("{section}\n{text}"));
        assert!(matches!(found, Resolution::Denied(_)), "{text}: {found:?}");
    }
}

#[test]
fn variable_that_an_unevaluated_section_may_set_is_unknown_to_later_sections() {
    let section =
        |pattern: &str, line: &str| format!("<FilesMatch \"{pattern}\">\n{line}\n</FilesMatch>");
    // Surus does not evaluate a pattern with a comment.
    let first = section("(?#comment)x", "SetEnvIf Request_URI . first");
    let second = section("x", "SetEnvIf first 1 closed");
    let access = "Order allow,deny\nAllow from all\nDeny from env=closed";
    let in_order = found(&format!("{first}\n{second}\n{access}"));
    assert!(matches!(in_order, Resolution::Denied(_)), "{in_order:?}");
    let reversed = found(&format!("{second}\n{first}\n{access}"));
    assert!(matches!(reversed, Resolution::File(_)), "{reversed:?}");
}
