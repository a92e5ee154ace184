//! Writes the package's php.ini from this machine's, with the package's paths.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::OURS;
use super::extensions::Extension;
use super::kind::PackageKind;

/// Copies the settings of `files` without comments and extensions, then appends the package's own,
/// which override them.
pub fn compose(
    kind: PackageKind,
    files: &[PathBuf],
    extensions: &[Extension],
) -> anyhow::Result<String> {
    let mut text = format!(
        "; Made by `{}` from the php.ini of the machine that it ran on.\n",
        kind.command()
    );
    for file in files {
        let ini = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        for line in String::from_utf8_lossy(&ini).lines().map(str::trim) {
            if is_setting(line) {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    // Ends a section for hosts or paths, which php.ini allows.
    text.push_str("[PHP]\n");
    let ours = kind.root().join(OURS);
    let mut set = |name: &str, value: &str| text.push_str(&format!("{name} = {value}\n"));
    set("extension_dir", &quoted(&ours.join("extensions")));
    for extension in extensions {
        let how = if extension.is_zend {
            "zend_extension"
        } else {
            "extension"
        };
        set(how, &extension.name);
    }
    let authorities = quoted(&ours.join("ca.pem"));
    set("openssl.cafile", &authorities);
    set("curl.cainfo", &authorities);
    // A function can write only to /tmp. An executable uses TMPDIR, by default /tmp, because this
    // machine's directories may not exist there.
    let temporary = match kind {
        PackageKind::Function => "\"/tmp\"",
        PackageKind::Executable => "\"\"",
    };
    for name in ["sys_temp_dir", "upload_tmp_dir", "session.save_path"] {
        set(name, temporary);
    }
    if kind == PackageKind::Function {
        // Its files never change.
        set("opcache.validate_timestamps", "0");
    }
    Ok(text)
}

fn is_setting(line: &str) -> bool {
    let name = line
        .split('=')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    !(line.is_empty()
        || line.starts_with(';')
        || line.starts_with('#')
        || ["extension", "zend_extension", "extension_dir"].contains(&name.as_str()))
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_copied_and_extensions_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = [
            file(
                "php.ini",
                "[PHP]\n; a comment\nmemory_limit = 128M\n\nextension=gd\n",
            ),
            file("20-apcu.ini", "extension=apcu.so\napc.enabled=0\n"),
        ];
        let extension = |name: &str, is_zend| Extension {
            name: name.into(),
            file: format!("/x/{name}.so").into(),
            is_zend,
        };
        let extensions = [extension("opcache", true), extension("apcu", false)];
        let text = compose(PackageKind::Function, &files, &extensions).unwrap();
        assert!(
            text.contains("memory_limit = 128M\napc.enabled=0\n"),
            "{text}"
        );
        assert!(
            text.contains("zend_extension = opcache\nextension = apcu\n"),
            "{text}"
        );
        assert!(!text.contains("gd") && !text.contains("comment"), "{text}");
        assert!(
            text.contains("extension_dir = \"/var/task/.surus/extensions\""),
            "{text}"
        );
        assert!(text.contains("validate_timestamps"), "{text}");
        let text = compose(PackageKind::Executable, &files, &extensions).unwrap();
        for expected in [
            "extension_dir = \"/@surus-build@/.surus/extensions\"",
            "session.save_path = \"\"",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(!text.contains("validate_timestamps"), "{text}");
    }
}
