//! Fuzzes the reader of `.htaccess`: no panic, problems only on lines that exist, and nothing above
//! the limits, also if a part of the file is repeated many times.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::app::site::{SiteMemory, read_htaccess};

/// The longest file that the server reads.
const LONGEST: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    check(&text);
    // The text behind this byte is repeated, up to the next one.
    if let Some((before, rest)) = text.split_once('\x01') {
        let (part, behind) = rest.split_once('\x01').unwrap_or((rest, ""));
        let times = (LONGEST / part.len().max(1)).min(20_000);
        check(&format!("{before}{}{behind}", part.repeat(times)));
    }
});

fn check(text: &str) {
    let lines = text.split('\n').count() as u32;
    let memory = SiteMemory::default();
    let file = read_htaccess(text, &memory);
    let mut problems = file.problems.iter();
    assert!(problems.all(|problem| (1..=lines).contains(&problem.line)));
    assert!(file.problems.iter().all(|problem| problem.what.len() < 1200));
    // A hundred, one for a syntax error, and one that counts those that are left out.
    assert!(file.problems.len() <= 102);
    let directives = file.blocks.iter().map(|block| {
        block.compat.len()
            + block.require.len()
            + block.handlers.len()
            + block.redirects.len()
            + block.env.len()
            + block.fixed_env.len()
    });
    let directives: usize = directives.sum();
    let index = file.index.as_ref().map_or(0, Vec::len);
    let rules = file.rewriting.as_ref().map_or(0, |rewriting| rewriting.rules.len());
    assert!(directives + index + rules <= 50_000);
    assert!(file.spent <= 64 << 20);
    assert!(file.spent >= 256 * (directives + index + rules) || file.is_broken);
}
