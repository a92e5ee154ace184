//! Does any path leave the document root before a file is even looked at?

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
