//! Tests DokuWiki, which stores files and has no database.

use std::process::Command;

use super::browser::Browser;
use super::client::{Client, Upload, urlencoded};
use super::site::{Site, extension, installed};
use crate::common::php::cli;

const PNG: &[u8] = include_bytes!("elephant.png");

/// DokuWiki as Debian ships it, not yet installed; configuration and data are inside the root, as
/// upstream has them.
fn site() -> Site {
    let mut site = Site::new()
        .copy(&installed("/usr/share/dokuwiki", "dokuwiki"), "")
        // This file sets Debian's own paths.
        .remove("inc/preload.php");
    for name in [
        "dokuwiki.php",
        "acronyms.conf",
        "entities.conf",
        "interwiki.conf",
        "license.php",
        "manifest.json",
        "mediameta.php",
    ]
    .into_iter()
    .chain([
        "mime.conf",
        "plugins.php",
        "plugins.required.php",
        "scheme.conf",
        "smileys.conf",
        "wordblock.conf",
    ]) {
        site = site.copy(
            &installed(&format!("/etc/dokuwiki/{name}"), "dokuwiki"),
            &format!("conf/{name}"),
        );
    }
    for name in [
        "attic",
        "cache",
        "index",
        "locks",
        "log",
        "media",
        "media_attic",
        "media_meta",
        "meta",
        "pages",
        "tmp",
    ] {
        site = site.directory(&format!("data/{name}"));
    }
    // As upstream has them; Debian keeps both directories elsewhere.
    let closed = "<IfModule mod_authz_core.c>
    Require all denied
</IfModule>
<IfModule !mod_authz_core.c>
    Order allow,deny
    Deny from all
</IfModule>
";
    for name in ["conf", "data"] {
        site = site.write(&format!("{name}/.htaccess"), closed);
    }
    site.replace("conf/dokuwiki.php", "'/var/lib/dokuwiki/data'", "'./data'")
}

/// Installs by the form.
fn install(visitor: &Client) {
    visitor
        .get("/install.php")
        .shows("DokuWiki Installer")
        .shows("d[superuser]");
    visitor
        .post(
            "/install.php",
            &[
                ("l", "en"),
                ("d[title]", "War Elephants"),
                ("d[acl]", "on"),
                ("d[superuser]", "hannibal"),
                ("d[fullname]", "Hannibal Barca"),
                ("d[email]", "hannibal@example.org"),
                ("d[password]", "alps-218"),
                ("d[confirm]", "alps-218"),
                ("d[policy]", "1"),
                ("d[license]", "cc-by-sa"),
                ("submit", ""),
            ],
        )
        .shows("The configuration was finished successfully");
}

/// Writes what the installer would write for the same answers.
fn configure(site: &Site) {
    let hash = Command::new(cli())
        .args(["-r", "echo password_hash('alps-218', PASSWORD_BCRYPT);"])
        .output()
        .unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    let local = "<?php
$conf['title'] = 'War Elephants';
$conf['lang'] = 'en';
$conf['license'] = 'cc-by-sa';
$conf['useacl'] = 1;
$conf['superuser'] = '@admin';
$conf['disableactions'] = 'register';
";
    let user = format!("hannibal:{hash}:Hannibal Barca:hannibal@example.org:admin,user\n");
    for (name, text) in [
        ("local.php", local),
        ("users.auth.php", user.as_str()),
        ("acl.auth.php", "*\t@ALL\t1\n*\t@user\t8\n"),
    ] {
        std::fs::write(site.www().join("conf").join(name), text).unwrap();
    }
}

