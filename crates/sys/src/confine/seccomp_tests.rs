//! Tests the system calls of a process that is restricted.

use super::*;

/// The error of a system call in a process that is restricted by [`seccomp`].
fn error_of(call: i64, arguments: [i64; 4]) -> i32 {
    error_with(false, call, arguments)
}

fn error_with(has_unix_sockets: bool, call: i64, arguments: [i64; 4]) -> i32 {
    // SAFETY: fork(2); the child makes system calls whose arguments are numbers or null, and
    // exits by _exit(2). It allocates, as far as the C library allows it after a fork of
    // several threads.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let [a, b, c, d] = arguments;
            let met = match seccomp(has_unix_sockets) {
                Ok(()) if libc::syscall(call, a, b, c, d) == -1 => *libc::__errno_location(),
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
    assert_eq!(error_of(libc::SYS_getuid, [0; 4]), 0);
    assert_eq!(error_of(libc::SYS_kill, [1, 0, 0, 0]), libc::EPERM);
    for call in [452, 463, 466, 469, libc::SYS_removexattr] {
        assert_eq!(error_of(call, [-1, 0, 0, 0]), libc::EPERM, "{call}");
    }
    for call in [libc::SYS_kill, libc::SYS_getuid] {
        assert_eq!(
            error_of(X32 | call, [1, 0, 0, 0]),
            libc::ENOSYS,
            "x32 {call}"
        );
    }
    let with = |call, request: u64| error_of(call, [-1, request as i64, 0, 0]);
    for (call, denied) in [
        (libc::SYS_ioctl, &DENIED_IOCTLS[..]),
        (libc::SYS_fcntl, &DENIED_FCNTLS[..]),
    ] {
        for request in denied {
            assert_eq!(with(call, *request), libc::EPERM, "{request}");
            assert_eq!(with(call, 1 << 32 | request), libc::EPERM, "{request}");
        }
    }
    assert_eq!(with(libc::SYS_fcntl, libc::F_GETFL as u64), libc::EBADF);
}

#[test]
#[allow(clippy::unnecessary_cast, reason = "a c_int with musl")]
fn only_harmless_requests_of_terminals_are_allowed() {
    let with = |request: u64| error_of(libc::SYS_ioctl, [-1, request as i64, 0, 0]);
    for request in HARMLESS_IOCTLS {
        assert_eq!(with(request), libc::EBADF, "{request:#x}");
    }
    const TCSETS2: u64 = 0x402c_542b;
    const PIO_FONT: u64 = 0x4b61;
    const VT_SETMODE: u64 = 0x5602;
    for request in [
        libc::TCSETS as u64,
        libc::TCSETSF as u64,
        libc::TIOCSTI as u64,
        libc::TIOCSWINSZ as u64,
        libc::TIOCSCTTY as u64,
        libc::TIOCLINUX as u64,
        TCSETS2,
        PIO_FONT,
        VT_SETMODE,
    ] {
        assert_eq!(with(request), libc::EPERM, "{request:#x}");
    }
}

#[test]
fn calls_that_reach_other_processes_are_denied() {
    for call in [
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_ioprio_set,
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_semop,
        libc::SYS_msgrcv,
        libc::SYS_mq_open,
        libc::SYS_tkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
    ] {
        assert_eq!(error_of(call, [-1, -1, -1, -1]), libc::EPERM, "{call}");
    }
    // Threads of its own process may be signalled; this one is the parent.
    let parent = i64::from(std::process::id());
    let signal = [parent, parent, 0, 0];
    assert_eq!(error_of(libc::SYS_tgkill, signal), libc::EPERM);
    let (socket, linger) = (libc::SOL_SOCKET.into(), libc::SO_LINGER.into());
    let set = |level, name| error_of(libc::SYS_setsockopt, [-1, level, name, 0]);
    assert_eq!(set(socket, linger), libc::EPERM);
    assert_eq!(set(socket, libc::SO_KEEPALIVE.into()), libc::EBADF);
    assert_eq!(set(libc::IPPROTO_TCP.into(), linger), libc::EBADF);
    let death = libc::PR_SET_PDEATHSIG.into();
    assert_eq!(error_of(libc::SYS_prctl, [death, 0, 0, 0]), libc::EPERM);
    assert_eq!(
        error_of(libc::SYS_prctl, [libc::PR_GET_DUMPABLE.into(), 0, 0, 0]),
        0
    );
}

#[test]
fn unix_sockets_are_denied_unless_needed() {
    let make = |allowed, family: i32, kind: i32| {
        error_with(
            allowed,
            libc::SYS_socket,
            [family.into(), kind.into(), 0, 0],
        )
    };
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
        assert_eq!(make(false, libc::AF_UNIX, kind), libc::EPERM, "{kind}");
        let is_denied = kind == libc::SOCK_DGRAM;
        let expected = if is_denied { libc::EPERM } else { 0 };
        assert_eq!(make(true, libc::AF_UNIX, kind), expected, "{kind}");
    }
    for allowed in [false, true] {
        assert_eq!(make(allowed, libc::AF_INET, libc::SOCK_STREAM), 0);
        let netlink = make(allowed, libc::AF_NETLINK, libc::SOCK_RAW);
        assert_eq!(netlink, libc::EPERM);
    }
}

