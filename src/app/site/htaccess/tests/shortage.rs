//! Tests that a shortage of memory or an error of the disk closes a directory only for a while.

use super::super::cost::MAX_MEMORY;
use super::*;
use crate::budget::Budget;

#[test]
fn site_is_open_again_when_other_sites_free_memory() {
    static ALL: Budget = Budget::new("test", 64 << 20);
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    // The first file fits into the site's own minimum, the second one does not.
    for (name, lines) in [("short", 10), ("long", 500)] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("x.txt"), "").unwrap();
        let text = "BrowserMatch bot[0-9]{9} bad\n".repeat(lines);
        fs::write(root.join(name).join(".htaccess"), text).unwrap();
    }
    let mut site = Site::open(root, &Settings::default(), None).unwrap();
    limit(&mut site, SiteMemory::within(&ALL, MAX_MEMORY));
    let now = Instant::now();
    let find = |path: &str, after: u64| {
        let now = now + Duration::from_secs(after);
        site.find(&normalize(path).unwrap(), now)
    };
    let others = ALL.try_take(64 << 20).unwrap();
    assert!(matches!(find("/short/x.txt", 0), Resolution::File(_)));
    for after in [0, 5] {
        let found = find("/long/x.txt", after);
        assert!(matches!(found, Resolution::Denied(Denial::BrokenHtaccess)));
    }
    drop(others);
    assert!(matches!(find("/long/x.txt", 9), Resolution::Denied(_)));
    assert!(matches!(find("/long/x.txt", 10), Resolution::File(_)));
    assert!(matches!(find("/short/x.txt", 10), Resolution::File(_)));
}

#[test]
fn file_whose_reading_fails_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".htaccess");
    fs::write(&path, "Require all denied").unwrap();
    let metadata = fs::metadata(&path).unwrap();
    let files = SiteFiles::default();
    let read = |path: &Path| {
        let file = File::open(path).unwrap();
        files
            .read(".htaccess", file, &metadata, Instant::now())
            .unwrap()
    };
    // A directory cannot be read, like a file on a disk that fails.
    assert_eq!(read(dir.path()).failed, Some(LookupError::Broken));
    let file = read(&path);
    assert!(file.failed.is_none() && !file.is_broken && !file.blocks.is_empty());
}