#[test]
fn dokuwiki_is_installed_edited_and_shown() {
    extension("xml", "php-xml");
    extension("gd", "php-gd");
    let site = site();
    let surus = site.serve(&[]);
    let visitor = Client::new(&surus.url);

    // The package of Debian 13 has no installer.
    match site.www().join("install.php").exists() {
        true => install(&visitor),
        false => configure(&site),
    }

    // Anonymous users may read but not write.
    visitor
        .get("/doku.php?id=elephants&do=edit")
        .lacks(r#"name="wikitext""#);
    let login = visitor.get("/doku.php?id=start&do=login").ok();
    let wrong = [
        ("sectok", &*login.input("sectok")),
        ("id", "start"),
        ("do", "login"),
        ("u", "hannibal"),
        ("p", "rome"),
    ];
    visitor
        .post("/doku.php?id=start", &wrong)
        .status(403)
        .says("username or password was wrong");
    let right = [&wrong[..4], &[("p", "alps-218")]].concat();
    visitor
        .post("/doku.php?id=start", &right)
        .shows("Logged in as")
        .shows("Hannibal Barca");

    let editor = visitor
        .get("/doku.php?id=elephants&do=edit")
        .shows(r#"name="wikitext""#);
    let tokens = [
        "sectok",
        "rev",
        "date",
        "prefix",
        "suffix",
        "changecheck",
        "target",
    ]
    .map(|name| (name, editor.input(name)));
    let mut fields: Vec<(&str, &str)> = tokens
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let text = "====== Surus ======
He had **one tusk** & crossed the //Alps//: größer als Rom.

{{:surus.png?200|Surus}}
";
    fields.extend([
        ("id", "elephants"),
        ("wikitext", text),
        ("summary", "first"),
        ("do[save]", "1"),
    ]);
    visitor
        .post("/doku.php?id=elephants", &fields)
        .shows("<strong>one tusk</strong> &amp; crossed the <em>Alps</em>: größer als Rom.");

    // An anonymous user sees the page, its source, the feed and the list of changes.
    let stranger = Client::new(&surus.url);
    stranger
        .get("/doku.php?id=elephants")
        .shows(r#"<h1 class="sectionedit1" id="surus">Surus</h1>"#)
        .lacks("Logged in as");
    let source = stranger.get("/doku.php?id=elephants&do=export_raw").ok();
    assert_eq!(
        (source.header("content-type"), source.text()),
        ("text/plain; charset=utf-8", text.to_string())
    );
    // DokuWiki's access rules still apply.
    stranger.get("/data/pages/elephants.txt").status(403);
    stranger.get("/data/pages/nothing.txt").lacks("one tusk");
    stranger.get("/conf/users.auth.php").status(403);
    stranger.get("/conf/local.php").status(403);
    stranger.get("/inc/init.php").status(403);
    stranger
        .get("/doku.php?id=start&do=recent")
        .shows("elephants");
    stranger
        .get("/feed.php")
        .shows("<rdf:RDF")
        .shows("elephants");
    stranger
        .get("/doku.php?id=start&do=search&q=tusk")
        .shows("elephants");

    let token = visitor
        .get("/doku.php?id=elephants&do=edit")
        .input("sectok");
    let upload = Upload {
        field: "qqfile",
        name: "surus.png",
        mime: "image/png",
        bytes: PNG,
    };
    let fields = [
        ("call", "mediaupload"),
        ("sectok", &token),
        ("ns", ""),
        ("mediaid", "surus.png"),
        ("ow", "true"),
    ];
    let uploaded = visitor
        .upload(
            &format!("/lib/exe/ajax.php?{}", urlencoded(&fields)),
            &fields,
            &upload,
        )
        .ok();
    assert_eq!(uploaded.json()["success"], true, "{}", uploaded.text());

    let image = stranger.get("/lib/exe/fetch.php?media=surus.png").ok();
    assert_eq!(image.header("content-type"), "image/png");
    assert!(
        image.body == PNG,
        "the image came back with {} bytes instead of {}",
        image.body.len(),
        PNG.len()
    );
    let small = stranger
        .get("/doku.php?id=elephants")
        .find(r#"src="(/lib/exe/fetch.php\?w=200[^"]*)""#);
    let small = stranger.get(&small).ok();
    assert!(
        small.body.starts_with(b"\x89PNG") && small.body != PNG,
        "not scaled"
    );
    // A request with the image's ETag gets 304.
    let tag = image.header("etag").to_string();
    assert_eq!(
        stranger
            .get_as(
                "/lib/exe/fetch.php?media=surus.png",
                &[("if-none-match", &tag)]
            )
            .status(304)
            .body,
        b""
    );

    let browser = Browser::open();
    browser.go(&format!("{}/doku.php?id=elephants&do=login", surus.url));
    browser.fill("#dw__login input[name=u]", "hannibal");
    browser.fill("#dw__login input[name=p]", "alps-218");
    browser.click("#dw__login button[type=submit]");
    browser.sees("li.user", "Hannibal Barca");
    browser.click("#dokuwiki__pagetools li.edit a");
    browser.fill(
        "#wiki__text",
        "====== Surus ======\n\
         The bravest of the **elephants**, written in a browser.\n\n\
         {{:surus.png?300|Surus}}\n",
    );
    browser.click("#edbtn__save");
    browser.sees("div.page strong", "elephants");
    browser.screenshot("dokuwiki");
    stranger
        .get("/doku.php?id=elephants")
        .shows("written in a browser");
}
