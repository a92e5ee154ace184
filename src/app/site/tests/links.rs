//! Tests of symbolic links in and out of the document root.

use super::*;

#[test]
fn inner_links_are_followed_but_expose_no_hidden_file() {
    for symlinks in [Symlinks::Inside, Symlinks::Owner, Symlinks::Follow] {
        check(
            &Settings {
                symlinks,
                no_php: Some(vec!["/uploads".into()]),
                ..Settings::default()
            },
            &[
                ("/linked.css", "file linked.css"),
                ("/journal/", "run /journal/index.php"),
                ("/journal", "to /journal/"),
                ("/env.txt", "run /index.php"),
                ("/git/config", "run /index.php"),
                ("/assets/a/x.js", "not found"),
                ("/id_note", "not found"),
                ("/source.txt", "run /index.php"),
                ("/innocent.php", "denied"),
                ("/loop-a", "run /index.php"),
                ("/dangling", "run /index.php"),
            ],
        );
    }
}

#[test]
fn outer_links_are_followed_as_configured() {
    for (symlinks, out, passwd) in [
        (Symlinks::Inside, false, false),
        (Symlinks::Owner, true, true),
        (Symlinks::Follow, true, true),
    ] {
        let or = |allowed: bool, says: &'static str| if allowed { says } else { "denied" };
        check(
            &Settings {
                symlinks,
                ..Settings::default()
            },
            &[
                ("/out.txt", or(out, "file out.txt")),
                ("/storage/a.txt", or(out, "file storage/a.txt")),
                ("/run.php", or(out, "run /run.php")),
                ("/env2.txt", or(out, "run /index.php")),
                ("/secret.txt", or(out, "run /index.php")),
                // The tests' user owns the link, and is root or does not own the file.
                (
                    "/passwd",
                    or(
                        passwd && (symlinks == Symlinks::Follow || is_root()),
                        "file passwd",
                    ),
                ),
            ],
        );
    }
}

#[test]
fn link_of_another_owner_does_not_lead_out() {
    if !is_root() {
        return; // Only root gives files away.
    }
    let dir = project();
    let public = dir.path().join("public");
    symlink("../storage/a.txt", public.join("theirs.txt")).unwrap();
    symlink("../storage", public.join("uploads/deep")).unwrap();
    for link in ["theirs.txt", "uploads/deep", "passwd"] {
        lchown(public.join(link), Some(4711), Some(4711)).unwrap();
    }
    for site in sites(&dir, &Settings::default()) {
        assert_eq!(says(&site, "/theirs.txt"), "denied");
        assert_eq!(says(&site, "/uploads/deep/a.txt"), "denied");
        assert_eq!(says(&site, "/passwd"), "denied");
        assert_eq!(says(&site, "/storage/a.txt"), "file storage/a.txt");
        let Resolution::Denied(denial) = site.resolve("/theirs.txt") else {
            panic!()
        };
        assert!(denial.why().contains("symlinks = \"follow\""));
    }
    chown(dir.path().join("storage/a.txt"), Some(4711), Some(4711)).unwrap();
    for site in sites(&dir, &Settings::default()) {
        assert_eq!(says(&site, "/theirs.txt"), "file theirs.txt");
        // The directory that the link leads to belongs to another user; the file need not.
        assert_eq!(says(&site, "/uploads/deep/a.txt"), "denied");
    }
}

#[test]
fn files_that_kubernetes_mounts_through_dotted_links_are_served() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("..2025_01_01")).unwrap();
    fs::write(dir.path().join("..2025_01_01/a.txt"), "").unwrap();
    symlink("..2025_01_01", dir.path().join("..data")).unwrap();
    symlink("..data/a.txt", dir.path().join("a.txt")).unwrap();
    for site in sites(&dir, &Settings::default()) {
        assert_eq!(says(&site, "/a.txt"), "file a.txt");
        assert_eq!(says(&site, "/..data/a.txt"), "not found");
    }
}