#[test]
fn sockets_that_reach_addresses_without_a_connection_are_denied_in_pairs() {
    let mut pair = [0_i32; 2];
    let at = pair.as_mut_ptr() as i64;
    let make = |family: i32, kind: i32| {
        let arguments = [family.into(), kind.into(), 0, at];
        error_of(libc::SYS_socketpair, arguments)
    };
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        assert_eq!(make(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC), 0);
    }
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
        let flags = [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK];
        for flag in flags {
            assert_eq!(make(libc::AF_UNIX, kind | flag), libc::EPERM, "{kind}");
        }
    }
    const AF_TIPC: i32 = 30;
    assert_eq!(make(AF_TIPC, libc::SOCK_STREAM), libc::EPERM);
}

#[test]
fn only_connections_of_tcp_that_landlock_notices_are_allowed() {
    let make = |kind: i32, protocol: i64| {
        let family = libc::AF_INET.into();
        error_of(libc::SYS_socket, [family, kind.into(), protocol, 0])
    };
    let (stream, datagram) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
    for (kind, protocol) in [(stream, 0), (stream, 6), (datagram, 0), (datagram, 17)] {
        assert_eq!(make(kind, protocol), 0, "{kind} {protocol}");
    }
    const MPTCP: i64 = 262;
    const SCTP: i64 = 132;
    const SMC: i64 = 256;
    for protocol in [MPTCP, SCTP, SMC, 1 << 32 | MPTCP] {
        assert_eq!(make(stream, protocol), libc::EPERM, "{protocol}");
    }
    for kind in [libc::SOCK_SEQPACKET, libc::SOCK_RAW, libc::SOCK_RDM] {
        assert_eq!(make(kind, 0), libc::EPERM, "{kind}");
    }
    let connects = CONNECTS as i64;
    for (call, flags) in SENDS {
        let send = |flag: i64| {
            let mut arguments = [-1, 0, 0, 0];
            arguments[usize::from(flags)] = flag;
            error_of(call, arguments)
        };
        let normal = i64::from(libc::MSG_NOSIGNAL);
        assert_eq!(send(normal), libc::EBADF, "{call}");
        assert_eq!(send(normal | connects), libc::EPERM, "{call}");
    }
    let set = |option: i64| {
        let level = libc::IPPROTO_TCP.into();
        error_of(libc::SYS_setsockopt, [-1, level, option, 0])
    };
    assert_eq!(set(30), libc::EPERM);
    assert_eq!(set(libc::TCP_NODELAY.into()), libc::EBADF);
}
