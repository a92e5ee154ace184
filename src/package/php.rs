//! Adds PHP with its dependencies from this machine to the package.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::elf::{self, ElfMachine};
use super::extensions::Extension;
use super::kind::PackageKind;
use super::libraries::Search;
use super::{OURS, PackageFiles, ini};

/// A PHP of this machine, as it reports itself.
#[derive(Debug)]
pub struct InstalledPhp {
    /// `surus-php8.x`.
    pub program: PathBuf,
    pub version: String,
    pub extension_dir: PathBuf,
    /// All ini files that PHP read, in this order.
    pub ini_files: Vec<PathBuf>,
    /// Extensions, by their own names.
    pub loaded: Vec<String>,
}

/// PHP's files in the package.
#[derive(Debug)]
pub struct Placed {
    pub machine: ElfMachine,
    /// Names in the package.
    pub program: String,
    pub loader: String,
    pub ini_file: String,
}

/// How the name of PHP's library begins.
pub const LIBPHP: &str = "libphp";

/// The time zone directory compiled into distribution PHPs; no setting changes it.
pub const ZONES: &str = "/usr/share/zoneinfo";

/// The certificate bundles of distributions.
const AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const OPENSSL_SETTINGS: &[&str] = &["/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf"];

/// Adds PHP with these extensions.
pub fn add(
    php: &InstalledPhp,
    extensions: &[Extension],
    kind: PackageKind,
    files: &mut PackageFiles,
) -> anyhow::Result<Placed> {
    let elf = elf::read(&php.program)?
        .with_context(|| format!("{} is not a 64-bit program", php.program.display()))?;
    let machine = elf.machine.with_context(|| {
        format!(
            "{} is built for a processor other than x86-64 and arm64",
            php.program.display()
        )
    })?;
    let interpreter = elf.interpreter.with_context(|| {
        format!(
            "{} is statically linked and cannot load PHP extensions",
            php.program.display()
        )
    })?;
    let loader = interpreter
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if !loader.starts_with("ld-linux") {
        bail!(
            "this PHP uses a C library other than glibc (its loader is {}); make the package on \
             Debian, Ubuntu, Fedora or Amazon Linux, or deploy a container image: \
             surus lambda template dockerfile",
            interpreter.display()
        );
    }

    supports_argv0(&interpreter)?;

    let search = Search::new(Some(machine));
    let mut roots = vec![php.program.clone()];
    roots.extend(extensions.iter().map(|extension| extension.file.clone()));
    let mut libraries = search.closure(&roots)?;
    // The directory of modules that this library loads at run time by name, if it exists.
    let modules_of = |name: &str, directory: &str| {
        let found = libraries.get(name)?.parent()?.join(directory);
        found.is_dir().then_some(found)
    };
    let (gconv, providers) = (
        modules_of("libc.so.6", "gconv"),
        modules_of("libcrypto.so.3", "ossl-modules"),
    );
    for (directory, ours) in [(&gconv, "gconv"), (&providers, "ossl-modules")] {
        let Some(directory) = directory else { continue };
        for (name, path) in below(directory, &[])? {
            files.copy(format!("{OURS}/{ours}/{name}"), path, false)?;
        }
    }
    libraries.extend(search.closure(&modules(&[gconv, providers])?)?);
    libraries.insert(loader.clone(), interpreter);

    let mut knows_zones = false;
    for (name, path) in &libraries {
        let target = format!("{OURS}/lib/{name}");
        let executable = *name == loader;
        let patched = match name.starts_with(LIBPHP) {
            true => with_packaged_zones(path)?,
            false => None,
        };
        knows_zones |= patched.is_some();
        match patched.filter(|_| kind == PackageKind::Function) {
            Some(patched) => files.text(target, patched)?,
            None => files.copy(target, path, executable)?,
        }
    }
    if knows_zones {
        for (name, path) in below(
            Path::new(ZONES),
            &["posix", "right", "localtime", "posixrules"],
        )? {
            files.copy(format!("{}/{name}", kind.zones()), path, false)?;
        }
    }
    for extension in extensions {
        let target = format!("{OURS}/extensions/{}.so", extension.name);
        files.copy(target, &extension.file, false)?;
    }
    let program = php
        .program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let program = format!("{OURS}/{program}");
    files.copy(program.as_str(), &php.program, true)?;

    let authorities = first(AUTHORITIES).context(
        "this machine has no CA certificates, so PHP could not verify any server; \
         install ca-certificates",
    )?;
    files.copy(format!("{OURS}/ca.pem"), authorities, false)?;
    if let Some(settings) = first(OPENSSL_SETTINGS) {
        files.copy(format!("{OURS}/openssl.cnf"), settings, false)?;
    }
    let ini_file = format!("{OURS}/php.ini");
    files.text(
        ini_file.as_str(),
        ini::compose(kind, &php.ini_files, extensions)?,
    )?;
    Ok(Placed {
        machine,
        program,
        loader: format!("{OURS}/lib/{loader}"),
        ini_file,
    })
}

