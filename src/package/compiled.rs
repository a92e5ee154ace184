//! Precompiled OPcache files of a package: unpacks the package for compilation and adds the result.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;

use super::{OURS, PackageFiles, ROOT, symfony};

/// The directory of the compiled files in a package.
pub const DIRECTORY: &str = ".surus/opcache";

/// The paths of the files that PHP may run.
pub fn sources(files: &PackageFiles) -> Vec<String> {
    let is_php = |name: &str| {
        let extension = Path::new(name).extension();
        extension
            .is_some_and(|extension| ["php", "phtml", "inc"].iter().any(|php| extension == *php))
    };
    let ours = format!("{OURS}/");
    let library = format!("{OURS}/php/");
    files
        .iter()
        .map(|(name, _)| name)
        .filter(|name| is_php(name) && (!name.starts_with(&ours) || name.starts_with(&library)))
        .map(|name| format!("{ROOT}/{name}"))
        .collect()
}

/// Unpacks the package below `root` as Lambda does.
pub fn unpack(files: &PackageFiles, root: &Path) -> anyhow::Result<()> {
    // The time stored in the zip; OPcache records the times of files.
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(315_532_800);
    let task = root.join(ROOT.trim_start_matches('/'));
    for (name, file) in files.iter() {
        let path = task.join(name);
        let cannot = || format!("cannot write {}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(root)).with_context(cannot)?;
        let mode = if file.executable { 0o755 } else { 0o644 };
        let mut to = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .with_context(cannot)?;
        let mut content = file.content.open()?;
        std::io::copy(&mut content, &mut to).with_context(cannot)?;
        to.set_permissions(fs::Permissions::from_mode(mode))?;
        to.set_modified(time).with_context(cannot)?;
    }
    Ok(())
}

/// Adds what OPcache wrote into `from`, a path without links, and returns the number of files.
pub fn add(from: &Path, files: &mut PackageFiles) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in ignore::WalkBuilder::new(from)
        .standard_filters(false)
        .build()
    {
        let entry = entry?;
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let inside = entry.path().strip_prefix(from)?;
        let inside = inside.to_str().context("a name that is not UTF-8")?;
        // Skip the compiled files of the compiler script itself.
        if !inside.contains(&format!("{ROOT}/")) && !inside.contains(symfony::CACHE) {
            continue;
        }
        let path = entry.path().to_path_buf();
        files.copy_unlinked(format!("{DIRECTORY}/{inside}"), path, false)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sources_include_php_of_application_and_library_only() {
        let mut files = PackageFiles::default();
        for name in [
            "bootstrap",
            "app/index.php",
            "app/view.phtml",
            "app/logo.svg",
            ".surus/php.ini",
            ".surus/php/lambda/events.php",
            ".surus/lib/odd.php",
        ] {
            files.text(name, "").unwrap();
        }
        let expected = [
            "/var/task/.surus/php/lambda/events.php",
            "/var/task/app/index.php",
            "/var/task/app/view.phtml",
        ];
        assert_eq!(sources(&files), expected);
    }

    #[test]
    fn unpack_writes_files_below_the_task_root() {
        let root = tempfile::tempdir().unwrap();
        let mut files = PackageFiles::default();
        files.text("a/index.php", "<?php").unwrap();
        files.copy("bootstrap", "/bin/sh", true).unwrap();
        unpack(&files, root.path()).unwrap();
        let task = root.path().join("var/task");
        assert_eq!(
            fs::read_to_string(task.join("a/index.php")).unwrap(),
            "<?php"
        );
        let program = fs::metadata(task.join("bootstrap")).unwrap();
        assert_eq!(program.permissions().mode() & 0o777, 0o755);
        let year = program
            .modified()
            .unwrap()
            .duration_since(SystemTime::UNIX_EPOCH);
        assert_eq!(
            year.unwrap().as_secs() / 31_557_600,
            9,
            "1980 has not begun by leap days"
        );
    }
}
