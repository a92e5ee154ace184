//! The keeper's part in starting a pool's processes: checks the descriptors that the front end
//! sent.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use surus_sys::process::{self, DescriptorKind};
use surus_sys::rings::Rings;
use surus_sys::scoreboard::Scoreboard;
use surus_sys::shared_memory;

use super::PoolPlan;
use super::cgi::server_vars;
use super::external::command::{ProcessInputs, Starter};
use super::external::furnish;
use super::external::ini_files;
use super::external::runtime_dir::OwnDir;
use super::external::{FpmAddress, ProgramKind};
use super::workers::generation;
use super::workers::generation::master;
use crate::launcher::{MASTER_DESCRIPTORS, Role};

/// The most bytes of one request's environment variables.
const MAX_ENV: u64 = 1 << 20;
/// The most bytes of the names of disabled functions.
const MAX_DISABLED: usize = 32 * 1024;

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
pub fn master(plan: &PoolPlan, fds: Vec<OwnedFd>, groups: &[u32]) -> anyhow::Result<u32> {
    let PoolPlan::SurusPhp { spec, limits, .. } = plan else {
        bail!("the pool does not run surus-php");
    };
    let Ok(theirs) = <[OwnedFd; MASTER_DESCRIPTORS]>::try_from(fds) else {
        bail!("cannot start a master process: it takes {MASTER_DESCRIPTORS} descriptors");
    };
    let slots = generation::slots(limits.capacity);
    let [
        control,
        inbox,
        board,
        waiting,
        rings,
        doorbell,
        stdout,
        stderr,
    ] = &theirs;
    let are_sockets =
        [control, inbox, waiting].map(|fd| process::kind(fd) == DescriptorKind::Seqpacket);
    let are_pipes = [stdout, stderr].map(|fd| process::kind(fd) == DescriptorKind::Pipe);
    // The master process must not find them shorter than expected.
    let board_size = Scoreboard::size(spec.workers, slots.into()) as u64;
    let is_board = shared_memory::is_sealed(board.as_fd(), board_size);
    let are_rings = shared_memory::is_sealed(rings.as_fd(), Rings::size(spec.workers) as u64);
    ensure!(
        are_sockets == [true; 3]
            && are_pipes == [true; 2]
            && is_board
            && are_rings
            && process::is_event(doorbell),
        "cannot start a master process: a descriptor has the wrong type"
    );
    Ok(master::launch(spec, slots, theirs, groups)?.id())
}

/// Asks an installed PHP of a pool what the keeper must know to start it, before any script runs.
pub fn learn(plan: &PoolPlan, groups: &[u32]) {
    if let PoolPlan::External { spec, .. } = plan {
        ini_files::learn(spec, groups);
    }
}

/// Whether [`learn`] has asked a pool's installed PHP, or has nothing to ask.
pub fn is_learned(plan: &PoolPlan) -> bool {
    match plan {
        PoolPlan::SurusPhp { .. } => true,
        PoolPlan::External { spec, .. } => ini_files::is_learned(spec),
    }
}

/// Prepares what starts an installed PHP of a pool. `front` is the front end's user; `groups` are
/// those of PHP's user.
pub fn runtime_dir(
    plan: &PoolPlan,
    front: u32,
    groups: &[u32],
) -> anyhow::Result<(PathBuf, PhpStarter)> {
    let PoolPlan::External { spec, .. } = plan else {
        bail!("the pool does not run an installed PHP");
    };
    ini_files::check(spec, groups)?;
    let own = furnish::furnish(spec, Some(front))?;
    let path = own.path("");
    let path = path.components().as_path().to_path_buf();
    let php = PhpStarter {
        starter: Starter::new(spec, &own, groups.to_vec())?,
        own,
        disabled: Disabled::Unknown,
    };
    Ok((path, php))
}

/// How many processes of an installed PHP a pool may have at once: two boots, and those that are
/// about to exit.
pub fn max_processes(plan: &PoolPlan) -> usize {
    match plan {
        PoolPlan::SurusPhp { .. } => 0,
        PoolPlan::External { spec, .. } => spec.workers * 4 + 8,
    }
}

