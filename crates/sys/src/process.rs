//! Child processes: started with chosen descriptors, signalled without a race for their pid.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::libc;

/// Starts `command` with each of `fds` at the number beside it (3 or above), in a process group of its own, so that a
/// terminal's Ctrl-C reaches surus alone.
pub fn spawn(mut command: Command, fds: Vec<(OwnedFd, RawFd)>) -> io::Result<Child> {
    let top = fds.iter().map(|(_, target)| *target).max().unwrap_or(2) + 1;
    // Moved above all targets first, so that no dup2 below overwrites a descriptor that a later one still needs.
    let mut moved = Vec::with_capacity(fds.len());
    for (fd, target) in fds {
        let high = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(top))?;
        // SAFETY: F_DUPFD_CLOEXEC has just made this descriptor; it is wrapped once.
        moved.push((
            unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(high) },
            target,
        ));
    }
    let pairs: Vec<(RawFd, RawFd)> = moved
        .iter()
        .map(|(fd, target)| (fd.as_raw_fd(), *target))
        .collect();
    command.process_group(0);
    // SAFETY: between fork and exec only dup2(2) is called, which is async-signal-safe; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            for (from, to) in &pairs {
                if libc::dup2(*from, *to) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let child = command.spawn();
    drop(moved);
    child
}

/// A process that can be signalled without the risk of meeting another one that got its pid.
#[derive(Debug)]
pub struct Pid {
    pid: u32,
    /// `None` where the kernel has no pidfd_open(2) (before 5.3): then the pid itself is signalled.
    pidfd: Option<OwnedFd>,
}

impl Pid {
    /// Of a process that its parent has not reaped yet, with a pidfd of it.
    pub fn new(pid: u32, pidfd: Option<OwnedFd>) -> Pid {
        Pid { pid, pidfd }
    }

    /// The number.
    pub fn get(&self) -> u32 {
        self.pid
    }

    fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        let result = match &self.pidfd {
            // SAFETY: pidfd_send_signal(2) reads its arguments only; a null siginfo means "as kill(2) would".
            Some(fd) => unsafe {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    fd.as_raw_fd(),
                    signal,
                    std::ptr::null::<libc::siginfo_t>(),
                    0,
                )
            },
            // SAFETY: kill(2) touches no memory of ours.
            None => unsafe { libc::kill(self.pid as libc::pid_t, signal) as libc::c_long },
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Sends the signal by which a worker looks at its line's `stop` (`SIGRTMIN`, sapi/stop.c).
    pub fn stop(&self) -> io::Result<()> {
        self.signal(libc::SIGRTMIN())
    }

    /// Ends the process at once.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }
}

/// Since the machine was started, whether or not it was suspended meanwhile.
pub fn since_boot() -> std::time::Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map(Into::into)
        .unwrap_or_default()
}

/// How a process ended, in words: `exit status 1`, `SIGSEGV (segmentation fault)`.
pub fn describe_exit(wait_status: i32) -> String {
    if libc::WIFSIGNALED(wait_status) {
        let signal = libc::WTERMSIG(wait_status);
        let name = nix::sys::signal::Signal::try_from(signal)
            .map_or_else(|_| format!("signal {signal}"), |s| s.to_string());
        let meaning = match signal {
            libc::SIGSEGV => " (segmentation fault)",
            libc::SIGBUS => " (bus error)",
            libc::SIGABRT => " (abort)",
            libc::SIGKILL => " (killed from outside, or by the kernel for lack of memory)",
            libc::SIGILL => " (illegal instruction)",
            _ => "",
        };
        format!("{name}{meaning}")
    } else {
        format!("exit status {}", libc::WEXITSTATUS(wait_status))
    }
}

/// The exit status of a process that was not ended by a signal.
pub fn exit_status(wait_status: i32) -> Option<i32> {
    libc::WIFEXITED(wait_status).then(|| libc::WEXITSTATUS(wait_status))
}

/// A file in memory that holds `content`, read from its beginning. It is closed on `exec` unless [`spawn`] passes it on.
pub fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    use std::io::{Seek, Write};
    let fd = nix::sys::memfd::memfd_create(c"surus", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// A user of this machine.
#[derive(Debug, Clone)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// The number of its main group, or of the group asked for.
    pub gid: u32,
}

/// Looks up a user by name or number, and the group by name or number; `None` when there is no such user or group.
pub fn find_user(user: &str, group: Option<&str>) -> io::Result<Option<User>> {
    let found = match user.parse::<u32>() {
        Ok(uid) => nix::unistd::User::from_uid(uid.into())?,
        Err(_) => nix::unistd::User::from_name(user)?,
    };
    let Some(found) = found else { return Ok(None) };
    let gid = match group {
        None => found.gid,
        Some(group) => {
            let found = match group.parse::<u32>() {
                Ok(gid) => nix::unistd::Group::from_gid(gid.into())?,
                Err(_) => nix::unistd::Group::from_name(group)?,
            };
            match found {
                Some(group) => group.gid,
                None => return Ok(None),
            }
        }
    };
    Ok(Some(User {
        name: found.name,
        uid: found.uid.as_raw(),
        gid: gid.as_raw(),
    }))
}

/// The numbers of all groups that a user is in, its own among them.
pub fn groups(user: &User) -> io::Result<Vec<u32>> {
    let name = std::ffi::CString::new(user.name.as_str())?;
    let found = nix::unistd::getgrouplist(&name, user.gid.into())?;
    Ok(found.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

/// The number of the user that this process runs as.
pub fn uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Is this process root?
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Raises the limit of open descriptors to what is allowed; returns it.
pub fn raise_open_files() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_arrive_at_their_numbers() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let (read2, write2) = nix::unistd::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&4; echo two >&3"]);
        let mut child = spawn(command, vec![(write, 4), (write2, 3)]).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(
            std::io::read_to_string(std::fs::File::from(read)).unwrap(),
            "one\n"
        );
        assert_eq!(
            std::io::read_to_string(std::fs::File::from(read2)).unwrap(),
            "two\n"
        );
    }

    #[test]
    fn exits_are_described() {
        let status = |script: &str| {
            use std::os::unix::process::ExitStatusExt;
            Command::new("sh")
                .args(["-c", script])
                .status()
                .unwrap()
                .into_raw()
        };
        assert_eq!(describe_exit(status("exit 3")), "exit status 3");
        assert_eq!(
            describe_exit(status("kill -SEGV $$")),
            "SIGSEGV (segmentation fault)"
        );
        assert_eq!(exit_status(status("exit 7")), Some(7));
        assert_eq!(exit_status(status("kill -9 $$")), None);
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(find_user("root", None).unwrap().unwrap().uid, 0);
        assert_eq!(find_user("0", Some("root")).unwrap().unwrap().name, "root");
        assert!(find_user("nobody-has-this-name", None).unwrap().is_none());
        assert!(find_user("root", Some("no-such-group")).unwrap().is_none());
        let root = find_user("root", None).unwrap().unwrap();
        assert!(groups(&root).unwrap().contains(&root.gid));
    }
}
