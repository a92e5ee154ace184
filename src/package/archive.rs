//! Writes the zip reproducibly: the same files give the same bytes.

use std::io::{Seek, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, anyhow};
use zip::write::{PreparedZipFile, SimpleFileOptions, ZipFileBuilder};
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{PackageFile, PackageFiles};

/// Writes all of `files`. Several threads call `progress` with the number of compressed files.
pub fn write(
    files: &PackageFiles,
    to: impl Write + Seek,
    progress: impl Fn(usize) + Sync,
) -> anyhow::Result<()> {
    let all: Vec<(&str, &PackageFile)> = files.iter().collect();
    let done: Vec<Mutex<Option<anyhow::Result<PreparedZipFile>>>> =
        all.iter().map(|_| Mutex::new(None)).collect();
    let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, file)) = all.get(index) else {
                break;
            };
            let compressed = compress(name, file);
            if let Ok(mut slot) = done[index].lock() {
                *slot = Some(compressed);
            }
            progress(count.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut zip = ZipWriter::new(to);
    for slot in done {
        let compressed = slot
            .into_inner()
            .map_err(|_| anyhow!("a compression thread failed"))?
            .context("a file was not compressed")??;
        zip.add_prepared_file(compressed)?;
    }
    zip.finish()?.flush()?;
    Ok(())
}

fn compress(name: &str, file: &PackageFile) -> anyhow::Result<PreparedZipFile> {
    // The earliest time that a zip can store: modification times on this machine would make the zip
    // irreproducible.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::DEFAULT)
        .unix_permissions(if file.executable { 0o755 } else { 0o644 });
    let mut builder = ZipFileBuilder::new(name, options)?;
    let mut content = file.content.open()?;
    std::io::copy(&mut content, &mut builder).with_context(|| format!("cannot package {name}"))?;
    Ok(builder.finish()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{Cursor, Read};
    use std::os::unix::fs::PermissionsExt;

    fn zip(files: &PackageFiles) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        write(files, &mut bytes, |_| ()).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn same_files_give_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "a".repeat(100_000)).unwrap();
        let files = || {
            let mut files = PackageFiles::default();
            files.copy("b/program", &path, true).unwrap();
            for index in 0..100 {
                files
                    .text(format!("b/{index}"), format!("text {index}"))
                    .unwrap();
            }
            files
        };
        let first = zip(&files());
        // The modification time, the file mode and the order of the threads must not matter.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::File::open(&path)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        assert_eq!(first, zip(&files()));

        let mut archive = zip::ZipArchive::new(Cursor::new(first)).unwrap();
        let names: Vec<String> = archive
            .file_names()
            .map(|name| name.unwrap().into_owned())
            .collect();
        assert!(names.is_sorted(), "{names:?}");
        let mut program = archive.by_name("b/program").unwrap();
        assert_eq!(program.unix_mode().unwrap() & 0o777, 0o755);
        let mut text = String::new();
        program.read_to_string(&mut text).unwrap();
        assert_eq!(text.len(), 100_000);
        drop(program);
        let mode = archive.by_name("b/7").unwrap().unix_mode().unwrap();
        assert_eq!(mode & 0o777, 0o644);
    }

    #[test]
    fn missing_file_is_named_in_the_error() {
        let mut files = PackageFiles::default();
        files.copy("x", "/nowhere/x", false).unwrap();
        let error = write(&files, Cursor::new(Vec::new()), |_| ()).unwrap_err();
        assert!(
            format!("{error:#}").contains("cannot read /nowhere/x"),
            "{error:#}"
        );
    }
}
