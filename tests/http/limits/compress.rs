//! Tests a route that switches off compression.

use super::log::get_with;
use crate::common::Surus;

#[test]
fn route_decides_about_compression_and_leaves_the_rest_to_the_site() {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let page = "<?php echo str_repeat('page ', 1000);";
    std::fs::write(dir.path().join("index.php"), page).unwrap();
    let routes =
        "[{ prefix = '/account', compress = false }, { prefix = '/off/on', compress = true }]";
    for (enabled, expected) in [
        (
            "true",
            [("/", true), ("/account", false), ("/off/on", true)],
        ),
        (
            "false",
            [("/", false), ("/account", false), ("/off/on", true)],
        ),
    ] {
        let environment = [("SURUS_ROUTE", routes), ("SURUS_COMPRESS_ENABLED", enabled)];
        let surus = Surus::spawn(dir.path(), &["--workers", "1"], &environment).unwrap();
        for (path, is_compressed) in expected {
            let answer = get_with(&surus.address, path, "Accept-Encoding: gzip\r\n");
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            let says = answer.contains("content-encoding: gzip");
            assert_eq!(says, is_compressed, "{enabled} {path}");
        }
    }
}
