//! Fuzzes URL paths: none leaves the document root.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::app::site::normalize;

fuzz_target!(|raw: &str| {
    let Ok(normal) = normalize(raw) else { return };
    let path = normal.path();
    assert!(path.starts_with('/'));
    assert!(!path.contains("//") && !path.contains('\0'));
    assert!(
        path.split('/')
            .all(|segment| segment != "." && segment != "..")
    );
});
