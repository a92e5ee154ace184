//! The keeper's part in starting a pool's processes: checks the descriptors that the front end
//! sent.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use surus_sys::process::{self, Kind};
use surus_sys::rings::Rings;
use surus_sys::scoreboard::Scoreboard;
use surus_sys::shared_memory;

use super::Plan;
use super::cgi::server_vars;
use super::external::command::{ProcessInputs, Starter};
use super::external::furnish;
use super::external::ini_files;
use super::external::runtime_dir::OwnDir;
use super::external::{Address, ProgramKind};
use super::workers::generation;
use super::workers::generation::master;
use crate::launcher::{MASTER_DESCRIPTORS, Role};

/// The most bytes that environment variables of one request may have.
const MOST_ENV: u64 = 1 << 20;
/// The most bytes that the names of disabled functions may have.
const MOST_DISABLED: usize = 32 * 1024;

/// What starts an installed PHP of a pool.
pub struct PhpStarter {
    own: OwnDir,
    starter: Starter,
    disabled: Disabled,
}

/// The functions that PHP's settings disable. The front end must not determine them: `cli`
/// overrides that setting, so it could enable all functions.
enum Disabled {
    Unknown,
    /// A process of [`Role::Probe`] writes them into this file, and has not succeeded yet.
    Asked(std::fs::File),
    Known(String),
}

/// Starts the master process of a pool and returns its id. `groups` are those of PHP's user.
pub fn master(plan: &Plan, fds: Vec<OwnedFd>, groups: &[u32]) -> anyhow::Result<u32> {
    let Plan::SurusPhp { spec, limits, .. } = plan else {
        bail!("this pool has no master process");
    };
    let Ok(theirs) = <[OwnedFd; MASTER_DESCRIPTORS]>::try_from(fds) else {
        bail!("a master process with another number of descriptors than {MASTER_DESCRIPTORS}");
    };
    let requests = generation::requests(limits.capacity);
    let [control, inbox, board, waiting, rings, bell, stdout, stderr] = &theirs;
    let are_sockets = [control, inbox, waiting].map(|fd| process::kind(fd) == Kind::Seqpacket);
    let are_pipes = [stdout, stderr].map(|fd| process::kind(fd) == Kind::Pipe);
    // The master process must not find them shorter than expected.
    let board_size = Scoreboard::size(spec.workers, requests.into()) as u64;
    let is_board = shared_memory::is_sealed(board.as_fd(), board_size);
    let are_rings = shared_memory::is_sealed(rings.as_fd(), Rings::size(spec.workers) as u64);
    ensure!(
        are_sockets == [true; 3]
            && are_pipes == [true; 2]
            && is_board
            && are_rings
            && process::is_event(bell),
        "a master process with descriptors of another kind"
    );
    Ok(master::launch(spec, requests, theirs, groups)?.id())
}

/// Prepares what starts an installed PHP of a pool. `front` is the front end's user; `groups` are
/// those of PHP's user.
pub fn home(plan: &Plan, front: u32, groups: &[u32]) -> anyhow::Result<(PathBuf, PhpStarter)> {
    let Plan::External { spec, .. } = plan else {
        bail!("this pool runs no installed PHP");
    };
    ini_files::check(spec, groups)?;
    let own = furnish::furnish(spec, Some(front))?;
    let path = own.path("");
    let path = path.components().as_path().to_path_buf();
    let home = PhpStarter {
        starter: Starter::new(spec, &own, groups.to_vec())?,
        own,
        disabled: Disabled::Unknown,
    };
    Ok((path, home))
}

/// How many processes of an installed PHP a pool may have at once: two boots, and those that are
/// about to exit.
pub fn most(plan: &Plan) -> usize {
    match plan {
        Plan::SurusPhp { .. } => 0,
        Plan::External { spec, .. } => spec.workers * 4 + 8,
    }
}

/// Starts an installed PHP and returns its id.
pub fn php(
    plan: &Plan,
    home: &mut PhpStarter,
    role: Role,
    fds: Vec<OwnedFd>,
) -> anyhow::Result<u32> {
    let Plan::External { spec, .. } = plan else {
        bail!("this pool runs no installed PHP");
    };
    ensure!(
        home.own.path("").exists(),
        "the directory of this PHP is gone"
    );
    let mut fds = fds.into_iter();
    let mut next = |kinds: &[Kind]| {
        let fd = fds.next().context("descriptors are missing")?;
        let kind = process::kind(&fd);
        ensure!(kinds.contains(&kind), "a descriptor of another kind");
        Ok(fd)
    };
    // A process that may be root gets no standard input.
    let stdin = match (spec.way, role) {
        (ProgramKind::RoadRunner, Role::Server) => next(&[Kind::Pipe])?,
        (_, Role::Request) => next(&[Kind::File, Kind::Other])?,
        (_, Role::Probe | Role::Server) => {
            next(&[Kind::File, Kind::Other])?;
            super::external::command::nothing()?
        }
    };
    let mut stdio = [stdin, next(&[Kind::Pipe])?, next(&[Kind::Pipe])?];
    let mut env = Vec::new();
    let mut inputs = ProcessInputs::default();
    match (spec.way, role) {
        (ProgramKind::Cgi, Role::Request) => {
            let file = next(&[Kind::File])?;
            ensure!(
                shared_memory::is_sealed_content(file.as_fd()),
                "variables that may still change"
            );
            let mut file = std::fs::File::from(file).take(MOST_ENV + 1);
            file.read_to_end(&mut env)?;
            ensure!(env.len() as u64 <= MOST_ENV, "too many variables");
            ensure!(
                env.split(|byte| *byte == 0).all(is_of_request),
                "variables that are none of a request"
            );
            inputs.env = &env;
        }
        (ProgramKind::RoadRunner, Role::Server) => {
            if let Ok(file) = next(&[Kind::File]) {
                ensure!(
                    shared_memory::is_sealed_content(file.as_fd()),
                    "variables that may still change"
                );
                let mut file = std::fs::File::from(file).take(MOST_ENV);
                file.read_to_end(&mut env)?;
                ensure!(is_relay(&env), "a variable that is no relay's address");
                inputs.env = &env;
            }
        }
        (ProgramKind::Cli, Role::Request) => {
            let Disabled::Known(disabled) = &home.disabled else {
                bail!("it is not known yet which functions PHP's settings disable");
            };
            inputs.disabled = disabled;
            inputs.driver = Some([next(&[Kind::File])?, next(&[Kind::Pipe])?]);
        }
        (ProgramKind::Cli, Role::Probe) => {
            ensure!(
                matches!(home.disabled, Disabled::Unknown),
                "this PHP has been asked already which functions its settings disable"
            );
            let file = process::writable_memory_file()?;
            stdio[1] = file.try_clone()?;
            home.disabled = Disabled::Asked(file.into());
        }
        _ => {}
    }
    ensure!(fds.next().is_none(), "too many descriptors");
    let mut command = home.starter.command(role, inputs, stdio)?;
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", spec.program.display()))?;
    Ok(child.id())
}

