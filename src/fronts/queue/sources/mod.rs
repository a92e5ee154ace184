//! Selects the broker that a `source` names.

#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::path::{Path, PathBuf};

use anyhow::bail;

/// Where a source's jobs are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// The file of a SQLite database.
    Sqlite(PathBuf),
}

impl Place {
    /// Reads `sqlite:FILE`, relative to the project.
    pub fn read(source: &str, project: &Path) -> anyhow::Result<Place> {
        match source.split_once(':') {
            Some(("sqlite", file)) if !file.is_empty() => {
                // `sqlite:///srv/app.sqlite` means the same file as `sqlite:/srv/app.sqlite`.
                let file = file.strip_prefix("//").unwrap_or(file);
                Ok(Place::Sqlite(project.join(file)))
            }
            _ => bail!(
                "queue.source is {source:?}; expected sqlite:FILE, such as \
                 \"sqlite:database/database.sqlite\""
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_file_is_relative_to_the_project() {
        let project = Path::new("/srv/app");
        for (source, file) in [
            ("sqlite:database/a.sqlite", "/srv/app/database/a.sqlite"),
            ("sqlite:/var/a.sqlite", "/var/a.sqlite"),
            ("sqlite:///var/a.sqlite", "/var/a.sqlite"),
        ] {
            let place = Place::read(source, project).unwrap();
            assert_eq!(place, Place::Sqlite(file.into()), "{source}");
        }
        for source in ["sqlite:", "database.sqlite", "oracle:x"] {
            let error = Place::read(source, project).unwrap_err().to_string();
            assert!(error.contains("queue.source"), "{error}");
        }
    }
}