/// Starts an installed PHP and returns its id.
pub fn php(
    plan: &PoolPlan,
    php: &mut PhpStarter,
    role: Role,
    fds: Vec<OwnedFd>,
) -> anyhow::Result<u32> {
    let PoolPlan::External { spec, .. } = plan else {
        bail!("the pool does not run an installed PHP");
    };
    ensure!(
        php.own.path("").exists(),
        "the directory that PHP is started with no longer exists"
    );
    let mut fds = fds.into_iter();
    let mut next = |kinds: &[DescriptorKind]| {
        let fd = fds
            .next()
            .context("cannot start PHP: a descriptor is missing")?;
        let kind = process::kind(&fd);
        ensure!(
            kinds.contains(&kind),
            "cannot start PHP: a descriptor has the wrong type"
        );
        Ok(fd)
    };
    // A process that may be root gets no standard input.
    let stdin = match (spec.way, role) {
        (ProgramKind::RoadRunner, Role::Server) => next(&[DescriptorKind::Pipe])?,
        (_, Role::Request) => next(&[DescriptorKind::File, DescriptorKind::Other])?,
        (_, Role::Probe | Role::Server) => {
            next(&[DescriptorKind::File, DescriptorKind::Other])?;
            super::external::command::nothing()?
        }
    };
    let mut stdio = [
        stdin,
        next(&[DescriptorKind::Pipe])?,
        next(&[DescriptorKind::Pipe])?,
    ];
    let mut env = Vec::new();
    let mut inputs = ProcessInputs::default();
    match (spec.way, role) {
        (ProgramKind::Cgi, Role::Request) => {
            let file = next(&[DescriptorKind::File])?;
            ensure!(
                shared_memory::is_sealed_content(file.as_fd()),
                "cannot start PHP: its environment variables are not sealed"
            );
            let mut file = std::fs::File::from(file).take(MAX_ENV + 1);
            file.read_to_end(&mut env)?;
            ensure!(
                env.len() as u64 <= MAX_ENV,
                "cannot start PHP: its environment variables exceed {MAX_ENV} bytes"
            );
            ensure!(
                env.split(|byte| *byte == 0).all(is_of_request),
                "cannot start PHP: an environment variable is not a CGI variable"
            );
            inputs.env = &env;
        }
        (ProgramKind::RoadRunner, Role::Server) => {
            if let Ok(file) = next(&[DescriptorKind::File]) {
                ensure!(
                    shared_memory::is_sealed_content(file.as_fd()),
                    "cannot start PHP: its environment variables are not sealed"
                );
                let mut file = std::fs::File::from(file).take(MAX_ENV);
                file.read_to_end(&mut env)?;
                ensure!(
                    is_relay(&env),
                    "cannot start PHP: RR_RELAY is not the address of a relay"
                );
                inputs.env = &env;
            }
        }
        (ProgramKind::Cli, Role::Request) => {
            let Disabled::Known(disabled) = &php.disabled else {
                bail!(
                    "cannot start PHP: the functions that its settings disable are not known yet"
                );
            };
            inputs.disabled = disabled;
            inputs.driver = Some([
                next(&[DescriptorKind::File])?,
                next(&[DescriptorKind::Pipe])?,
            ]);
        }
        (ProgramKind::Cli, Role::Probe) => {
            ensure!(
                matches!(php.disabled, Disabled::Unknown),
                "PHP has already reported which functions its settings disable"
            );
            let file = process::writable_memory_file()?;
            stdio[1] = file.try_clone()?;
            php.disabled = Disabled::Asked(file.into());
        }
        _ => {}
    }
    ensure!(
        fds.next().is_none(),
        "cannot start PHP: there are too many descriptors"
    );
    let mut command = php.starter.command(role, inputs, stdio)?;
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {}", spec.program.display()))?;
    Ok(child.id())
}

/// A process of [`Role::Probe`] has succeeded; keeps what it printed.
pub fn keep_probe_output(php: &mut PhpStarter) -> anyhow::Result<()> {
    let Disabled::Asked(file) = &php.disabled else {
        return Ok(());
    };
    let mut bytes = vec![0; MAX_DISABLED];
    let length = file.read_at(&mut bytes, 0)?;
    ensure!(
        length < MAX_DISABLED,
        "disable_functions has more than {MAX_DISABLED} bytes"
    );
    bytes.truncate(length);
    let text = String::from_utf8(bytes)?;
    // It becomes part of an argument, in which a line break would begin another setting.
    let is_name =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_\\,: ".contains(&byte) || byte > 127;
    ensure!(
        text.bytes().all(is_name),
        "disable_functions is {text:?}, which are not function names"
    );
    php.disabled = Disabled::Known(text);
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
pub fn connect(plan: &PoolPlan) -> anyhow::Result<OwnedFd> {
    match plan {
        PoolPlan::External { spec, .. } => match &spec.address {
            Some(FpmAddress::Unix(path)) => {
                // The keeper must not wait.
                let path = std::path::absolute(path)?;
                let connected = surus_sys::socket::connect_at_once(&path);
                let connected =
                    connected.with_context(|| format!("cannot connect to {}", path.display()))?;
                Ok(connected)
            }
            _ => bail!("the pool has no php-fpm at a unix socket (engine.php_fpm_address)"),
        },
        PoolPlan::SurusPhp { .. } => bail!("the pool does not use php-fpm"),
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
