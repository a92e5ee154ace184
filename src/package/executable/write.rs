//! Writes an executable: a copy of a surus, the zip behind it, and the record that leads to it.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail};
use memchr::memmem;
use surus_sys::appended::{self, LENGTH, MARK_LENGTH};

use super::{AppendedZip, sha256};
use crate::package::{PackageFiles, archive};

/// Writes the executable to an empty file. Several threads call `progress` with the number of
/// compressed files.
pub fn write(
    surus: &Path,
    files: &PackageFiles,
    mut to: &File,
    progress: impl Fn(usize) + Sync,
) -> anyhow::Result<()> {
    let program = fs::read(surus).with_context(|| format!("cannot read {}", surus.display()))?;
    let record = find_record(&program).with_context(|| surus.display().to_string())?;
    to.write_all(&program)?;
    let start = program.len() as u64;
    drop(program);
    archive::write(files, to, progress)?;
    let length = to.stream_position()? - start;
    let zip = AppendedZip {
        start,
        length,
        sha256: sha256(to, start, length)?,
    };
    Ok(to.write_all_at(&zip.record(), record)?)
}

/// Where the record of a surus without an application is in its file.
fn find_record(program: &[u8]) -> anyhow::Result<u64> {
    let empty = appended::record();
    let mut found = memmem::find_iter(program, &empty[..MARK_LENGTH]);
    let (Some(at), None) = (found.next(), found.next()) else {
        bail!("is not a surus of this version, or is compressed");
    };
    let record = program
        .get(at..at + LENGTH)
        .and_then(|record| record.try_into().ok());
    let record: &[u8; LENGTH] = record.context("is truncated")?;
    if AppendedZip::parse(record).is_some() {
        bail!("has an application already; name a surus without one (--surus)");
    }
    Ok(at as u64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn program_that_cannot_have_an_application_is_rejected() {
        let surus = tempfile::NamedTempFile::new().unwrap();
        let mut files = PackageFiles::default();
        files.text("app/index.php", "<?php").unwrap();
        let write = |program: &[u8]| {
            fs::write(surus.path(), program).unwrap();
            let to = tempfile::tempfile().unwrap();
            super::write(surus.path(), &files, &to, |_| ()).map(|()| to)
        };
        let record = appended::record();
        let zip = AppendedZip {
            start: 1,
            length: 1,
            sha256: [0; 32],
        };
        for (program, expected) in [
            (vec![0; 100], "is not a surus"),
            ([record, record].concat(), "is not a surus"),
            (record[..LENGTH - 1].to_vec(), "is truncated"),
            (zip.record().to_vec(), "has an application already"),
        ] {
            let error = format!("{:#}", write(&program).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        let to = write(&[b"program", &record[..], b"end"].concat()).unwrap();
        let mut written = [0; LENGTH];
        to.read_exact_at(&mut written, 7).unwrap();
        let zip = AppendedZip::parse(&written).unwrap();
        assert_eq!(zip.start, 7 + LENGTH as u64 + 3);
        assert_eq!(zip.end(), to.metadata().unwrap().len());
        let mut archive = zip::ZipArchive::new(to).unwrap();
        assert!(archive.by_name("app/index.php").is_ok());
    }
}
