//! Restricts this process: files, ports and signals (Landlock), and system calls that a server does
//! not need (seccomp).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// What a restricted process can access.
#[derive(Debug, Default)]
pub struct AccessRules {
    /// Paths below which files can be read.
    pub reads: Vec<PathBuf>,
    /// Opened directories below which files can be read. They are open, because the path may lead
    /// to another directory by now.
    pub trees: Vec<(PathBuf, OwnedFd)>,
    /// Paths below which files can be read, created, written and removed.
    pub writes: Vec<PathBuf>,
    /// Ports that the process can connect to; `None` for all.
    pub connects: Option<Vec<u16>>,
    /// Whether it may make sockets where it may make files, and bind ports that the kernel chooses.
    pub listens: bool,
}

/// How much of a restriction the kernel supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// Everything that this version of Surus requests.
    Full,
    /// A part of it.
    Partial,
    /// Nothing.
    None,
}

/// Permanently restricts this thread, and all threads and processes that it starts, to these files
/// and ports (Landlock). If the kernel supports these rules, they can neither bind ports (but
/// see `listens`) nor signal processes outside. Paths that do not exist are skipped.
pub fn landlock(reach: &AccessRules) -> io::Result<Enforcement> {
    let other = |error: landlock::RulesetError| io::Error::other(error);
    let abi = ABI::V6;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .map_err(other)?
        .handle_access(AccessNet::BindTcp)
        .map_err(other)?
        .scope(Scope::Signal | Scope::AbstractUnixSocket)
        .map_err(other)?;
    if reach.connects.is_some() {
        ruleset = ruleset
            .handle_access(AccessNet::ConnectTcp)
            .map_err(other)?;
    }
    let mut created = ruleset.create().map_err(other)?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut write =
        read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    if reach.listens {
        write |= AccessFs::MakeSock;
        created = created
            .add_rule(landlock::NetPort::new(0, AccessNet::BindTcp))
            .map_err(other)?;
    }
    let lists = [(&reach.reads, read), (&reach.writes, write)];
    for (path, access) in lists.iter().flat_map(|(list, access)| {
        let access = *access;
        list.iter().map(move |path| (path, access))
    }) {
        let Ok(fd) = PathFd::new(path) else { continue };
        let access = match path.is_dir() {
            true => access,
            false => access & AccessFs::from_file(abi),
        };
        created = created
            .add_rule(PathBeneath::new(fd, access))
            .map_err(other)?;
    }
    for (_, tree) in &reach.trees {
        created = created
            .add_rule(PathBeneath::new(tree, read))
            .map_err(other)?;
    }
    for port in reach.connects.iter().flatten() {
        created = created
            .add_rule(landlock::NetPort::new(*port, AccessNet::ConnectTcp))
            .map_err(other)?;
    }
    let status = created.restrict_self().map_err(other)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Enforcement::Full,
        RulesetStatus::PartiallyEnforced => Enforcement::Partial,
        RulesetStatus::NotEnforced => Enforcement::None,
    })
}

/// Whether `path` can be passed to [`landlock`].
pub fn can_name(path: &Path) -> bool {
    PathFd::new(path).is_ok()
}

/// System calls that a network server does not need. They fail with EPERM, as for an unprivileged
/// user, so code that makes one by mistake handles the error.
fn denied() -> Vec<i64> {
    let mut denied = vec![
        // Other programs and processes.
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_kcmp,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_setpriority,
        libc::SYS_sched_setaffinity,
        // File systems.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_name_to_handle_at,
        libc::SYS_open_by_handle_at,
        libc::SYS_quotactl,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_mknodat,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        // The kernel.
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_acct,
        libc::SYS_syslog,
        libc::SYS_personality,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_adjtimex,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_vhangup,
        libc::SYS_lookup_dcookie,
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
        libc::SYS_mbind,
        libc::SYS_set_mempolicy,
        // Other users.
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setreuid,
        libc::SYS_setregid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setgroups,
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_capset,
    ];
    #[cfg(target_arch = "x86_64")]
    denied.extend([
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_kexec_file_load,
        libc::SYS_mknod,
        libc::SYS_link,
        libc::SYS_symlink,
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_uselib,
        libc::SYS_ustat,
        libc::SYS_sysfs,
        libc::SYS__sysctl,
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
        libc::SYS_arch_prctl,
    ]);
    #[cfg(target_arch = "aarch64")]
    denied.push(294); // kexec_file_load, which some C libraries do not name.
    denied.extend(NEWER);
    denied
}

/// System calls that the C library's list lacks. From 424 on, numbers are the same on all
/// architectures.
const NEWER: [i64; 14] = [
    443, // quotactl_fd
    448, // process_mrelease
    450, // set_mempolicy_home_node
    452, // fchmodat2
    457, // statmount
    458, // listmount
    460, // lsm_set_self_attr
    463, // setxattrat
    464, // getxattrat
    465, // listxattrat
    466, // removexattrat
    467, // open_tree_attr
    468, // file_getattr
    469, // file_setattr
];

/// Denied requests of ioctl(2). Terminals take the first two as input that the user typed. The
/// others select the process that receives SIGIO for a socket.
#[allow(clippy::unnecessary_cast, reason = "a c_int with musl")]
const DENIED_IOCTLS: [u64; 4] = [
    libc::TIOCSTI as u64,
    libc::TIOCLINUX as u64,
    0x8901, // FIOSETOWN
    0x8902, // SIOCSPGRP
];

/// Denied commands of fcntl(2): they select the process that receives SIGIO for a descriptor, or
/// select another signal. Landlock does not restrict such signals before Linux 6.12.
const DENIED_FCNTLS: [u64; 3] = [
    8,  // F_SETOWN
    10, // F_SETSIG
    15, // F_SETOWN_EX
];

