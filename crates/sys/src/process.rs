//! Child processes: starts them with chosen descriptors, and signals them without a race for the
//! pid.

mod descriptors;
mod user;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::libc;

pub use descriptors::{
    DescriptorKind, is_event, kind, memory_file, pipe_size, writable_memory_file,
};
pub use user::{
    KnownUsers, User, find_user, groups, has_other_users, is_root, look_up_once, may_write, uid,
};

/// Starts `command` with each of `fds` at its given number (3 or above) and no other descriptors.
/// The child gets its own process group, so that a terminal's Ctrl-C reaches only Surus.
pub fn spawn(mut command: Command, fds: Vec<(OwnedFd, RawFd)>) -> io::Result<Child> {
    let fds = above(fds)?;
    // SAFETY: `hand_over` makes only system calls, so it may be called between fork and exec.
    unsafe {
        command.pre_exec(move || hand_over(&fds));
    }
    command.spawn()
}

/// Leaves the process its standard streams and each of `fds`, which [`above`] has moved, at the
/// given number. To be called between fork and exec: it makes only system calls, and allocates
/// nothing.
///
/// Descriptors that Surus has inherited are not for PHP. One with a high number would also make
/// every child's descriptor table that long.
fn hand_over(fds: &[(OwnedFd, RawFd)]) -> io::Result<()> {
    // SAFETY: close_range(2) only marks descriptors, which exec then closes: std still needs one to
    // report errors to the parent. Before Linux 5.11, and in a sandbox that rejects the call, they
    // stay open.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    // A process group and a session of its own: PHP cannot type into the terminal from which the
    // server was started (TIOCSTI).
    nix::unistd::setsid()?;
    // The program that started Surus may have ignored signals, which exec keeps.
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action runs no code of this process. The system refuses SIGKILL,
        // SIGSTOP and the signals of the C library, which are never ignored.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    // A keeper blocks signals that it reads from a descriptor, and exec keeps the mask.
    let none = nix::sys::signal::SigSet::empty();
    let how = nix::sys::signal::SigmaskHow::SIG_SETMASK;
    nix::sys::signal::sigprocmask(how, Some(&none), None)?;
    for (fd, target) in fds {
        // SAFETY: dup2(2) on descriptors of this process; none of the targets is among them.
        Errno::result(unsafe { libc::dup2(fd.as_raw_fd(), *target) })?;
    }
    Ok(())
}

/// Moves descriptors above all targets, so that no dup2 overwrites one that is still needed.
fn above(fds: Vec<(OwnedFd, RawFd)>) -> io::Result<Vec<(OwnedFd, RawFd)>> {
    let top = fds.iter().map(|(_, target)| *target).max().unwrap_or(2) + 1;
    let mut moved = Vec::with_capacity(fds.len());
    for (fd, target) in fds {
        let high = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(top))?;
        // SAFETY: F_DUPFD_CLOEXEC has just made this descriptor; it is wrapped once.
        moved.push((
            unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(high) },
            target,
        ));
    }
    Ok(moved)
}

/// What happens to a child when the thread that started it exits.
#[derive(Debug, Clone, Copy)]
pub enum Orphan {
    /// The kernel kills it.
    Killed,
    /// It gets SIGTERM, and ends its own children.
    Terminated,
}

