//! Refuses to start an installed PHP that would leave out ini files because its user cannot read
//! them. PHP silently continues without such a file, and so without `disable_functions`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use surus_sys::privileges::{self, Identity};
use surus_sys::process::{self, Orphan, User};
use surus_sys::regular_file;

use super::{PhpSpec, ProgramKind, command, fpm_master};

/// How long PHP may take to print its paths.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where a PHP looks for ini files if no variable names others.
#[derive(Clone)]
struct Paths {
    /// The directory of `php.ini`.
    php_ini: PathBuf,
    /// Directories of more ini files, separated by colons.
    scanned: OsString,
}

/// How long a failure is kept. A script can stop a program that is asked, and the keeper waits for
/// it.
const FAILED: Duration = Duration::from_secs(60);

/// The answers of programs, with the time.
type KnownPaths = BTreeMap<PathBuf, (Result<Paths, String>, Instant)>;

static KNOWN: Mutex<KnownPaths> = Mutex::new(BTreeMap::new());

/// Asks the program of a pool where it looks for ini files, before any script runs. [`check`]
/// reports a failure.
pub fn learn(spec: &PhpSpec, groups: &[u32]) {
    if let Some(user) = reader(spec) {
        let _ = paths(&spec.program, user, groups);
    }
}

/// Whether [`check`] knows the answer of the pool's program, or needs none. Once scripts run, one
/// of them can stop the program that is asked, and with it the keeper.
pub fn is_learned(spec: &PhpSpec) -> bool {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    reader(spec).is_none() || known.contains_key(&spec.program)
}

/// PHP's user, if it reads the ini files instead of root.
fn reader(spec: &PhpSpec) -> Option<&User> {
    let user = spec.user.as_ref().filter(|user| user.uid != 0)?;
    // A php-fpm that is root reads them as root.
    let by_root = fpm_master::is_roots(spec) || spec.address.is_some();
    (!by_root).then_some(user)
}

/// An error if PHP's user cannot read an ini file that PHP would otherwise read. For a process of
/// root with one thread; `groups` are those of PHP's user.
pub fn check(spec: &PhpSpec, groups: &[u32]) -> anyhow::Result<()> {
    let Some(user) = reader(spec) else {
        return Ok(());
    };
    let reader = IniReader {
        user,
        identity: Identity {
            uid: user.uid,
            gid: user.gid,
            groups: groups.to_vec(),
        },
    };
    let environment = command::environment(spec);
    let paths = paths(&spec.program, user, groups)?;
    if let Some(file) = &spec.ini_file {
        reader.open(file, " (engine.ini_file)")?;
    } else {
        let named = environment.get(&OsString::from("PHPRC"));
        for file in php_inis(spec, named.map(Path::new), &paths) {
            let is_missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
            match file.metadata() {
                Err(error) if is_missing.contains(&error.kind()) => {}
                Ok(found) if found.is_dir() => {}
                // PHP reads only the first one.
                _ => {
                    reader.open(&file, "")?;
                    break;
                }
            }
        }
    }
    let scanned = command::scanned(&environment).unwrap_or_default();
    let compiled_in = std::env::split_paths(&paths.scanned).collect::<Vec<_>>();
    for directory in std::env::split_paths(&scanned) {
        // An empty name means the compiled-in directories.
        match directory.as_os_str().is_empty() {
            true => compiled_in.iter().try_for_each(|one| reader.scan(one))?,
            false => reader.scan(&directory)?,
        }
    }
    Ok(())
}

/// The files of which PHP reads the first one that exists (`php_init_config` in main/php_ini.c).
fn php_inis(spec: &PhpSpec, named: Option<&Path>, paths: &Paths) -> Vec<PathBuf> {
    let sapi = match spec.way {
        ProgramKind::Cgi => "cgi-fcgi",
        ProgramKind::Fpm => "fpm-fcgi",
        ProgramKind::Builtin => "cli-server",
        ProgramKind::Cli | ProgramKind::RoadRunner => "cli",
    };
    let program = spec.program.canonicalize().ok();
    let program_dir = program.as_deref().and_then(Path::parent);
    let directories = [named, program_dir, Some(&paths.php_ini)];
    let mut files: Vec<PathBuf> = named.iter().map(PathBuf::from).collect();
    for name in [format!("php-{sapi}.ini"), "php.ini".into()] {
        files.extend(directories.iter().flatten().map(|path| path.join(&name)));
    }
    files
}

/// Opens files as PHP's user does.
struct IniReader<'a> {
    user: &'a User,
    identity: Identity,
}

