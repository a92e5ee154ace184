//! Adds Surus's PHP library to the package if the application does not contain it.

use std::path::Path;

use anyhow::{Context, bail};

use super::{OURS, PackageFiles, php};

/// Adds the library that contains `script`, its `lambda/events.php`. Returns that file's name in
/// the package, or None if the script belongs to the application.
pub fn add(
    project: &Path,
    script: &Path,
    files: &mut PackageFiles,
) -> anyhow::Result<Option<String>> {
    let project = project.canonicalize()?;
    if script.starts_with(&project) {
        return Ok(None);
    }
    let root = script
        .parent()
        .and_then(Path::parent)
        .filter(|root| root.join("src/Lambda").is_dir());
    let Some(root) = root else {
        bail!(
            "{} (lambda.script) is neither in the project nor in Surus's PHP library; put it into \
             the project",
            script.display()
        );
    };
    for part in ["src", "lambda"] {
        for (name, path) in php::below(&root.join(part), &[])? {
            files.copy(format!("{OURS}/php/{part}/{name}"), path, false)?;
        }
    }
    let inside = script
        .strip_prefix(root)?
        .to_str()
        .context("the path of lambda.script is not UTF-8")?;
    Ok(Some(format!("{OURS}/php/{inside}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn library_is_packaged_unless_the_application_contains_it() {
        let project = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("php");
        let mut files = PackageFiles::default();
        let script = add(project.path(), &root.join("lambda/events.php"), &mut files).unwrap();
        assert_eq!(script.as_deref(), Some(".surus/php/lambda/events.php"));
        let names: Vec<_> = files.iter().map(|(name, _)| name).collect();
        for name in [
            ".surus/php/lambda/events.php",
            ".surus/php/src/Lambda/Runner.php",
            ".surus/php/src/Engine.php",
        ] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }

        let own = project
            .path()
            .canonicalize()
            .unwrap()
            .join("vendor/surus/surus/lambda/events.php");
        let mut files = PackageFiles::default();
        assert_eq!(add(project.path(), &own, &mut files).unwrap(), None);
        assert!(files.is_empty());

        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        let error = add(project.path(), elsewhere.path(), &mut files)
            .unwrap_err()
            .to_string();
        assert!(error.contains("put it into the project"), "{error}");
    }
}