/// Makes `command` start as `user` with these groups, or as the current user. The child gets its
/// own process group, and each of `fds` at its given number (3 or above) and no others. It does not
/// outlive the thread that starts it (prctl(2), `PR_SET_PDEATHSIG`), so that thread must live as
/// long as this process.
pub fn child(
    command: &mut Command,
    user: Option<(&User, &[u32])>,
    orphan: Orphan,
    fds: Vec<(OwnedFd, RawFd)>,
) -> io::Result<()> {
    let fds = above(fds)?;
    let ids = user.map(|(user, groups)| (user.uid, user.gid, groups.to_vec()));
    let signal = match orphan {
        Orphan::Killed => libc::SIGKILL,
        Orphan::Terminated => libc::SIGTERM,
    };
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls are made, through functions that are
    // async-signal-safe in Linux's C libraries for a process with one thread; `ids` was allocated
    // before. PR_SET_PDEATHSIG comes last because a change of the user clears it.
    unsafe {
        command.pre_exec(move || {
            if let Some((uid, gid, groups)) = &ids {
                Errno::result(libc::setgroups(groups.len(), groups.as_ptr()))?;
                Errno::result(libc::setgid(*gid))?;
                Errno::result(libc::setuid(*uid))?;
            }
            hand_over(&fds)?;
            Errno::result(libc::prctl(libc::PR_SET_PDEATHSIG, signal))?;
            // A parent that has already exited sends no signal.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
    Ok(())
}

/// Kills a process that [`child`] has made, and its process group. The pid cannot have been reused
/// as long as the process is not reaped.
pub fn kill_group(leader: u32) -> io::Result<()> {
    Ok(nix::sys::signal::killpg(
        one_process(leader)?,
        nix::sys::signal::Signal::SIGKILL,
    )?)
}

/// A process that can be signalled without the risk that its pid has been reused.
#[derive(Debug)]
pub struct Pid {
    pid: u32,
    /// `None` if the kernel has no pidfd_open(2) (before 5.3); then the pid itself is signalled.
    pidfd: Option<OwnedFd>,
}

impl Pid {
    /// For a process that its parent has not reaped yet, with its pidfd.
    pub fn new(pid: u32, pidfd: Option<OwnedFd>) -> Pid {
        Pid { pid, pidfd }
    }

    /// The pid.
    pub fn get(&self) -> u32 {
        self.pid
    }

    /// The pidfd, if the kernel supports it.
    pub fn pidfd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Whether the process is known to have exited.
    pub fn has_ended(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        self.pidfd().is_some_and(|fd| {
            let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        })
    }

    fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        let result = match &self.pidfd {
            // SAFETY: pidfd_send_signal(2) only reads its arguments; a null siginfo means "as
            // kill(2) would".
            Some(fd) => unsafe {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    fd.as_raw_fd(),
                    signal,
                    std::ptr::null::<libc::siginfo_t>(),
                    0,
                )
            },
            // SAFETY: kill(2) accesses no memory.
            None => unsafe { libc::kill(one_process(self.pid)?.as_raw(), signal) as libc::c_long },
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Sends the signal on which a worker checks `stop` in its scoreboard line (`SIGRTMIN`,
    /// sapi/php/request_timeout.c).
    pub fn stop(&self) -> io::Result<()> {
        self.signal(libc::SIGRTMIN())
    }

    /// Stops the process where it is (`SIGSTOP`). It may run on for a moment.
    pub fn suspend(&self) -> io::Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Resumes the process if it was stopped (`SIGCONT`).
    pub fn resume(&self) -> io::Result<()> {
        self.signal(libc::SIGCONT)
    }

    /// Kills the process (`SIGKILL`).
    pub fn kill(&self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }

    /// Asks the process to exit (`SIGTERM`).
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(libc::SIGTERM)
    }
}

/// Replaces stdout and stderr of this process.
pub fn replace_output(
    out: std::os::fd::BorrowedFd<'_>,
    err: std::os::fd::BorrowedFd<'_>,
) -> io::Result<()> {
    nix::unistd::dup2_stdout(out)?;
    nix::unistd::dup2_stderr(err)?;
    Ok(())
}

/// A pidfd of a process; `None` if the kernel has none.
pub fn pidfd(pid: u32) -> io::Result<Option<OwnedFd>> {
    // SAFETY: pidfd_open(2) takes numbers and makes a descriptor, which is wrapped once.
    unsafe {
        match Errno::result(libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0)) {
            Ok(fd) => Ok(Some(std::os::fd::FromRawFd::from_raw_fd(fd as RawFd))),
            Err(Errno::ENOSYS) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The pid behind a pidfd; `None` for another descriptor, and once the process is reaped.
pub fn pid_of(pidfd: impl AsFd) -> Option<u32> {
    let number = pidfd.as_fd().as_raw_fd();
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let pid = about.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok()
}

/// The state of a process as in `/proc/PID/stat`: `R`, `S`, `T` (stopped), `Z` …
/// (proc_pid_stat(5)).
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The parent and the process group of a process.
pub fn parent_and_group(pid: u32) -> Option<(u32, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The members of a process group, without its leader, which must be a child of this process that
/// has exited and is not reaped yet. At most `most`, and none if the kernel has no pidfd.
pub fn members(leader: u32, max: usize) -> Vec<Pid> {
    let is_member = |pid| parent_and_group(pid).is_some_and(|(_, group)| group == leader);
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != leader && is_member(*pid))
        .take(max)
        .filter_map(|pid| Some(Pid::new(pid, Some(pidfd(pid).ok()??))))
        // The number may have become another process's before the pidfd was opened.
        .filter(|member| is_member(member.get()) && !member.has_ended())
        .collect()
}

/// The pid for kill(2), to which 0 and negative numbers mean groups of processes.
fn one_process(pid: u32) -> io::Result<nix::unistd::Pid> {
    match libc::pid_t::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(nix::unistd::Pid::from_raw(pid)),
        _ => Err(Errno::ESRCH.into()),
    }
}

fn send(pid: u32, signal: nix::sys::signal::Signal) -> io::Result<()> {
    Ok(nix::sys::signal::kill(one_process(pid)?, signal)?)
}

/// Kills a process. The caller knows that its pid has not been reused.
pub fn kill(pid: u32) -> io::Result<()> {
    send(pid, nix::sys::signal::Signal::SIGKILL)
}

/// Resumes a stopped process (`SIGCONT`). The caller knows that its pid has not been reused.
pub fn resume(pid: u32) -> io::Result<()> {
    send(pid, nix::sys::signal::Signal::SIGCONT)
}

/// Asks a child that is not reaped yet to exit.
pub fn terminate(pid: u32) -> io::Result<()> {
    send(pid, nix::sys::signal::Signal::SIGTERM)
}

/// Asks a child that is not reaped yet to reopen its logs.
pub fn reopen(pid: u32) -> io::Result<()> {
    send(pid, nix::sys::signal::Signal::SIGUSR1)
}

/// Asks a child that is not reaped yet to reload.
pub fn hang_up(pid: u32) -> io::Result<()> {
    send(pid, nix::sys::signal::Signal::SIGHUP)
}

/// The size of a memory page in bytes.
pub fn page_size() -> u64 {
    // SAFETY: sysconf(3) accesses no memory.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Time since the machine was started, including the time it was suspended.
pub fn since_boot() -> std::time::Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map(Into::into)
        .unwrap_or_default()
}

/// Describes how a process exited: `exit status 1`, `SIGSEGV (segmentation fault)`.
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

/// The exit status of a process that was not killed by a signal.
pub fn exit_status(wait_status: i32) -> Option<i32> {
    libc::WIFEXITED(wait_status).then(|| libc::WEXITSTATUS(wait_status))
}

/// Lets new files of this process have all permissions of their group, and none of others.
pub fn share_new_files() {
    use nix::sys::stat::{Mode, umask};
    umask(Mode::S_IRWXO);
}

/// Raises the limit of open descriptors to the hard limit; returns it.
pub fn raise_open_files() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Disables core dumps of this process and its children.
pub fn forbid_core_dumps() -> io::Result<()> {
    use nix::sys::resource::{Resource, setrlimit};
    // A limit of 0 does not hold if core_pattern is a pipe (core(5)). At a limit of 1, the kernel
    // dumps into no pipe, and into no file because a page is more (fs/coredump.c). A hard limit of
    // 0 stays.
    let limit = |bytes| setrlimit(Resource::RLIMIT_CORE, bytes, bytes);
    Ok(limit(1).or_else(|_| limit(0))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
