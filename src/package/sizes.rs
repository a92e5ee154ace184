//! The size of a package against Lambda's limits, by directory and file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::PackageFiles;

/// Lambda's limit for a function and its layers, unzipped.
pub const UNZIPPED: u64 = 262_144_000;

/// Lambda's limit for an upload without S3.
pub const UPLOADED: u64 = 50 << 20;

/// The sizes of a package in bytes.
pub struct Sizes {
    pub total: u64,
    /// By directory: the package's own parts, and the application's top-level directories.
    directories: BTreeMap<String, u64>,
    files: Vec<(u64, String)>,
}

impl Sizes {
    pub fn measure(files: &PackageFiles) -> anyhow::Result<Sizes> {
        let mut sizes = Sizes {
            total: 0,
            directories: BTreeMap::new(),
            files: Vec::new(),
        };
        for (name, file) in files.iter() {
            let size = file.content.size()?;
            sizes.total += size;
            *sizes.directories.entry(directory(name)).or_default() += size;
            sizes.files.push((size, name.to_string()));
        }
        sizes
            .files
            .sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        Ok(sizes)
    }

    pub fn fits(&self) -> bool {
        self.total <= UNZIPPED
    }

    /// One line per directory, largest first.
    pub fn directories(&self) -> String {
        let mut rows: Vec<_> = self.directories.iter().collect();
        rows.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let mut text = String::new();
        for (name, size) in rows {
            let _ = writeln!(text, "{}  {name}", mebibytes(*size));
        }
        text
    }

    /// The same, and the total next to Lambda's limit.
    pub fn table(&self) -> String {
        let mut text = self.directories();
        let share = self.total as f64 / UNZIPPED as f64 * 100.0;
        let _ = writeln!(
            text,
            "{}  unzipped, {share:.0}% of Lambda's limit",
            mebibytes(self.total)
        );
        text
    }

    /// One line for each of the largest files.
    pub fn largest(&self, count: usize) -> String {
        let mut text = String::new();
        for (size, name) in self.files.iter().take(count) {
            let _ = writeln!(text, "{}  {name}", mebibytes(*size));
        }
        text
    }
}

/// `vendor/symfony/console/x.php` → `vendor/symfony/`; `src/a/b.php` → `src/`; `index.php` →
/// `(files)`.
fn directory(name: &str) -> String {
    let mut parts = name.split('/');
    let deep = name.starts_with("vendor/") || name.starts_with(".surus/");
    let (first, second, third) = (parts.next(), parts.next(), parts.next());
    match (first, second, third) {
        (Some(first), Some(second), Some(_)) if deep => format!("{first}/{second}/"),
        (Some(first), Some(_), _) => format!("{first}/"),
        _ => "(files)".into(),
    }
}

pub fn mebibytes(bytes: u64) -> String {
    format!("{:>8.1} MiB", bytes as f64 / 1_048_576.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn largest_directory_comes_first() {
        let mut files = PackageFiles::default();
        for (name, mebi) in [
            ("bootstrap", 1),
            (".surus/lib/a.so", 3),
            (".surus/lib/b.so", 4),
            ("vendor/a/b/c.php", 2),
        ] {
            files.text(name, vec![0; mebi << 20]).unwrap();
        }
        let sizes = Sizes::measure(&files).unwrap();
        assert!(sizes.fits());
        assert_eq!(
            sizes.table(),
            "     7.0 MiB  .surus/lib/\n     2.0 MiB  vendor/a/\n     1.0 MiB  (files)\n    10.0 \
             MiB  unzipped, 4% of Lambda's limit\n"
        );
        assert_eq!(sizes.largest(1), "     4.0 MiB  .surus/lib/b.so\n");
        let too_much = Sizes {
            total: UNZIPPED + 1,
            directories: BTreeMap::new(),
            files: Vec::new(),
        };
        assert!(!too_much.fits());
    }
}
