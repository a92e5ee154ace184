//! Decides whether a php-fpm that is root could take code from files that PHP's user can change, or
//! read or write a file where that user leads it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use surus_sys::trusted_path;

/// The directory of a php-fpm that is root. PHP's user can create no file in it that a relative
/// path could name.
pub const DIRECTORY: &str = "/";

/// Whether settings or variables name files from which php-fpm's master process takes code or ini
/// settings, or any files that another user than root decides.
pub fn names_foreign_files(ini: &[(String, String)], env: &BTreeMap<String, String>) -> bool {
    const LOADS: [&str; 4] = [
        "extension_dir",
        "ffi.preload",
        "opcache.preload",
        "opcache.preload_user",
    ];
    // PHP, the dynamic loader, the C library and OpenSSL read such variables when they start.
    const READS: [&str; 7] = [
        "PHP", "LD_", "GCONV_", "GLIBC_", "MALLOC_", "LOCPATH", "OPENSSL_",
    ];
    // Only requests use these files, and they run as PHP's user.
    const OF_REQUESTS: [&str; 5] = [
        "auto_append_file",
        "auto_prepend_file",
        "open_basedir",
        "session.save_path",
        "upload_tmp_dir",
    ];
    let is_foreign = |(name, value): &(String, String)| {
        let name = name.as_str();
        let is_library = ["extension", "zend_extension"].contains(&name);
        // PHP looks for a bare name in its own directory.
        LOADS.contains(&name)
            || (is_library && value.contains('/'))
            || (!OF_REQUESTS.contains(&name) && names_others(value))
    };
    let reads = |name: &String| READS.iter().any(|begin| name.starts_with(begin));
    ini.iter().any(is_foreign) || env.keys().any(reads)
}

/// Whether a value could name a file that another user than root decides.
fn names_others(value: &str) -> bool {
    /// A longer one is not inspected, because each of its parts could be a path.
    const LONGEST: usize = 1024;
    // PHP replaces variables, strings and patterns by what this process does not know.
    let is_computed = value.contains("${")
        || (value.contains('/') && value.contains(['"', '\\', '*', '?', '[', '{', '~']));
    is_computed
        || (value.contains('/') && value.len() > LONGEST)
        || !paths(value).iter().all(|path| is_trusted(path))
}

/// The absolute paths that a value may name: itself, and parts of a list or of a command line.
fn paths(value: &str) -> Vec<PathBuf> {
    const BETWEEN: [char; 8] = [':', ';', ',', ' ', '\t', '=', '|', '\''];
    if !value.contains('/') {
        return Vec::new();
    }
    let after = value.match_indices(BETWEEN).map(|(at, _)| at + 1);
    let roots = value.match_indices('/').map(|(at, _)| at);
    let mut paths = Vec::new();
    for begin in after.chain(roots).chain([0]) {
        let rest = &value[begin..];
        let ends = rest.match_indices(BETWEEN).map(|(end, _)| end);
        let texts = ends.chain([rest.len()]).map(|end| &rest[..end]);
        paths.extend(texts.map(|text| Path::new(DIRECTORY).join(text)));
    }
    paths.sort();
    paths.dedup();
    paths
}

fn is_trusted(path: &Path) -> bool {
    /// The process's own output, whatever file this process has there.
    const OUTPUT: [&str; 4] = [
        "/dev/stderr",
        "/dev/stdout",
        "/proc/self/fd/1",
        "/proc/self/fd/2",
    ];
    // PHP resolves `..` before the kernel sees it.
    let is_plain = !path.components().any(|part| part == Component::ParentDir);
    OUTPUT.iter().any(|own| path == Path::new(own))
        || (is_plain && trusted_path::is_protected(path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn value_is_split_into_every_path_that_it_may_name() {
        assert!(paths("256M").is_empty());
        let found = paths("5;/a b/c");
        for path in ["/5;/a b/c", "/a b/c", "/a", "/b/c", "/c"] {
            assert!(found.contains(&path.into()), "{path} {found:?}");
        }
    }

    #[test]
    fn computed_values_and_parent_directories_are_foreign() {
        for value in ["${HOME}", "\"/a\" \"/b\"", "/a/*.txt", "/a/../b", "/a\\b"] {
            assert!(names_others(value), "{value}");
        }
        for value in ["On", "E_ALL & ~E_NOTICE", "256M", "/dev/stderr", "a*b", ""] {
            assert!(!names_others(value), "{value}");
        }
    }
}
