//! Where does the dynamic loader of this machine find a library, and which others come with it?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::elf::{self, Elf, Machine};

/// Looks for libraries as `ld.so(8)` says it does.
pub struct Search {
    machine: Option<Machine>,
    /// By name, what `ldconfig` has found.
    cache: BTreeMap<String, Vec<PathBuf>>,
    /// Where it looks last.
    directories: Vec<PathBuf>,
}

impl Search {
    /// For programs of that machine.
    pub fn new(machine: Option<Machine>) -> Search {
        let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        let multiarch = match machine {
            Some(Machine::X86_64) => "x86_64-linux-gnu",
            Some(Machine::Arm64) => "aarch64-linux-gnu",
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

    /// All libraries of these programs and libraries, and the libraries of those, by the names under which they are asked for.
    pub fn closure(&self, roots: &[PathBuf]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
        let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
        // With each file, the rpaths of those that have led to it.
        let mut todo: Vec<(PathBuf, Vec<PathBuf>)> = roots
            .iter()
            .map(|root| (root.clone(), Vec::new()))
            .collect();
        while let Some((file, inherited)) = todo.pop() {
            let Some(elf) = elf::read(&file)? else {
                bail!(
                    "{} is neither a program nor a library of 64 bits",
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
                        "{} and {} are both asked for as {name}, and one directory can hold only one of them",
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
        // A file that has a RUNPATH is not looked at for an RPATH.
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
                    "{} needs {name}, which this machine does not have; install the package that it is from",
                    file.display()
                )
            })
    }

    /// A library of another machine is passed over, as the loader does.
    fn fits(&self, path: &Path) -> bool {
        path.is_file() && matches!(elf::read(path), Ok(Some(elf)) if elf.machine == self.machine)
    }
}

/// The directories of an RPATH or RUNPATH of that file.
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

/// The cache that `ldconfig` writes, in the format that glibc 2.32 and later write alone (`dl-cache.h`). Empty when it is something else:
/// then the directories remain.
fn read_cache(data: &[u8]) -> BTreeMap<String, Vec<PathBuf>> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // An older format may come first.
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
        // Variants for newer processors: the one that runs everywhere is beside them.
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
    fn the_closure_is_that_of_ldd() {
        let us = std::env::current_exe().unwrap();
        let machine = elf::read(&us).unwrap().unwrap().machine;
        let found = Search::new(machine)
            .closure(std::slice::from_ref(&us))
            .unwrap();
        let ldd = std::process::Command::new("ldd").arg(&us).output().unwrap();
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
        // The loader itself is a library of the C library, and ldd has it without an arrow.
        let more: Vec<_> = found
            .keys()
            .filter(|name| !expected.contains_key(*name))
            .collect();
        assert!(more.iter().all(|name| name.starts_with("ld-")), "{more:?}");
    }

    #[test]
    fn what_is_no_cache_is_none() {
        assert!(read_cache(b"").is_empty());
        assert!(read_cache(b"glibc-ld.so.cache1.1\xff\xff\xff\xff").is_empty());
        let real = std::fs::read("/etc/ld.so.cache").unwrap();
        assert!(read_cache(&real).contains_key("libc.so.6"));
    }

    #[test]
    fn origin_is_the_directory_of_the_file() {
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
