//! Tests that no worker can write to the snapshot, which all workers share.

use crate::booted::{BOOT, try_booted};

#[test]
fn snapshot_has_no_descriptor_in_requests() {
    let site =
        try_booted("rewind", BOOT, &["--workers", "1"], &[]).unwrap_or_else(|log| panic!("{log}"));
    let code = r#"
        foreach (scandir('/proc/self/fd') as $fd) {
            echo @readlink("/proc/self/fd/$fd"), "\n";
        }"#;
    std::fs::write(
        site.dir.path().join("descriptors.php"),
        format!("<?php {code}"),
    )
    .unwrap();
    let open = site.get("/descriptors.php").body;
    assert!(
        open.contains("/dev/null") && !open.contains("memfd:surus"),
        "{open}"
    );
}

/// A user with access to the process reaches it through its mappings.
#[test]
fn snapshot_is_sealed() {
    let site =
        try_booted("rewind", BOOT, &["--workers", "1"], &[]).unwrap_or_else(|log| panic!("{log}"));
    let worker = site.workers()[0];
    // The memory that all workers share, and the pages that this one has written before its
    // checkpoint.
    for name in ["surus-snapshot", "surus-own"] {
        cannot_be_changed(worker, name);
    }
}

fn cannot_be_changed(worker: u32, name: &str) {
    let maps = std::fs::read_to_string(format!("/proc/{worker}/maps")).unwrap();
    let shared = maps
        .lines()
        .find(|line| line.contains("r--s") && line.contains(name))
        .unwrap_or_else(|| panic!("no shared mapping of {name} in\n{maps}"));
    let (range, _) = shared.split_once(' ').unwrap();
    let path = format!("/proc/{worker}/map_files/{range}");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path);
    let Ok(mut file) = file else {
        eprintln!("skipped: no right to open {path}");
        return;
    };
    let written = std::io::Write::write(&mut file, b"x");
    assert_eq!(
        written.map_err(|error| error.raw_os_error()),
        Err(Some(1)),
        "{name}: EPERM"
    );
    assert!(file.set_len(0).is_err(), "{name} can be made smaller");
    assert!(file.set_len(1 << 40).is_err(), "{name} can be made larger");
}
