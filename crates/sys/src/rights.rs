//! Looks at files with the rights of another user, for a moment and in one thread.

use std::io;

use nix::libc;

use crate::process::{self, User};

/// Whose rights: those that PHP's processes have.
#[derive(Debug)]
pub struct Rights {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// What is put back.
    ours: Ours,
}

#[derive(Debug, Clone)]
struct Ours {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Rights {
    /// Of a user with all of its groups, to be used by this process, whose own must stay what they are now.
    pub fn of(user: &User) -> io::Result<Rights> {
        let ours = nix::unistd::getgroups()?;
        Ok(Rights {
            uid: user.uid,
            gid: user.gid,
            groups: process::groups(user)?,
            ours: Ours {
                uid: nix::unistd::geteuid().as_raw(),
                gid: nix::unistd::getegid().as_raw(),
                groups: ours.into_iter().map(nix::unistd::Gid::as_raw).collect(),
            },
        })
    }

    /// Does `look` with them. What it opens stays open; what it starts, threads and processes, would keep them. An error where the kernel
    /// does not let us, in which case nothing was done.
    pub fn with<T>(&self, look: impl FnOnce() -> T) -> io::Result<T> {
        let back = Back(&self.ours);
        set_groups(&self.groups)?;
        set_fs_ids(self.uid, self.gid)?;
        let seen = look();
        drop(back);
        Ok(seen)
    }
}

/// Puts this thread's own rights back, also when `look` panics.
struct Back<'a>(&'a Ours);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        // The user first: the capabilities of root over files come back with it. That of setting groups never went.
        let ids = set_fs_ids(self.0.uid, self.0.gid);
        if ids.and_then(|()| set_groups(&self.0.groups)).is_err() {
            // A thread of the server must not go on as somebody else, neither with less nor with more.
            std::process::abort();
        }
    }
}

/// Of this thread alone: the C library's function would change those of all.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: setgroups(2) reads `len` group ids, which are u32 on all systems with 64 bits, and changes nothing but the credentials of
    // the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// For files alone, so that nobody but root may send us signals meanwhile. Of this thread alone, in every C library.
fn set_fs_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: setfsuid(2) and setfsgid(2) take a number each and change nothing but the credentials of the calling thread. They tell no
    // error, but what was set before: asked a second time, what is set now.
    let (uid_now, gid_now) = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        (libc::setfsuid(uid), libc::setfsgid(gid))
    };
    match (uid_now.cast_unsigned(), gid_now.cast_unsigned()) == (uid, gid) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{File, Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn status() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let is_ours = |line: &&str| {
            ["Uid:", "Gid:", "Groups:", "CapEff:"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        status
            .lines()
            .filter(is_ours)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn what_another_may_not_read_is_not_opened_and_our_own_rights_come_back() {
        if !process::is_root() {
            eprintln!("skipped: not root");
            return;
        }
        let nobody = process::find_user("nobody", None).unwrap().unwrap();
        let mut rights = Rights::of(&nobody).unwrap();
        rights.groups = vec![nobody.gid, 4711];
        let dir = tempfile::tempdir().unwrap();
        set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let file = |name: &str, mode: u32, group: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(0), Some(group)).unwrap();
            path
        };
        let (all, ours) = (file("all", 0o644, 0), file("ours", 0o600, 0));
        let (group, root) = (file("group", 0o640, 4711), file("root", 0o640, 0));
        let before = status();
        let opens = |path| rights.with(|| File::open(path).is_ok()).unwrap();
        assert!(opens(&all) && opens(&group));
        assert!(!opens(&ours) && !opens(&root));
        let other = std::thread::spawn(status);
        assert!(rights.with(|| other.join().unwrap() == before).unwrap());
        assert!(catch_unwind(AssertUnwindSafe(|| rights.with(|| panic!("on purpose")))).is_err());
        assert_eq!(status(), before);
        assert!(File::open(&ours).is_ok());
    }
}
