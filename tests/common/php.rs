//! The PHP that surus-php was built with.
#![allow(dead_code, clippy::unwrap_used)]

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::LazyLock;

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

/// Whether this PHP is known to lack the extension (`scripts/in-php`).
pub fn lacks(extension: &str) -> bool {
    let without = std::env::var("WITHOUT_EXTENSIONS").unwrap_or_default();
    // PHP 8.4 moved IMAP to PECL, and Debian dropped it.
    (extension == "imap" && is_since(Some("8.4")))
        || without.split_whitespace().any(|name| name == extension)
}

/// The extensions that tests of servers and engines use. Debian enables 35, and PHP takes three
/// times as long to start with all of them.
const FEW: &str =
    "opcache ctype ffi iconv mbstring posix shmop sockets sysvmsg sysvsem sysvshm tokenizer";

/// The PHP_INI_SCAN_DIR of tests that need other extensions, too.
pub fn all_extensions() -> (&'static str, &'static str) {
    static DIRECTORY: LazyLock<String> =
        LazyLock::new(|| format!("/etc/php/{}/embed/conf.d", minor()));
    ("PHP_INI_SCAN_DIR", &DIRECTORY)
}

pub fn is_few(extension: &str) -> bool {
    FEW.split(' ').any(|few| few == extension)
}

/// A PHP_INI_SCAN_DIR that loads these extensions and no other.
pub fn few_extensions() -> &'static str {
    static DIRECTORY: LazyLock<String> = LazyLock::new(|| {
        let user = std::fs::metadata("/proc/self").unwrap().uid();
        // Readable for the workers' user, as the target directory may not be.
        let directory = std::env::temp_dir().join(format!("surus-tests-{user}-php{}", minor()));
        let _ = std::fs::DirBuilder::new().mode(0o755).create(&directory);
        assert_eq!(
            std::fs::metadata(&directory).unwrap().uid(),
            user,
            "{}",
            directory.display()
        );
        for file in std::fs::read_dir(all_extensions().1).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            let extension = name
                .trim_end_matches(".ini")
                .split_once('-')
                .map_or("", |parts| parts.1);
            if is_few(extension) {
                put(&directory.join(&name), &std::fs::read(file.path()).unwrap());
            }
        }
        directory.to_str().unwrap().to_string()
    });
    &DIRECTORY
}

/// Several test processes may write it at once.
fn put(path: &Path, content: &[u8]) {
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return;
    }
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap()).unwrap();
    std::io::Write::write_all(&mut file, content).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), permissions).unwrap();
    file.persist(path).unwrap();
}
