//! Drops root permanently: user, groups, capabilities, and every way to regain them.

use std::fmt;
use std::io;

use nix::errno::Errno;
use nix::libc;

use crate::process::{self, User};

/// A user with all its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user id.
    pub uid: u32,
    /// The id of the primary group.
    pub gid: u32,
    /// The ids of all groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Looks up the groups of a user.
    pub fn new(user: &User) -> io::Result<Identity> {
        Ok(Identity {
            uid: user.uid,
            gid: user.gid,
            groups: process::groups(user)?,
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {} gid {}", self.uid, self.gid)
    }
}

/// The upper limit of capability numbers: sets have 64 bits.
const CAPABILITIES: libc::c_ulong = 64;

/// What a server needs whose PHP has another user: to become that user, and to end its processes
/// (linux/capability.h).
const NEEDED: [(u32, &str); 3] = [(5, "CAP_KILL"), (6, "CAP_SETGID"), (7, "CAP_SETUID")];

/// The needed capabilities that this process lacks.
pub fn lacking() -> io::Result<Vec<&'static str>> {
    let bits = effective()?;
    let lacking = NEEDED
        .iter()
        .filter(|(number, _)| bits & (1 << number) == 0);
    Ok(lacking.map(|(_, name)| *name).collect())
}

/// The effective capabilities of this process.
fn effective() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    Ok(bits.ok_or(io::ErrorKind::InvalidData)?)
}

/// What root needs to remove its files from directories of other users: `CAP_DAC_OVERRIDE` and
/// `CAP_FOWNER` (linux/capability.h).
const REMOVES_FILES: u64 = 1 << 1 | 1 << 3;

/// Leaves this process of root no capability but those to remove its files. It can never regain
/// others, and its memory can neither be inspected nor dumped.
pub fn keep_file_removal() -> io::Result<()> {
    let kept = effective()? & REMOVES_FILES;
    drop_bounding_set();
    set_capabilities(kept)?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    prctl(libc::PR_SET_DUMPABLE, 0)?;
    crate::process::forbid_core_dumps()
}

/// Saved groups of processes that other processes of the same user must not touch. The kernel lets
/// those open memory (ptrace(2)) and change limits (prlimit(2)) only if all three groups are
/// theirs. Groups without a name and without files; a user namespace may lack the first one. As in
/// sapi/base/procfs.c.
const GUARDS: [u32; 2] = [u32::MAX - 18, 65_533];

/// Makes this process run as `identity` without capabilities. It can never gain rights
/// (`no_new_privs`), and only root can inspect it (not dumpable, no core dumps) or change its
/// limits. The process must be single-threaded. Returns whether the capability bounding set was
/// cleared, too.
pub fn give_up(identity: &Identity) -> io::Result<bool> {
    let is_bounded = drop_bounding_set();
    // SAFETY: setgroups(2) reads `groups.len()` ids; the others take ids. The C library changes all
    // threads, and there is only one.
    unsafe {
        let groups = &identity.groups;
        Errno::result(libc::setgroups(groups.len(), groups.as_ptr()))?;
        let (uid, gid) = (identity.uid, identity.gid);
        let guards = GUARDS.into_iter().filter(|guard| *guard != gid);
        for saved in guards.chain([gid]) {
            match Errno::result(libc::setresgid(gid, gid, saved)) {
                Ok(_) => break,
                Err(error) if saved == gid => return Err(error.into()),
                Err(_) => {}
            }
        }
        Errno::result(libc::setresuid(uid, uid, uid))?;
    }
    set_capabilities(0)?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    prctl(libc::PR_SET_DUMPABLE, 0)?;
    crate::process::forbid_core_dumps()?;
    // SAFETY: setuid(2) takes an id. It must fail, unless this user is root by configuration.
    if identity.uid != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(io::Error::other("the process can still become root"));
    }
    Ok(is_bounded)
}