/// Checks that the loader supports the options that `engine.dynamic_loader` needs.
fn supports_argv0(loader: &Path) -> anyhow::Result<()> {
    let help = Command::new(loader)
        .arg("--help")
        .output()
        .with_context(|| format!("cannot start {}", loader.display()))?;
    if !String::from_utf8_lossy(&help.stdout).contains("--argv0") {
        bail!(
            "{} belongs to a glibc before 2.33 and cannot start PHP from a package; use a newer \
             system, such as Debian 12",
            loader.display()
        );
    }
    Ok(())
}

fn first(paths: &[&str]) -> Option<PathBuf> {
    paths.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// The shared libraries in these directories.
fn modules(directories: &[Option<PathBuf>]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for directory in directories.iter().flatten() {
        let files = below(directory, &[])?.into_iter().map(|(_, path)| path);
        all.extend(
            files.filter(|path| path.extension().is_some_and(|extension| extension == "so")),
        );
    }
    Ok(all)
}

/// All files below a directory with their relative names.
pub fn below(directory: &Path, without: &[&str]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(inside) = todo.pop() {
        let path = directory.join(&inside);
        let entries =
            std::fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            let name = entry?.file_name();
            if inside.as_os_str().is_empty() && without.iter().any(|other| *other == name) {
                continue;
            }
            let inside = inside.join(name);
            let path = directory.join(&inside);
            if path.is_dir() {
                todo.push(inside);
            } else if path.is_file() {
                let name = inside
                    .to_str()
                    .with_context(|| format!("the name of {} is not UTF-8", path.display()))?;
                all.push((name.to_string(), path));
            }
        }
    }
    Ok(all)
}

/// The library with the system's time zone path replaced by that of a function. None if it has
/// built-in time zones, as PHP's own builds do.
fn with_packaged_zones(library: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let data =
        std::fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let kind = PackageKind::Function;
    Ok(with_zones(data, &kind.root().join(kind.zones())))
}

/// The same with another path, in which slashes fill what it is shorter by: nothing in a library
/// may move. None also if the path is too long.
pub fn with_zones(data: Vec<u8>, zones: &Path) -> Option<Vec<u8>> {
    let zones = zones.to_str().filter(|_| has_room(zones))?;
    replaced(data, ZONES, &format!("{zones:/<0$}", ZONES.len()))
}

/// Whether libphp has room for the path of a directory of time zones.
pub fn has_room(zones: &Path) -> bool {
    zones.as_os_str().len() <= ZONES.len()
}

/// Replaces each path that begins with `from` by one of the same length. None if there is none.
fn replaced(mut data: Vec<u8>, from: &str, to: &str) -> Option<Vec<u8>> {
    let places: Vec<usize> = memchr::memmem::find_iter(&data, from.as_bytes())
        .filter(|at| matches!(data.get(at + from.len()), Some(b'/' | 0)))
        .collect();
    for at in &places {
        data[*at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    (!places.is_empty()).then_some(data)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn time_zone_path_is_replaced_in_place() {
        let library =
            b"\0/usr/share/zoneinfo/%s/%s\0/usr/share/zoneinfo\0/usr/share/zoneinfo-x\0".to_vec();
        let with = |zones: &str| with_zones(library.clone(), Path::new(zones));
        let expected = b"\0/var/task/.surus/tz/%s/%s\0/var/task/.surus/tz\0/usr/share/zoneinfo-x\0";
        assert_eq!(with("/var/task/.surus/tz").unwrap(), expected);
        let expected = b"\0/tmp/surus/tz///////%s/%s\0/tmp/surus/tz//////\0/usr/share/zoneinfo-x\0";
        assert_eq!(with("/tmp/surus/tz").unwrap(), &expected[..]);
        assert!(with("/var/lib/surus/app/tz").is_none());
        assert!(with_zones(b"nothing".to_vec(), Path::new("/tz")).is_none());
    }

    #[test]
    fn loader_without_argv0_option_is_rejected() {
        let error = supports_argv0(Path::new("/bin/true"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("glibc before 2.33"), "{error}");
    }
}
