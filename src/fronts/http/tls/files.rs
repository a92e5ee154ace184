//! Reads the PEM files of certificates and keys. In a server that root has started, the keeper does
//! so and hands the result to the front end, whose user may not read the keys.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use surus_sys::regular_file;

use super::Settings;

/// The content of the configured files. It has no `Debug`, because it has keys.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsFiles {
    /// For all sites.
    pub pairs: Vec<Pair>,
    /// Those of the sites that name files of their own.
    pub sites: Vec<SitePairs>,
    pub client_ca: Option<PemFile>,
    /// What authorities have issued for the domains of `[acme]`.
    pub acquired: Vec<Acquired>,
    /// Why certificates of local domains could not be renewed.
    pub unrenewed: Option<String>,
}

/// A domain and its files, each with a chain and its key. A file that cannot be read is an error.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquired {
    pub domain: String,
    pub files: Vec<Result<PemFile, String>>,
    /// Why one of the files is in memory only.
    pub unstored: Option<String>,
}

/// The files of a site, or why they cannot be read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitePairs {
    pub site: String,
    pub pairs: Result<Vec<Pair>, String>,
}

impl SitePairs {
    /// Reads the files that the site's settings name, relative to its project. None if it names
    /// none.
    pub fn read(site: &str, settings: &Settings, project: &Path) -> Option<SitePairs> {
        if settings.certificate.is_empty() && settings.key.is_empty() {
            return None;
        }
        let pairs = read_pairs(settings, project);
        Some(SitePairs {
            site: site.to_owned(),
            pairs: pairs.map_err(|error| format!("{error:#}")),
        })
    }
}

/// A certificate with its chain, and its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub certificate: PemFile,
    pub key: PemFile,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PemFile {
    pub path: PathBuf,
    /// Its PEM blocks, without the text around them.
    pub text: String,
    /// All users of this machine may read it.
    pub is_public: bool,
}

/// Longer files are rejected. A chain has a few kilobytes, a list of all public authorities 250.
const MAX_BYTES: u64 = 1 << 20;

impl TlsFiles {
    /// Reads the files that the settings name, relative to the project.
    pub fn read(
        settings: &Settings,
        project: &Path,
        sites: Vec<SitePairs>,
        acquired: Vec<Acquired>,
    ) -> anyhow::Result<TlsFiles> {
        let client_ca = settings.client_ca.as_deref();
        let read = |path: &Path| PemFile::read(&project.join(path), "tls.client_ca");
        Ok(TlsFiles {
            pairs: read_pairs(settings, project)?,
            sites,
            client_ca: client_ca.map(read).transpose()?,
            acquired,
            unrenewed: None,
        })
    }

    /// All pairs that could be read.
    pub fn all_pairs(&self) -> impl Iterator<Item = &Pair> {
        let of_sites = self.sites.iter().filter_map(|own| own.pairs.as_ref().ok());
        self.pairs.iter().chain(of_sites.flatten())
    }
}

fn read_pairs(settings: &Settings, project: &Path) -> anyhow::Result<Vec<Pair>> {
    let Settings {
        certificate, key, ..
    } = settings;
    if certificate.len() != key.len() {
        bail!(
            "tls.certificate names {} files and tls.key {}; name one key for each certificate, in \
             the same order",
            certificate.len(),
            key.len()
        );
    }
    let read = |path: &Path, setting| PemFile::read(&project.join(path), setting);
    let pairs = certificate.iter().zip(key).map(|(certificate, key)| {
        Ok(Pair {
            certificate: read(certificate, "tls.certificate")?,
            key: read(key, "tls.key")?,
        })
    });
    pairs.collect()
}

impl PemFile {
    pub fn read(path: &Path, setting: &'static str) -> anyhow::Result<PemFile> {
        let name = || format!("{} ({setting})", path.display());
        let cannot = || format!("cannot read {}", name());
        let mut bytes = Vec::new();
        let file = regular_file::open(path).with_context(cannot)?;
        let mode = file.metadata().with_context(cannot)?.mode();
        let mut limited = file.take(MAX_BYTES + 1);
        limited.read_to_end(&mut bytes).with_context(cannot)?;
        if bytes.len() as u64 > MAX_BYTES {
            bail!("{} is larger than 1M; name a PEM file", name());
        }
        let file = PemFile::parse(path, setting, &bytes)?;
        Ok(PemFile {
            is_public: mode & 0o004 != 0,
            ..file
        })
    }

    /// A file with this content.
    pub fn parse(path: &Path, setting: &str, bytes: &[u8]) -> anyhow::Result<PemFile> {
        let text = blocks(&String::from_utf8_lossy(bytes));
        if text.is_empty() {
            bail!(
                "{} ({setting}) is not a PEM file: it has no line `-----BEGIN …-----`; convert a \
                 DER file with `openssl x509 -inform DER` or `openssl pkey -inform DER`",
                path.display()
            );
        }
        Ok(PemFile {
            path: path.to_path_buf(),
            text,
            is_public: false,
        })
    }
}

/// The PEM blocks of a text. The keeper hands nothing else to the front end, whatever file the
/// configuration names.
fn blocks(text: &str) -> String {
    let mut blocks = String::new();
    let mut end = None;
    for line in text.lines().map(str::trim_end) {
        if end.is_none()
            && let Some(label) = line.strip_prefix("-----BEGIN ")
        {
            end = Some(format!("-----END {label}"));
        }
        if let Some(last) = &end {
            blocks.push_str(line);
            blocks.push('\n');
            if line == last {
                end = None;
            }
        }
    }
    blocks
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn text_around_blocks_is_dropped() {
        let text = "root:x:0\n-----BEGIN A-----\r\nYQ==\n-----END A-----\nroot:y:0\n\
                    -----BEGIN B-----\nYg==\n-----END A-----\n-----END B-----\nmore";
        assert_eq!(
            blocks(text),
            "-----BEGIN A-----\nYQ==\n-----END A-----\n\
             -----BEGIN B-----\nYg==\n-----END A-----\n-----END B-----\n"
        );
        assert_eq!(blocks("root:x:0:0:root:/root:/bin/sh\n"), "");
    }

    #[test]
    fn unusable_file_is_named_with_its_setting_and_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let read = |path: &Path| match PemFile::read(path, "tls.key") {
            Ok(read) => panic!("{}", read.text),
            Err(error) => format!("{error:#}"),
        };
        let missing = read(&file);
        assert!(missing.starts_with(&format!("cannot read {} (tls.key): ", file.display())));
        assert!(read(dir.path()).contains("(tls.key): it is not a regular file"));
        std::fs::write(&file, b"\x30\x82").unwrap();
        assert!(read(&file).contains("openssl pkey -inform DER"));
        std::fs::write(&file, vec![b'-'; (1 << 20) + 1]).unwrap();
        assert!(read(&file).contains("larger than 1M"));
    }

    #[test]
    fn key_that_every_user_may_read_is_public() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "-----BEGIN A-----\n-----END A-----\n").unwrap();
        for (mode, is_public) in [(0o600, false), (0o640, false), (0o644, true)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let read = PemFile::read(&path, "tls.key").unwrap();
            assert_eq!(read.is_public, is_public, "{mode:o}");
        }
    }
}