/// Runs `look` with the file access of `identity`, without root's file capabilities. The process
/// must be root and single-threaded. Other processes still see a process of root, so processes of
/// that user cannot stop or kill it, unlike a child that runs as `identity`.
pub fn with_access_of<T>(identity: &Identity, look: impl FnOnce() -> T) -> io::Result<T> {
    use nix::unistd::{Gid, Uid, getgroups, setfsgid, setfsuid, setgroups};
    struct Back(Vec<Gid>, Gid, Uid, DeathSignal);
    impl Drop for Back {
        fn drop(&mut self) {
            setfsuid(self.2);
            setfsgid(self.1);
            let is_back = (setfsuid(self.2), setfsgid(self.1)) == (self.2, self.1);
            if setgroups(&self.0).is_err() || !is_back {
                // A keeper with the groups of PHP's user must not continue.
                std::process::abort();
            }
            self.3.restore();
        }
    }
    let groups: Vec<_> = identity
        .groups
        .iter()
        .map(|gid| Gid::from_raw(*gid))
        .collect();
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let (old, death_signal) = (getgroups()?, DeathSignal::read()?);
    setgroups(&groups)?;
    let _back = Back(old, setfsgid(gid), setfsuid(uid), death_signal);
    // These calls report no error; each returns the previous id.
    match (setfsgid(gid), setfsuid(uid)) == (gid, uid) {
        true => Ok(look()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// The signal that this process gets when its parent exits. setfsuid(2) clears it.
struct DeathSignal {
    signal: libc::c_int,
    parent: nix::unistd::Pid,
}

impl DeathSignal {
    fn read() -> io::Result<DeathSignal> {
        let parent = nix::unistd::getppid();
        let mut signal: libc::c_int = 0;
        // SAFETY: PR_GET_PDEATHSIG writes one int to the given address.
        Errno::result(unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) })?;
        Ok(DeathSignal { signal, parent })
    }

    fn restore(&self) {
        if self.signal == 0 {
            return;
        }
        let _ = prctl(libc::PR_SET_PDEATHSIG, self.signal as _);
        // A parent that has exited meanwhile sends no signal.
        if nix::unistd::getppid() != self.parent {
            // SAFETY: raise(3) accesses no memory.
            unsafe { libc::raise(self.signal) };
        }
    }
}

/// Empties the capability bounding set. Returns whether it could.
fn drop_bounding_set() -> bool {
    let mut is_bounded = true;
    for capability in 0..CAPABILITIES {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            // The kernel has no more capabilities.
            Err(Errno::EINVAL) => break,
            // CAP_SETPCAP is missing. The bounding set only limits what execve may add, which
            // no_new_privs forbids anyway.
            Err(_) => is_bounded = false,
            Ok(()) => {}
        }
    }
    is_bounded
}

/// Sets the permitted and effective capabilities, and clears the inheritable and ambient ones.
fn set_capabilities(kept: u64) -> io::Result<()> {
    // Kernels without ambient capabilities have none to clear.
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as _);
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // Effective, permitted and inheritable, twice 32 bits each.
    let [low, high] = [kept as u32, (kept >> 32) as u32];
    let sets = [low, low, 0, high, high, 0];
    // SAFETY: capset(2) reads a header and, in this version, two structures of three u32.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    Errno::result(done)?;
    Ok(())
}

/// Makes the kernel kill this process when the thread that forked it exits. Fails if `parent` has
/// exited already. Call it after [`give_up`], because a change of the user clears the setting.
pub fn end_with(parent: u32) -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as _)?;
    match nix::unistd::getppid().as_raw().cast_unsigned() == parent {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// Puts this process into a new session and process group without a terminal. Ctrl-C does not reach
/// it, and it cannot type into the shell of the user who started the server (`TIOCSTI`).
pub fn leave_terminal() -> io::Result<()> {
    nix::unistd::setsid()?;
    Ok(())
}

/// Sets the name of this thread for `ps` and `top`; at most 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    let _ = prctl(libc::PR_SET_NAME, name.as_ptr() as libc::c_ulong);
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> Result<(), Errno> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: the options used here take numbers, or a C string that outlives the call. They change
    // only the credentials and attributes of this process.
    Errno::result(unsafe { libc::prctl(option, argument, NONE, NONE, NONE) })?;
    Ok(())
}
