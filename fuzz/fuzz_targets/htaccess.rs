//! Fuzzes the reader of `.htaccess`: no panic, and problems only on lines that exist.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::app::site::read_htaccess;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split('\n').count() as u32;
    let file = read_htaccess(&text);
    assert!(file.problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
});
