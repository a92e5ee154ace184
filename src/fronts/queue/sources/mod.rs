//! Selects the broker that a `source` names.

#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::path::{Path, PathBuf};

use anyhow::bail;

/// Where a source's jobs are.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub enum Place {
    /// The file of a SQLite database.
    Sqlite(PathBuf),
    /// The URL of a server of Redis or Valkey, which may have a password.
    Redis(String),
}

impl Place {
    /// Reads `sqlite:FILE`, relative to the project, or the URL of a Redis server.
    pub fn read(source: &str, project: &Path) -> anyhow::Result<Place> {
        match source.split_once(':') {
            Some(("sqlite", file)) if !file.is_empty() => {
                // `sqlite:///srv/app.sqlite` means the same file as `sqlite:/srv/app.sqlite`.
                let file = file.strip_prefix("//").unwrap_or(file);
                Ok(Place::Sqlite(project.join(file)))
            }
            Some(("redis" | "rediss" | "redis+unix" | "valkey" | "valkeys" | "valkey+unix", _)) => {
                Ok(Place::Redis(source.into()))
            }
            // It may have a password.
            _ => bail!(
                "queue.source begins with {:?}; expected sqlite:FILE or the URL of a Redis server, \
                 such as \"sqlite:database/database.sqlite\" or \"redis://127.0.0.1:6379\"",
                source.split(':').next().unwrap_or_default()
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
        for source in ["sqlite:", "database.sqlite", "oracle://a:secret@b"] {
            let error = Place::read(source, project).unwrap_err().to_string();
            assert!(error.contains("queue.source"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
