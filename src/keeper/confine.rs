//! Drops the front end's privileges step by step, and logs which steps succeeded.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, bail};
use surus_sys::confine::{AccessRules, Enforcement};
use surus_sys::privileges::{self, Identity};
use surus_sys::process;
use tracing::{info, warn};

/// What the front end gives up in addition to root.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The user that the front end runs as, if configured.
    pub user: Option<String>,
    pub landlock: bool,
    pub seccomp: bool,
}

/// Candidate users for the front end, in order of preference. PHP's users come after all others.
const USERS: [&str; 3] = ["surus", "www-data", "nobody"];

/// The user of the front end if PHP runs as these uids.
pub fn identity(settings: &Confinement, php: &[u32]) -> anyhow::Result<Identity> {
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
            let uids: Vec<u32> = found.iter().map(|user| user.uid).collect();
            let index = choose(&uids, php).with_context(|| {
                format!("none of the users {USERS:?} exists; create one, or set http.user")
            })?;
            let user = found.swap_remove(index);
            if user.name != USERS[0] {
                warn!(
                    user = user.name,
                    "the front end runs as a user that other services may have, too; set \
                     http.user to a user of its own (useradd --system NAME)"
                );
            }
            user
        }
    };
    if user.uid == 0 {
        bail!("http.user is root; the process that reads requests must have another user");
    }
    if php.contains(&user.uid) {
        warn!(
            user = user.name,
            "the front end and PHP run as the same user, so PHP scripts can signal the \
             front end; set http.user"
        );
    }
    let identity = Identity::new(&user);
    identity.with_context(|| format!("cannot look up the groups of {} (http.user)", user.name))
}

/// The position of the first candidate that is neither root nor PHP's user, else of the first that
/// is not root.
fn choose(candidates: &[u32], php: &[u32]) -> Option<usize> {
    let other = candidates
        .iter()
        .position(|uid| !php.contains(uid) && *uid != 0);
    other.or_else(|| candidates.iter().position(|uid| *uid != 0))
}

/// An error if this process lacks a capability that a keeper needs.
pub fn check_capabilities() -> anyhow::Result<()> {
    let lacking = privileges::lacking().context("cannot read /proc/self/status")?;
    if !lacking.is_empty() {
        bail!(
            "root lacks {}: a server that is started as root needs CAP_SETUID and CAP_SETGID to \
             start processes of other users, and CAP_KILL to end them; add what is missing \
             (--cap-add), or start Surus as a user",
            lacking.join(" and ")
        );
    }
    Ok(())
}

/// Permanently drops all privileges that serving does not need. Called in the front end, which has
/// one thread at this point.
pub fn confine(
    settings: &Confinement,
    identity: &Identity,
    keeper: u32,
    reach: &AccessRules,
) -> anyhow::Result<()> {
    privileges::leave_terminal().context("cannot leave the keeper's process group")?;
    let is_bounded = privileges::give_up(identity).with_context(|| {
        format!(
            "cannot become {identity} (http.user); a server started as root needs the \
                 capabilities CAP_SETUID, CAP_SETGID and CAP_KILL"
        )
    })?;
    privileges::end_with(keeper).context("the keeper has exited")?;
    privileges::set_name(c"surus front end");
    if !is_bounded {
        info!("cannot clear the capability bounding set: CAP_SETPCAP is missing");
    }
    info!(
        uid = identity.uid,
        gid = identity.gid,
        groups = ?identity.groups,
        "front end: privileges dropped; no capabilities, no_new_privs, not dumpable"
    );
    let trees = reach.trees.iter().map(|(path, _)| path);
    let reads: BTreeSet<_> = reach.reads.iter().chain(trees).collect();
    let reads = Vec::from_iter(reads);
    match settings.landlock {
        false => info!("front end: Landlock is switched off (http.landlock)"),
        true => match surus_sys::confine::landlock(reach) {
            Ok(Enforcement::Full) => info!(
                reads = ?reads,
                writes = ?reach.writes,
                "front end: Landlock restricts files, ports and signals"
            ),
            Ok(Enforcement::Partial) => info!(
                reads = ?reads,
                writes = ?reach.writes,
                "front end: Landlock restricts files; this kernel supports only part of it"
            ),
            Ok(Enforcement::None) => {
                info!("front end: this kernel has no Landlock; files are not restricted")
            }
            Err(error) => bail!("cannot restrict the front end (http.landlock): {error}"),
        },
    }
    match settings.seccomp {
        false => info!("front end: seccomp is switched off (http.seccomp)"),
        true => match surus_sys::confine::seccomp(reach.has_unix_sockets) {
            Ok(()) => info!("front end: seccomp forbids system calls that a server does not need"),
            Err(error) if is_missing(&error) => {
                info!("front end: this kernel has no seccomp; system calls are not restricted")
            }
            Err(error) => bail!("cannot restrict the front end (http.seccomp): {error}"),
        },
    }
    Ok(())
}

/// The same for the process that gets a certificate: it reads from the network, too.
pub fn confine_attempt(
    settings: &Confinement,
    identity: &Identity,
    keeper: u32,
) -> anyhow::Result<()> {
    privileges::leave_terminal().context("cannot leave the keeper's process group")?;
    privileges::give_up(identity).context("cannot give up root")?;
    privileges::end_with(keeper).context("the keeper has exited")?;
    privileges::set_name(c"surus acme");
    // For the C library, which looks hosts up: its settings, its modules, and their sockets.
    let reads = [
        "/etc",
        "/lib",
        "/lib64",
        "/usr/lib",
        "/run",
        "/dev/urandom",
        "/proc/sys",
    ];
    let reach = AccessRules {
        reads: reads.map(PathBuf::from).to_vec(),
        ..AccessRules::default()
    };
    if settings.landlock {
        let restricted = surus_sys::confine::landlock(&reach);
        restricted.context("cannot restrict the process (http.landlock)")?;
    }
    if settings.seccomp {
        match surus_sys::confine::seccomp(true) {
            Err(error) if !is_missing(&error) => {
                bail!("cannot restrict the process (http.seccomp): {error}")
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_missing(error: &std::io::Error) -> bool {
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    matches!(error.raw_os_error(), Some(EINVAL | ENOSYS))
}

/// What every front end can access in addition to its own directories.
pub fn reach() -> AccessRules {
    AccessRules {
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
        has_unix_sockets: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_end_has_a_user_of_no_php_where_one_exists() {
        for (candidates, php, expected) in [
            (&[70, 33, 65534][..], &[33][..], Some(0)),
            (&[33, 65534], &[1000], Some(0)),
            (&[33, 65534], &[33], Some(1)),
            // Of several sites, none must have it.
            (&[70, 33, 65534], &[33, 70], Some(2)),
            (&[70, 33, 65534], &[33, 70, 65534], Some(0)),
            (&[0, 33], &[33], Some(1)),
            (&[0], &[33], None),
            (&[], &[33], None),
        ] {
            assert_eq!(choose(candidates, php), expected, "{candidates:?} {php:?}");
        }
    }
}
