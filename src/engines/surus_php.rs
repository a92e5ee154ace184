//! Finds the program `surus-php`.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::external::command;

/// Finds `surus-php8.x`: the configured one, or the newest in the directory of `surus`, in
/// `../libexec`, in `../libexec/surus` or in `..`.
pub fn find(configured: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(program) = configured {
        return command::find_configured(program, "engine.surus_php");
    }
    let program =
        std::env::current_exe().context("cannot determine the path of the surus executable")?;
    let program_dir = program.parent().unwrap_or(Path::new("/"));
    let directories = [
        program_dir.to_path_buf(),
        program_dir.join("../libexec"),
        program_dir.join("../libexec/surus"),
        program_dir.join(".."),
    ];
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for directory in &directories {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let minor = name
                .to_str()
                .and_then(|name| name.strip_prefix("surus-php8."))
                .and_then(|minor| minor.parse().ok());
            if let Some(minor) = minor {
                found.push((minor, entry.path()));
            }
        }
    }
    found.sort();
    found.pop().map(|(_, path)| path).with_context(|| {
        format!(
            "surus-php8.x not found in {}; build it (cargo build --release) or name it in \
             engine.surus_php",
            directories
                .iter()
                .map(|directory| directory.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        )
    })
}
