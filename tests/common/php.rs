//! The PHP that surus-php was built with.
#![allow(dead_code)]

/// `8.2`.
pub fn minor() -> &'static str {
    surus_php::EXECUTABLE.rsplit("surus-php").next().unwrap()
}

/// The command of the same version: `php8.2`.
pub fn cli() -> String {
    format!("php{}", minor())
}

/// Whether it is `since` or newer; true without `since`.
pub fn is_since(since: Option<&str>) -> bool {
    since.is_none_or(|since| release(since) <= release(minor()))
}

/// `8.10` as numbers that can be compared.
fn release(minor: &str) -> Vec<u32> {
    minor.split('.').map(|n| n.parse().unwrap()).collect()
}

/// Whether this PHP is known to lack the extension (`scripts/test-php`).
pub fn lacks(extension: &str) -> bool {
    let without = std::env::var("WITHOUT_EXTENSIONS").unwrap_or_default();
    // PHP 8.4 moved IMAP to PECL, and Debian dropped it.
    (extension == "imap" && is_since(Some("8.4")))
        || without.split_whitespace().any(|name| name == extension)
}