impl IniReader<'_> {
    fn open(&self, file: &Path, setting: &str) -> anyhow::Result<()> {
        self.does(|| regular_file::open(file).map(drop), file, setting)
    }

    /// Opens the ini files of a directory.
    fn scan(&self, directory: &Path) -> anyhow::Result<()> {
        match std::fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            _ => self.does(|| std::fs::read_dir(directory).map(drop), directory, "")?,
        }
        for entry in std::fs::read_dir(directory)? {
            let file = entry?.path();
            if file.extension().is_some_and(|extension| extension == "ini") {
                // PHP skips what is not a regular file.
                let read = || match file.metadata() {
                    Ok(found) if !found.is_file() => Ok(()),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    _ => regular_file::open(&file).map(drop),
                };
                self.does(read, &file, "")?;
            }
        }
        Ok(())
    }

    fn does(
        &self,
        read: impl FnOnce() -> io::Result<()>,
        path: &Path,
        setting: &str,
    ) -> anyhow::Result<()> {
        let user = &self.user.name;
        let read = privileges::with_access_of(&self.identity, read)
            .with_context(|| format!("cannot become PHP's user {user} (engine.user)"))?;
        read.with_context(|| {
            format!(
                "cannot read {}{setting} as PHP's user {user} (engine.user); PHP would silently \
                 start without its settings, such as disable_functions; let that user read it",
                path.display()
            )
        })
    }
}

/// Asks a program, which runs as PHP's user, or remembers its answer.
fn paths(program: &Path, user: &User, groups: &[u32]) -> anyhow::Result<Paths> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = answer(&mut known, program, Instant::now(), || {
        ask(program, user, groups).and_then(|text| parse(&text))
    });
    answer.map_err(|why| {
        let program = program.display();
        anyhow!("cannot ask {program} where it looks for ini files ({program} -i): {why}")
    })
}

/// The known answer of a program. Asks for it if there is none, or an old failure.
fn answer(
    known: &mut KnownPaths,
    program: &Path,
    now: Instant,
    ask: impl FnOnce() -> anyhow::Result<Paths>,
) -> Result<Paths, String> {
    let is_current = |(answer, at): &&(Result<Paths, String>, Instant)| {
        answer.is_ok() || now.saturating_duration_since(*at) < FAILED
    };
    if let Some((answer, _)) = known.get(program).filter(is_current) {
        return answer.clone();
    }
    let answer = ask().map_err(|error| format!("{error:#}"));
    known.insert(program.into(), (answer.clone(), Instant::now()));
    answer
}

fn ask(program: &Path, user: &User, groups: &[u32]) -> anyhow::Result<String> {
    const MAX: usize = 1 << 20;
    let output = std::fs::File::from(process::writable_memory_file()?);
    let mut command = Command::new(program);
    command.arg("-i").env_clear().current_dir("/");
    command
        .stdin(command::nothing()?)
        .stderr(command::nothing()?);
    command.stdout(output.try_clone()?);
    process::child(
        &mut command,
        Some((user, groups)),
        Orphan::Killed,
        Vec::new(),
    )?;
    let mut child = command.spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > TIMEOUT {
            child.kill()?;
            child.wait()?;
            bail!("it has not ended after {} seconds", TIMEOUT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut bytes = vec![0; MAX];
    let length = output.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Reads what phpinfo() prints, which is HTML for php-cgi.
fn parse(text: &str) -> anyhow::Result<Paths> {
    let value = |label: &str| {
        let rest = text.split_once(label)?.1.trim_start();
        let html = rest.strip_prefix("</td><td class=\"v\">");
        let rest = html.or_else(|| rest.strip_prefix("=>"))?;
        let value = rest.split(['\n', '<']).next()?.trim();
        Some(if value == "(none)" { "" } else { value })
    };
    let php_ini = value("Configuration File (php.ini) Path");
    let scanned = value("Scan this dir for additional .ini files");
    match (php_ini, scanned) {
        (Some(php_ini), Some(scanned)) => Ok(Paths {
            php_ini: php_ini.into(),
            scanned: scanned.into(),
        }),
        _ => bail!("it does not print them"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_text_and_html() {
        for text in [
            "Configuration File (php.ini) Path => /etc/php/cli\n\
             Loaded Configuration File => (none)\n\
             Scan this dir for additional .ini files => (none)\n",
            "<tr><td class=\"e\">Configuration File (php.ini) Path </td><td class=\"v\">\
             /etc/php/cli </td></tr>\n<tr><td class=\"e\">Scan this dir for additional .ini files \
             </td><td class=\"v\">(none) </td></tr>\n",
        ] {
            let paths = parse(text).unwrap();
            assert_eq!(paths.php_ini.to_str(), Some("/etc/php/cli"));
            assert!(paths.scanned.is_empty());
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn answer_of_a_program_is_kept_and_a_failure_for_a_minute_only() {
        let mut known = KnownPaths::new();
        let runs = std::cell::Cell::new(0);
        let mut ask = |now: Instant, works: bool| {
            let answer = answer(&mut known, Path::new("/php"), now, || {
                runs.set(runs.get() + 1);
                match works {
                    true => Ok(Paths {
                        php_ini: "/etc/php".into(),
                        scanned: OsString::new(),
                    }),
                    false => bail!("it has not ended"),
                }
            });
            (answer.is_ok(), runs.get())
        };
        let now = Instant::now();
        assert_eq!(ask(now, false), (false, 1));
        assert_eq!(ask(now, true), (false, 1));
        assert_eq!(ask(Instant::now() + FAILED, true), (true, 2));
        assert_eq!(ask(Instant::now() + FAILED * 10, false), (true, 2));
    }
}