/// A process of [`Role::Probe`] has succeeded; keeps what it printed.
pub fn probed(home: &mut PhpStarter) -> anyhow::Result<()> {
    let Disabled::Asked(file) = &home.disabled else {
        return Ok(());
    };
    let mut bytes = vec![0; MOST_DISABLED];
    let length = file.read_at(&mut bytes, 0)?;
    ensure!(length < MOST_DISABLED, "more than {MOST_DISABLED} bytes");
    bytes.truncate(length);
    let text = String::from_utf8(bytes)?;
    // It becomes part of an argument, in which a line break would begin another setting.
    let is_name =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_\\,: ".contains(&byte) || byte > 127;
    ensure!(text.bytes().all(is_name), "{text:?} are no names");
    home.disabled = Disabled::Known(text);
    Ok(())
}

/// Whether this is the variable that tells a worker of RoadRunner where to connect.
fn is_relay(variable: &[u8]) -> bool {
    let begins = |with: &[u8]| variable.starts_with(with);
    let is_address = begins(b"RR_RELAY=unix://") || begins(b"RR_RELAY=tcp://127.0.0.1:");
    is_address && !variable.contains(&0)
}

/// Whether this `NAME=value` is a variable of a CGI request. The dynamic loader, the C library and
/// other libraries read more names than one can list, such as GCONV_PATH and OPENSSL_MODULES.
fn is_of_request(variable: &[u8]) -> bool {
    let name = variable.split(|byte| *byte == b'=').next();
    let name = std::str::from_utf8(name.unwrap_or_default());
    variable.is_empty() || name.is_ok_and(server_vars::is_cgi)
}

/// Connects to the php-fpm that a pool has configured.
pub fn connect(plan: &Plan) -> anyhow::Result<OwnedFd> {
    match plan {
        Plan::External { spec, .. } => match &spec.address {
            Some(Address::Unix(path)) => {
                // The keeper must not wait.
                let path = std::path::absolute(path)?;
                let connected = surus_sys::socket::connect_at_once(&path);
                let connected =
                    connected.with_context(|| format!("cannot connect to {}", path.display()))?;
                Ok(connected)
            }
            _ => bail!("this pool has no unix socket of a php-fpm"),
        },
        Plan::SurusPhp { .. } => bail!("this pool has no php-fpm"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{is_of_request, is_relay};

    #[test]
    fn only_the_address_of_a_relay_is_given_to_a_worker() {
        for variable in [
            "RR_RELAY=unix:///tmp/x/relay.sock",
            "RR_RELAY=tcp://127.0.0.1:1",
        ] {
            assert!(is_relay(variable.as_bytes()), "{variable}");
        }
        for variable in [
            "",
            "LD_PRELOAD=/tmp/x",
            "RR_RELAY=pipes://fd/9:fd/9",
            "RR_RELAY=tcp://192.0.2.1:1",
            "RR_RELAY=unix:///x\0LD_PRELOAD=/tmp/x",
        ] {
            assert!(!is_relay(variable.as_bytes()), "{variable:?}");
        }
    }

    #[test]
    fn variables_that_libraries_read_are_rejected() {
        for variable in [
            "REQUEST_METHOD=GET",
            "HTTP_X=LD_PRELOAD",
            "HTTPS=on",
            "REDIRECT_STATUS=200",
            "SCRIPT_FILENAME=/x=y",
            "",
        ] {
            assert!(is_of_request(variable.as_bytes()), "{variable}");
        }
        for variable in [
            "LD_PRELOAD=/tmp/x",
            "PHPRC=/tmp",
            "PHP_INI_SCAN_DIR=/tmp",
            "GCONV_PATH=/tmp",
            "OPENSSL_MODULES=/tmp",
            "SSL_CERT_FILE=/tmp/x",
            "HOSTALIASES=/tmp/x",
            "PATH=/tmp",
            "HTTP_PROXY=http://evil.example",
            "LD_AUDIT",
            "TZ=x",
            "=x",
        ] {
            assert!(!is_of_request(variable.as_bytes()), "{variable}");
        }
    }
}
