//! Tests of handlers, and of the types that directives give to files that are sent.

use super::*;

#[test]
fn named_type_is_that_of_the_last_extension_and_a_forced_one_overrides_it() {
    let of = |text: &str, name: &str| {
        let merged = merged(text);
        let steps = Steps::default();
        let found = merged.for_file(name, &steps).media_type();
        found.map(|found| found.to_string())
    };
    let plain = Some("text/plain".to_owned());
    let none = Some("application/octet-stream".to_owned());
    for (text, name, expected) in [
        ("AddType text/plain .html svg", "x.html", plain.clone()),
        ("AddType text/plain .html svg", "x.SVG", plain.clone()),
        ("AddType text/plain .html", "x.txt", None),
        ("AddType text/plain .html", "x.html.css", None),
        ("AddType text/plain .html", "x.html.unknown", plain.clone()),
        ("AddType text/plain .html", "html", None),
        (
            "AddType image/x .html\nAddType text/plain .html",
            "x.html",
            plain.clone(),
        ),
        (
            "AddType text/plain .html\nRemoveType .html",
            "x.html",
            none.clone(),
        ),
        (
            "RemoveType .html\nAddType text/plain .html",
            "x.html",
            plain.clone(),
        ),
        ("RemoveType .html", "x.html", none.clone()),
        ("RemoveType .html", "x.html.css", None),
        (
            "ForceType text/plain\nAddType image/x .html",
            "x.html",
            plain.clone(),
        ),
        ("ForceType text/plain", "x", plain.clone()),
        ("ForceType text/plain\nForceType None", "x.html", None),
        (
            "ForceType text/plain\n<Files x.html>\nForceType none\n</Files>",
            "x.html",
            None,
        ),
        (
            "<FilesMatch html$>\nForceType text/plain\n</FilesMatch>",
            "x.html",
            plain.clone(),
        ),
        (
            "<FilesMatch html$>\nForceType text/plain\n</FilesMatch>",
            "x.png",
            None,
        ),
        (
            "<If \"x\">\nForceType text/html\n</If>",
            "x.svg",
            Some("application/octet-stream".to_owned()),
        ),
        ("<If \"x\">\nAddType text/html .svg\n</If>", "x.png", None),
    ] {
        assert_eq!(of(text, name), expected, "{text} for {name}");
    }
}

#[test]
fn section_that_cannot_be_evaluated_does_not_make_source_a_file_to_send() {
    let is_source = |text: &str| {
        let merged = merged(text);
        let steps = Steps::default();
        merged.for_file("page.html", &steps).is_source(None)
    };
    for (runs, sends) in [
        (
            "AddHandler application/x-httpd-php .html",
            "RemoveHandler .html",
        ),
        ("AddType application/x-httpd-php .html", "RemoveType .html"),
        ("ForceType application/x-httpd-php", "ForceType none"),
        ("SetHandler cgi-script", "SetHandler none"),
    ] {
        for (begin, end) in [
            ("<If \"%{HTTP_HOST} == 'static.example'\">", "</If>"),
            ("<FilesMatch \"\\p{L}\">", "</FilesMatch>"),
        ] {
            let unknown = |line: &str| format!("{begin}\n{line}\n{end}\n");
            for text in [
                format!("{runs}\n{}", unknown(sends)),
                format!("{}{runs}\n", unknown(sends)),
                format!("{sends}\n{}", unknown(runs)),
                format!("{}{}", unknown(runs), unknown(sends)),
                format!("{}{}", unknown(sends), unknown(runs)),
            ] {
                assert!(is_source(&text), "{text}");
            }
            assert!(!is_source(&unknown(sends)), "{begin} {sends}");
        }
    }
}

#[test]
fn named_type_is_inherited_and_set_by_rules() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for name in ["", "a", "a/again", "rule"] {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::write(root.join(name).join("x.html"), "").unwrap();
    }
    fs::write(root.join(".htaccess"), "AddType text/plain .html").unwrap();
    fs::write(root.join("a/.htaccess"), "RemoveType .html").unwrap();
    fs::write(root.join("a/again/.htaccess"), "ForceType image/x").unwrap();
    let rule = "RewriteEngine On\nRewriteRule \\.html$ - [T=text/x-page]";
    fs::write(root.join("rule/.htaccess"), rule).unwrap();
    let site = Site::open(root, &Settings::default(), None).unwrap();
    for (path, expected) in [
        ("/x.html", Some("text/plain")),
        ("/a/x.html", Some("application/octet-stream")),
        ("/a/again/x.html", Some("image/x")),
        ("/rule/x.html", Some("text/x-page")),
    ] {
        let Resolution::File(found) = site.resolve(path) else {
            panic!("{path}");
        };
        assert_eq!(found.media_type.as_deref(), expected, "{path}");
    }
}

#[test]
fn unknown_name_of_a_php_handler_is_reported_with_the_line_to_write() {
    for (line, closes) in [
        ("SetHandler no-php", false),
        ("AddHandler nophp .php", false),
        ("ForceType application/x-php", false),
        ("AddType application/x-php .php", false),
        ("RewriteEngine On\nRewriteRule x - [H=no-php]", true),
        (
            "RewriteEngine On\nRewriteRule x - [T=application/x-php]",
            true,
        ),
    ] {
        let file = read(line);
        let [problem] = file.problems.as_slice() else {
            panic!("{line}: {:?}", file.problems);
        };
        assert_eq!(problem.closes, closes, "{line}");
        assert!(problem.what.contains("php_flag engine off"), "{line}");
    }
    for line in ["SetHandler none", "AddType application/x-httpd-php82 .php"] {
        assert!(read(line).problems.is_empty(), "{line}");
    }
}
