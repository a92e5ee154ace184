//! Tests `RewriteCond` on files that only PHP's user reaches, and on files that no one may look up.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use crate::server::{app, get, id_of, is_root, start};

/// Conditions that Apache would find true with the rights of PHP's user, and what Surus answers.
const CLOSED: [(&str, &str); 12] = [
    ("file", "%{DOCUMENT_ROOT}/closed.flag -f"),
    ("dot", "%{DOCUMENT_ROOT}/.closed -f"),
    ("size", "%{DOCUMENT_ROOT}/closed.flag -s"),
    ("directory", "%{DOCUMENT_ROOT}/below -d"),
    ("root", "%{DOCUMENT_ROOT} -d"),
    ("link", "%{DOCUMENT_ROOT}/link -l"),
    ("dangling", "%{DOCUMENT_ROOT}/dangling -l"),
    ("to-dot", "%{DOCUMENT_ROOT}/to-dot -f"),
    ("to-source", "%{DOCUMENT_ROOT}/to-source -f"),
    ("below-dot", "%{DOCUMENT_ROOT}/to-hidden/link -l"),
    ("outside", "OUTSIDE/closed.flag -f"),
    ("outside-link", "OUTSIDE/link -l"),
];

/// Conditions that certainly do not hold.
const OPEN: [(&str, &str); 5] = [
    ("no-file", "%{DOCUMENT_ROOT}/none.flag -f"),
    ("no-directory", "%{DOCUMENT_ROOT}/closed.flag -d"),
    ("no-link", "%{DOCUMENT_ROOT}/closed.flag -l"),
    ("no-path", "%{DOCUMENT_ROOT}/closed.flag/none -l"),
    ("no-size", "%{DOCUMENT_ROOT}/empty -s"),
];

pub fn condition_on_a_file_of_php_denies_where_the_front_end_cannot_enter() {
    if !is_root() {
        return;
    }
    let php = id_of("www-data");
    let (dir, outside) = (app(&[]), app(&[("closed.flag", "x")]));
    let root = dir.path().join("public");
    for made in ["", "below"] {
        std::fs::create_dir(root.join(made)).unwrap();
    }
    for (name, text) in [
        ("index.php", "<?php echo 'front';"),
        ("closed.flag", "x"),
        (".closed", "x"),
        ("empty", ""),
    ] {
        std::fs::write(root.join(name), text).unwrap();
    }
    symlink("closed.flag", root.join("link")).unwrap();
    symlink(".closed", root.join("to-dot")).unwrap();
    symlink("index.php", root.join("to-source")).unwrap();
    std::fs::create_dir(root.join(".hidden")).unwrap();
    symlink("../closed.flag", root.join(".hidden/link")).unwrap();
    symlink(".hidden", root.join("to-hidden")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("closed.flag", outside.path().join("link")).unwrap();
    for (name, condition) in CLOSED.iter().chain(&OPEN) {
        let condition = condition.replace("OUTSIDE", outside.path().to_str().unwrap());
        let below = root.join(format!("for-{name}"));
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("a.txt"), "sent").unwrap();
        let rules = format!("RewriteEngine On\nRewriteCond {condition}\nRewriteRule ^ - [F]\n");
        std::fs::write(below.join(".htaccess"), rules).unwrap();
    }
    // As in Magento and TYPO3.
    let front = root.join("app");
    std::fs::create_dir(&front).unwrap();
    std::fs::write(front.join("a.txt"), "sent").unwrap();
    let rules = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\n\
        RewriteCond %{REQUEST_FILENAME} !-d\nRewriteCond %{REQUEST_FILENAME} !-l\n\
        RewriteRule ^ /index.php [L]\n";
    std::fs::write(front.join(".htaccess"), rules).unwrap();
    for closed in [root.as_path(), outside.path()] {
        chown(closed, Some(php), None).unwrap();
        set_permissions(closed, Permissions::from_mode(0o700)).unwrap();
    }
    let env = [("SURUS_HTTP_USER", "nobody")];
    let surus = start(dir.path(), &["--engine", "classic"], &env);
    for (name, condition) in CLOSED {
        let (status, body) = get(&surus, &format!("/for-{name}/a.txt")).unwrap();
        assert_eq!(status, 403, "{condition}: {body}\n{}", surus.log());
    }
    for (name, condition) in OPEN {
        let answer = get(&surus, &format!("/for-{name}/a.txt"));
        assert_eq!(answer, Some((200, "sent".into())), "{condition}");
    }
    assert_eq!(get(&surus, "/app/a.txt"), Some((200, "sent".into())));
    assert_eq!(get(&surus, "/app/page"), Some((200, "front".into())));
    surus.wait_for_log(|log| log.contains("tests a path that Surus may not look up"));
}