/// Fails with ENOSYS for numbers that a [`SeccompFilter`] does not compare. On x86-64, each system
/// call has a second number, of the x32 ABI, with this bit set.
fn without_x32() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| seccompiler::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let ret = libc::BPF_RET | libc::BPF_K;
    vec![
        // The number is the first field of seccomp_data.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        step(ret, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// The flags of clone(2) that create namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Denies the calling thread, and all threads and processes that it starts, the system calls of
/// [`denied`], new processes, namespaces, and sockets other than Internet and unix sockets.
pub fn seccomp() -> io::Result<()> {
    let other = |error: seccompiler::BackendError| io::Error::other(error.to_string());
    let arch = std::env::consts::ARCH.try_into().map_err(other)?;
    let dword =
        |argument, op, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value);
    let qword =
        |argument, op, value| SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value);
    let rule = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions);
    let mut rules: std::collections::BTreeMap<i64, Vec<SeccompRule>> = denied()
        .into_iter()
        .map(|call| (call, Vec::new()))
        .collect();
    // Only threads may be created: clone(2) needs CLONE_THREAD.
    let thread = libc::CLONE_THREAD as u64;
    let mut clone = vec![
        rule(vec![
            qword(0, SeccompCmpOp::MaskedEq(thread), 0).map_err(other)?,
        ])
        .map_err(other)?,
    ];
    let mut bit = 1;
    while bit <= NAMESPACES {
        if NAMESPACES & bit != 0 {
            let has = qword(0, SeccompCmpOp::MaskedEq(bit), bit).map_err(other)?;
            clone.push(rule(vec![has]).map_err(other)?);
        }
        bit <<= 1;
    }
    rules.insert(libc::SYS_clone, clone);
    // Only threads of this process may be signalled; abort(3) needs that.
    let this = u64::from(std::process::id());
    let foreign = dword(0, SeccompCmpOp::Ne, this).map_err(other)?;
    rules.insert(libc::SYS_tgkill, vec![rule(vec![foreign]).map_err(other)?]);
    // The C library reads the process's own limits like this.
    let another = dword(0, SeccompCmpOp::Ne, 0).map_err(other)?;
    rules.insert(
        libc::SYS_prlimit64,
        vec![rule(vec![another]).map_err(other)?],
    );
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    let mut strange = Vec::new();
    for family in families {
        strange.push(dword(0, SeccompCmpOp::Ne, family as u64).map_err(other)?);
    }
    rules.insert(libc::SYS_socket, vec![rule(strange).map_err(other)?]);
    // The kernel uses 32 bits of the request.
    for (call, requests) in [
        (libc::SYS_ioctl, &DENIED_IOCTLS[..]),
        (libc::SYS_fcntl, &DENIED_FCNTLS[..]),
    ] {
        let mut denied = Vec::new();
        for request in requests {
            let is_one = dword(1, SeccompCmpOp::Eq, *request).map_err(other)?;
            denied.push(rule(vec![is_one]).map_err(other)?);
        }
        rules.insert(call, denied);
    }
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch).map_err(other)?;
    // The flags of clone3(2) are in memory, which a filter cannot read. Without clone3, C libraries
    // use clone(2).
    let enosys = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let without_clone3 =
        SeccompFilter::new(clone3, SeccompAction::Allow, enosys, arch).map_err(other)?;
    let mut programs = vec![without_x32()];
    for filter in [without_clone3, filter] {
        programs.push(filter.try_into().map_err(other)?);
    }
    for program in programs {
        seccompiler::apply_filter(&program).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
            error => io::Error::other(error.to_string()),
        })?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The error of a system call in a process that is restricted by [`seccomp`].
    fn error_of(call: i64, arguments: [i64; 3]) -> i32 {
        // SAFETY: fork(2); the child makes system calls whose arguments are numbers or null, and
        // exits by _exit(2). It allocates, as far as the C library allows it after a fork of
        // several threads.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let [a, b, c] = arguments;
                let met = match seccomp() {
                    Ok(()) if libc::syscall(call, a, b, c) == -1 => *libc::__errno_location(),
                    Ok(()) => 0,
                    Err(_) => 255,
                };
                libc::_exit(met);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(libc::WIFEXITED(status), "{status}");
            libc::WEXITSTATUS(status)
        }
    }

    #[test]
    fn denied_call_fails_with_eperm_under_each_of_its_numbers() {
        const X32: i64 = 0x4000_0000;
        assert_eq!(error_of(libc::SYS_getuid, [0; 3]), 0);
        assert_eq!(error_of(libc::SYS_kill, [1, 0, 0]), libc::EPERM);
        for call in [452, 463, 466, 469, libc::SYS_removexattr] {
            assert_eq!(error_of(call, [-1, 0, 0]), libc::EPERM, "{call}");
        }
        for call in [libc::SYS_kill, libc::SYS_getuid] {
            assert_eq!(error_of(X32 | call, [1, 0, 0]), libc::ENOSYS, "x32 {call}");
        }
        let with = |call, request: u64| error_of(call, [-1, request as i64, 0]);
        for (call, denied) in [
            (libc::SYS_ioctl, &DENIED_IOCTLS[..]),
            (libc::SYS_fcntl, &DENIED_FCNTLS[..]),
        ] {
            for request in denied {
                assert_eq!(with(call, *request), libc::EPERM, "{request}");
                assert_eq!(with(call, 1 << 32 | request), libc::EPERM, "{request}");
            }
        }
        const FIONBIO: u64 = 0x5421;
        assert_eq!(with(libc::SYS_ioctl, FIONBIO), libc::EBADF);
        assert_eq!(with(libc::SYS_fcntl, libc::F_GETFL as u64), libc::EBADF);
    }
}
