//! Gives up the front's rights, step by step, and says which steps were taken.

use std::path::PathBuf;

use anyhow::{Context, bail};
use surus_sys::confine::{Held, Reach};
use surus_sys::privileges::{self, Identity};
use surus_sys::process;
use tracing::{info, warn};

/// What the front end gives up in addition to root.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The user that it becomes, if configured.
    pub user: Option<String>,
    pub landlock: bool,
    pub seccomp: bool,
}

/// Users for the front, the best first.
const USERS: [&str; 3] = ["surus", "www-data", "nobody"];

/// The user that the front end becomes if PHP runs as `php`.
pub fn identity(settings: &Confinement, php: u32) -> anyhow::Result<Identity> {
    let find = |name: &str| {
        let found = process::find_user(name, None);
        found.with_context(|| format!("cannot look up the user `{name}` (http.user)"))
    };
    let user = match &settings.user {
        Some(name) => {
            let user = find(name)?;
            user.with_context(|| format!("there is no user `{name}`; create it, or set http.user"))?
        }
        None => {
            let mut found = Vec::new();
            for name in USERS {
                found.extend(find(name)?);
            }
            let other = found
                .iter()
                .position(|user| user.uid != php && user.uid != 0);
            let index = other.or_else(|| found.iter().position(|user| user.uid != 0));
            let index = index.with_context(|| {
                format!("there is none of the users {USERS:?}; create one, or set http.user")
            })?;
            found.swap_remove(index)
        }
    };
    if user.uid == 0 {
        bail!("http.user is root; the process that reads requests must have another user");
    }
    if user.uid == php {
        warn!(
            user = user.name,
            "the front and PHP are of the same user, so that PHP scripts may signal the front; set http.user"
        );
    }
    let identity = Identity::of(&user);
    identity.with_context(|| format!("cannot look up the groups of {} (http.user)", user.name))
}

/// Gives up everything that serving takes no part of, for ever. Called in the front, which has one
/// thread.
pub fn confine(
    settings: &Confinement,
    identity: &Identity,
    keeper: u32,
    reach: &Reach,
) -> anyhow::Result<()> {
    privileges::leave_terminal().context("cannot leave the keeper's process group")?;
    let is_bounded = privileges::give_up(identity).with_context(|| {
            format!(
                "cannot become {identity} (http.user); a server that is started as root needs the capabilities CAP_SETUID and CAP_SETGID"
            )
        })?;
    privileges::end_with(keeper).context("the keeper has ended")?;
    privileges::set_name(c"surus front");
    if !is_bounded {
        info!("the bounding set of capabilities stays, because CAP_SETPCAP is missing");
    }
    info!(
        uid = identity.uid,
        gid = identity.gid,
        groups = ?identity.groups,
        "front: privileges dropped; no capabilities, no_new_privs, not dumpable"
    );
    let trees = reach.trees.iter().map(|(path, _)| path);
    let reads: Vec<_> = reach.reads.iter().chain(trees).collect();
    match settings.landlock {
        false => info!("front: Landlock is switched off (http.landlock)"),
        true => match surus_sys::confine::landlock(reach) {
            Ok(Held::Wholly) => info!(
                reads = ?reads,
                writes = ?reach.writes,
                "front: Landlock restricts files, ports and signals"
            ),
            Ok(Held::Partly) => info!(
                reads = ?reads,
                writes = ?reach.writes,
                "front: Landlock restricts files; this kernel does not know all of it"
            ),
            Ok(Held::No) => info!("front: this kernel has no Landlock; files are not restricted"),
            Err(error) => bail!("cannot restrict the front (http.landlock): {error}"),
        },
    }
    match settings.seccomp {
        false => info!("front: seccomp is switched off (http.seccomp)"),
        true => match surus_sys::confine::seccomp() {
            Ok(()) => info!("front: seccomp forbids system calls that a server has no use for"),
            Err(error) if is_missing(&error) => {
                info!("front: this kernel has no seccomp; system calls are not restricted")
            }
            Err(error) => bail!("cannot restrict the front (http.seccomp): {error}"),
        },
    }
    Ok(())
}

fn is_missing(error: &std::io::Error) -> bool {
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    matches!(error.raw_os_error(), Some(EINVAL | ENOSYS))
}

/// What every front end can access in addition to its own directories.
pub fn reach() -> Reach {
    Reach {
        reads: [
            "/proc",
            "/sys/fs/cgroup",
            "/sys/devices/system/cpu",
            "/dev/urandom",
        ]
        .map(PathBuf::from)
        .to_vec(),
        trees: Vec::new(),
        writes: vec!["/dev/null".into()],
        connects: None,
        listens: false,
    }
}
