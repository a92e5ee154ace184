//! Gives up root for good: user, groups, capabilities, and every way to get them back.

use std::fmt;
use std::io;

use nix::errno::Errno;
use nix::libc;

use crate::process::{self, User};

/// A user with all of its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's number.
    pub uid: u32,
    /// The number of its main group.
    pub gid: u32,
    /// The numbers of all groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Looks up the groups of a user.
    pub fn of(user: &User) -> io::Result<Identity> {
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

/// The highest number that a capability can have: sets are 64 bits.
const CAPABILITIES: libc::c_ulong = 64;

/// Makes this process one of `identity`, without capabilities, that can never have more rights than
/// it has then (`no_new_privs`), and that no process but root's may look into (not dumpable, no
/// core dumps). For a process with one thread. True where the bounding set of capabilities could be
/// emptied, too.
pub fn give_up(identity: &Identity) -> io::Result<bool> {
    let mut is_bounded = true;
    for capability in 0..CAPABILITIES {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            // The kernel knows no more.
            Err(Errno::EINVAL) => break,
            // Without CAP_SETPCAP. It only bounds what execve may add, and no_new_privs forbids
            // that anyway.
            Err(_) => is_bounded = false,
            Ok(()) => {}
        }
    }
    // SAFETY: setgroups(2) reads so many numbers; the others take numbers. The C library changes
    // all threads, of which there is one.
    unsafe {
        let groups = &identity.groups;
        Errno::result(libc::setgroups(groups.len(), groups.as_ptr()))?;
        let (uid, gid) = (identity.uid, identity.gid);
        Errno::result(libc::setresgid(gid, gid, gid))?;
        Errno::result(libc::setresuid(uid, uid, uid))?;
    }
    // Kernels without ambient capabilities have none to clear.
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as _);
    clear_capabilities()?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    prctl(libc::PR_SET_DUMPABLE, 0)?;
    crate::process::forbid_core_dumps()?;
    // SAFETY: setuid(2) takes a number. It must fail, unless this user is root by configuration.
    if identity.uid != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(io::Error::other("root could be had back"));
    }
    Ok(is_bounded)
}

/// Runs `look` with the access of `identity` to files, and none of root's capabilities for files.
/// For a process of root with one thread. It stays a process of root to all others: unlike a child
/// that has become `identity`, it cannot be stopped or ended by another process of that user.
pub fn with_access_of<T>(identity: &Identity, look: impl FnOnce() -> T) -> io::Result<T> {
    use nix::unistd::{Gid, Uid, getgroups, setfsgid, setfsuid, setgroups};
    struct Back(Vec<Gid>, Gid, Uid, DeathSignal);
    impl Drop for Back {
        fn drop(&mut self) {
            setfsuid(self.2);
            setfsgid(self.1);
            let is_back = (setfsuid(self.2), setfsgid(self.1)) == (self.2, self.1);
            if setgroups(&self.0).is_err() || !is_back {
                // A keeper with the groups of PHP's user must not go on.
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
    // These calls report no error; each returns the number that was in force before.
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

/// Empties the permitted, effective and inheritable sets.
fn clear_capabilities() -> io::Result<()> {
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
    let sets = [0_u32; 6];
    // SAFETY: capset(2) reads a header and, in this version, two structures of three u32.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    Errno::result(done)?;
    Ok(())
}

/// Has the kernel kill this process when the thread ends that has forked it; an error if `parent`
/// has ended already. To be called after [`give_up`], because a change of the user clears it.
pub fn end_with(parent: u32) -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as _)?;
    match nix::unistd::getppid().as_raw().cast_unsigned() == parent {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// Puts this process into a session and process group of its own. It has no terminal then: Ctrl-C
/// does not reach it, and it cannot type into the shell of the user who started the server
/// (`TIOCSTI`).
pub fn leave_terminal() -> io::Result<()> {
    nix::unistd::setsid()?;
    Ok(())
}

/// Names this thread, as `ps` and `top` show it; at most 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    let _ = prctl(libc::PR_SET_NAME, name.as_ptr() as libc::c_ulong);
}

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> Result<(), Errno> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: the options used here take numbers, or a C string that outlives the call, and change
    // the credentials and attributes of this process only.
    Errno::result(unsafe { libc::prctl(option, argument, NONE, NONE, NONE) })?;
    Ok(())
}
