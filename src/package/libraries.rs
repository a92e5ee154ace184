//! Finds shared libraries and their dependencies as this machine's dynamic loader does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::elf::{self, Elf, ElfMachine};

/// Searches for libraries in the order of `ld.so(8)`.
pub struct Search {
    machine: Option<ElfMachine>,
    /// The content of ldconfig's cache, by library name.
    cache: BTreeMap<String, Vec<PathBuf>>,
    /// The default directories, searched last.
    directories: Vec<PathBuf>,
}

impl Search {
    /// For programs of this architecture.
    pub fn new(machine: Option<ElfMachine>) -> Search {
        let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        let multiarch = match machine {
            Some(ElfMachine::X86_64) => "x86_64-linux-gnu",
            Some(ElfMachine::Arm64) => "aarch64-linux-gnu",
            None => "",
        };
        let mut directories = Vec::new();
        if !multiarch.is_empty() {
            directories.push(Path::new("/lib").join(multiarch));
            directories.push(Path::new("/usr/lib").join(multiarch));
        }
        directories.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
        Search {
            machine,
            cache: read_cache(&cache),
            directories,
        }
    }

    /// All direct and indirect libraries of these files, by the name under which they are
    /// requested.
    pub fn closure(&self, roots: &[PathBuf]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
        let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
        // Each file with the RPATHs it inherits.
        let mut todo: Vec<(PathBuf, Vec<PathBuf>)> = roots
            .iter()
            .map(|root| (root.clone(), Vec::new()))
            .collect();
        while let Some((file, inherited)) = todo.pop() {
            let Some(elf) = elf::read(&file)? else {
                bail!(
                    "{} is neither a 64-bit program nor a 64-bit library",
                    file.display()
                );
            };
            let own = expand(&elf.rpath, &file);
            let rpaths: Vec<PathBuf> = own.into_iter().chain(inherited).collect();
            for name in &elf.needed {
                let path = self.find(name, &elf, &file, &rpaths)?;
                let file_name = name.rsplit('/').next().unwrap_or(name).to_string();
                match found.get(&file_name) {
                    None => {
                        found.insert(file_name, path.clone());
                        todo.push((path, rpaths.clone()));
                    }
                    Some(other) if same_file(other, &path) => {}
                    Some(other) => bail!(
                        "{} and {} are both requested as {name}, and one directory can hold only \
                         one of them",
                        other.display(),
                        path.display()
                    ),
                }
            }
        }
        Ok(found)
    }

    fn find(
        &self,
        name: &str,
        elf: &Elf,
        file: &Path,
        rpaths: &[PathBuf],
    ) -> anyhow::Result<PathBuf> {
        if name.contains('/') {
            return Ok(PathBuf::from(name));
        }
        let in_directories = |directories: &[PathBuf]| {
            let paths = directories.iter().map(|directory| directory.join(name));
            paths.into_iter().find(|path| self.fits(path))
        };
        let runpath = expand(&elf.runpath, file);
        // The loader ignores RPATH in a file with RUNPATH.
        let rpaths = if runpath.is_empty() { rpaths } else { &[] };
        in_directories(rpaths)
            .or_else(|| in_directories(&runpath))
            .or_else(|| {
                let cached = self.cache.get(name).into_iter().flatten();
                cached.into_iter().find(|path| self.fits(path)).cloned()
            })
            .or_else(|| in_directories(&self.directories))
            .with_context(|| {
                format!(
                    "{} needs {name}, which is not installed; install the package that contains it",
                    file.display()
                )
            })
    }

    /// Whether the library has the right architecture; the loader skips others.
    fn fits(&self, path: &Path) -> bool {
        path.is_file() && matches!(elf::read(path), Ok(Some(elf)) if elf.machine == self.machine)
    }
}

/// Expands the directories of the file's RPATH or RUNPATH.
fn expand(directories: &[String], file: &Path) -> Vec<PathBuf> {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    let origin = real.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let of = |text: &String| {
        PathBuf::from(
            text.replace("${ORIGIN}", &origin)
                .replace("$ORIGIN", &origin),
        )
    };
    directories
        .iter()
        .filter(|text| !text.is_empty())
        .map(of)
        .collect()
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Reads `ldconfig`'s cache in the only format that glibc 2.32 and later write (`dl-cache.h`).
/// Returns an empty map for other formats; the default directories are still searched.
fn read_cache(data: &[u8]) -> BTreeMap<String, Vec<PathBuf>> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // The older format may precede it.
    let Some(start) = memchr::memmem::find(data, MAGIC) else {
        return BTreeMap::new();
    };
    let data = &data[start..];
    let number = |at: usize| -> Option<usize> {
        let bytes = data.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    let text = |at: usize| -> Option<String> {
        let rest = data.get(at..)?;
        let end = memchr::memchr(0, rest)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    };
    let mut cache: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for index in 0..number(MAGIC.len()).unwrap_or(0) {
        let entry = HEADER + index * ENTRY;
        let (Some(key), Some(value)) = (number(entry + 4), number(entry + 8)) else {
            break;
        };
        // Skip variants for newer processors; the cache also lists the generic one.
        let plain = data
            .get(entry + 16..entry + 24)
            .is_some_and(|hwcap| hwcap == [0; 8]);
        if let (true, Some(key), Some(value)) = (plain, text(key), text(value)) {
            cache.entry(key).or_default().push(value.into());
        }
    }
    cache
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn closure_matches_ldd() {
        let test_program = std::env::current_exe().unwrap();
        let machine = elf::read(&test_program).unwrap().unwrap().machine;
        let found = Search::new(machine)
            .closure(std::slice::from_ref(&test_program))
            .unwrap();
        let ldd = std::process::Command::new("ldd")
            .arg(&test_program)
            .output()
            .unwrap();
        let ldd = String::from_utf8(ldd.stdout).unwrap();
        let expected: BTreeMap<String, PathBuf> = ldd
            .lines()
            .filter_map(|line| line.split_once(" => "))
            .map(|(name, path)| {
                let path = path.split(" (").next().unwrap();
                (name.trim().to_string(), PathBuf::from(path))
            })
            .collect();
        assert!(!expected.is_empty(), "{ldd}");
        for (name, path) in &expected {
            let ours = found
                .get(name)
                .unwrap_or_else(|| panic!("{name} is missing in {found:?}"));
            assert!(
                same_file(ours, path),
                "{name}: {ours:?}, and ldd says {path:?}"
            );
        }
        // ldd prints the loader, a dependency of libc, without an arrow.
        let more: Vec<_> = found
            .keys()
            .filter(|name| !expected.contains_key(*name))
            .collect();
        assert!(more.iter().all(|name| name.starts_with("ld-")), "{more:?}");
    }

    #[test]
    fn invalid_cache_is_empty() {
        assert!(read_cache(b"").is_empty());
        assert!(read_cache(b"glibc-ld.so.cache1.1\xff\xff\xff\xff").is_empty());
        let real = std::fs::read("/etc/ld.so.cache").unwrap();
        assert!(read_cache(&real).contains_key("libc.so.6"));
    }

    #[test]
    fn origin_expands_to_the_directory_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.so");
        std::fs::write(&file, "").unwrap();
        let real = dir.path().canonicalize().unwrap();
        let directories = [
            "$ORIGIN/../lib".to_string(),
            "${ORIGIN}".into(),
            String::new(),
        ];
        assert_eq!(expand(&directories, &file), [real.join("../lib"), real]);
    }
}
