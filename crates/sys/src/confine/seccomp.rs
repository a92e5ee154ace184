//! Denies this process the system calls that a server does not need.

use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

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
        libc::SYS_ioprio_set,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        // Shared memory, semaphores and queues of other processes (System V and POSIX).
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmdt,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
        libc::SYS_mq_timedsend,
        libc::SYS_mq_timedreceive,
        libc::SYS_mq_notify,
        libc::SYS_mq_getsetattr,
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

/// Denied requests of ioctl(2): they select the process that receives SIGIO for a socket.
const DENIED_IOCTLS: [u64; 2] = [
    0x8901, // FIOSETOWN
    0x8902, // SIOCSPGRP
];

/// The groups of requests of ioctl(2) that change terminals, keyboards, consoles and their fonts,
/// or give them input as if the user had typed it (TIOCSTI).
const TERMINAL_IOCTLS: [u64; 3] = [0x5400, 0x4b00, 0x5600];

/// The bits of a request that name its group.
const IOCTL_GROUP: u64 = 0xff00;

/// The requests in these groups that only ask, or concern any descriptor.
const HARMLESS_IOCTLS: [u64; 8] = [
    0x5401, // TCGETS
    0x5411, // TIOCOUTQ
    0x5413, // TIOCGWINSZ
    0x541b, // FIONREAD
    0x5421, // FIONBIO
    0x5450, // FIONCLEX
    0x5451, // FIOCLEX
    0x5452, // FIOASYNC
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

/// Denied options of setsockopt(2): close(2) of such a socket waits, also in a process that has
/// received it.
const DENIED_SOCKET_OPTIONS: [u64; 1] = [libc::SO_LINGER as u64];

/// Sends with this flag connect, which Landlock does not notice (MSG_FASTOPEN).
const CONNECTS: u64 = 0x2000_0000;

/// The calls that take flags for sending, and the argument.
const SENDS: [(i64, u8); 3] = [
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
];

/// Denied options of setsockopt(2) at the level of TCP: the first send connects, too.
const DENIED_TCP_OPTIONS: [u64; 1] = [30]; // TCP_FASTOPEN_CONNECT

/// The protocols that sockets may have: the default, TCP and UDP. Landlock restricts no other
/// protocol, and Multipath TCP connects to ports of TCP.
const PROTOCOLS: [u64; 3] = [0, libc::IPPROTO_TCP as u64, libc::IPPROTO_UDP as u64];

/// The bits of a socket's type that are not flags.
const SOCKET_KIND: u64 = 0xf;

/// Denied kinds of sockets and pairs: those that reach every address without a connection, also
/// those of logs. A raw unix socket is one of datagrams.
const DENIED_PAIRS: [u64; 2] = [libc::SOCK_DGRAM as u64, libc::SOCK_RAW as u64];

/// Kinds that no server needs. Their default protocol is neither TCP nor UDP.
const DENIED_KINDS: [u64; 4] = [
    libc::SOCK_RAW as u64,
    libc::SOCK_RDM as u64,
    6,  // SOCK_DCCP
    10, // SOCK_PACKET
];

/// Denied options of prctl(2): without this signal, the process outlives the one that started it.
const DENIED_PROCESS_OPTIONS: [u64; 1] = [libc::PR_SET_PDEATHSIG as u64];

/// The flags of clone(2) that create namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Denies the calling thread the system calls of [`denied`], new processes, namespaces, and sockets
/// other than Internet sockets. It may open unix sockets only if `has_unix_sockets`, and none of
/// datagrams. The same holds for all threads and processes that it starts. Sockets that it has or
/// receives, and pairs that are connected for good, are not restricted.
pub fn seccomp(has_unix_sockets: bool) -> io::Result<()> {
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
    let mut families = vec![libc::AF_INET, libc::AF_INET6];
    if has_unix_sockets {
        families.push(libc::AF_UNIX);
    }
    let mut strange = Vec::new();
    for family in families {
        strange.push(dword(0, SeccompCmpOp::Ne, family as u64).map_err(other)?);
    }
    let mut sockets = vec![rule(strange).map_err(other)?];
    let mut protocol = Vec::new();
    for allowed in PROTOCOLS {
        protocol.push(dword(2, SeccompCmpOp::Ne, allowed).map_err(other)?);
    }
    sockets.push(rule(protocol).map_err(other)?);
    let kind = |kind| dword(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), kind).map_err(other);
    for denied in DENIED_KINDS {
        sockets.push(rule(vec![kind(denied)?]).map_err(other)?);
    }
    let unix = libc::AF_UNIX as u64;
    sockets.push(
        rule(vec![
            dword(0, SeccompCmpOp::Eq, unix).map_err(other)?,
            kind(libc::SOCK_DGRAM as u64)?,
        ])
        .map_err(other)?,
    );
    // SCTP is the default of the Internet's families.
    sockets.push(
        rule(vec![
            dword(0, SeccompCmpOp::Ne, unix).map_err(other)?,
            kind(libc::SOCK_SEQPACKET as u64)?,
        ])
        .map_err(other)?,
    );
    rules.insert(libc::SYS_socket, sockets);
    let foreign_pair = dword(0, SeccompCmpOp::Ne, unix).map_err(other)?;
    let mut pairs = vec![rule(vec![foreign_pair]).map_err(other)?];
    for denied in DENIED_PAIRS {
        pairs.push(rule(vec![kind(denied)?]).map_err(other)?);
    }
    rules.insert(libc::SYS_socketpair, pairs);
    for (call, flags) in SENDS {
        let connects = SeccompCmpOp::MaskedEq(CONNECTS);
        let connects = dword(flags, connects, CONNECTS).map_err(other)?;
        rules.insert(call, vec![rule(vec![connects]).map_err(other)?]);
    }
    // The kernel uses 32 bits of the request.
    for (call, argument, requests) in [
        (libc::SYS_ioctl, 1, &DENIED_IOCTLS[..]),
        (libc::SYS_fcntl, 1, &DENIED_FCNTLS[..]),
        (libc::SYS_prctl, 0, &DENIED_PROCESS_OPTIONS[..]),
    ] {
        let mut denied = Vec::new();
        for request in requests {
            let is_one = dword(argument, SeccompCmpOp::Eq, *request).map_err(other)?;
            denied.push(rule(vec![is_one]).map_err(other)?);
        }
        rules.insert(call, denied);
    }
    for group in TERMINAL_IOCTLS {
        let masked = SeccompCmpOp::MaskedEq(IOCTL_GROUP);
        let mut conditions = vec![dword(1, masked, group).map_err(other)?];
        for request in HARMLESS_IOCTLS {
            conditions.push(dword(1, SeccompCmpOp::Ne, request).map_err(other)?);
        }
        let denied = rules.entry(libc::SYS_ioctl).or_default();
        denied.push(rule(conditions).map_err(other)?);
    }
    for (level, options) in [
        (libc::SOL_SOCKET, &DENIED_SOCKET_OPTIONS[..]),
        (libc::IPPROTO_TCP, &DENIED_TCP_OPTIONS[..]),
    ] {
        for option in options {
            let conditions = vec![
                dword(1, SeccompCmpOp::Eq, level as u64).map_err(other)?,
                dword(2, SeccompCmpOp::Eq, *option).map_err(other)?,
            ];
            let denied = rules.entry(libc::SYS_setsockopt).or_default();
            denied.push(rule(conditions).map_err(other)?);
        }
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
#[path = "seccomp_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
