//! Finds the processes that listen on an address or a Unix socket.

use std::collections::HashSet;
use std::fs::{File, read_dir, read_link, read_to_string};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::{pids, stat};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// As much as the kernel writes at a time.
const PAGE: usize = 4096;

/// The topmost processes that accept TCP connections to an address of this machine.
pub fn listeners(address: SocketAddr) -> Vec<i32> {
    let mut inodes = HashSet::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(file) = File::open(file) else {
            continue;
        };
        let lines = BufReader::with_capacity(PAGE, file).lines();
        for line in lines.map_while(Result::ok).skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (Some(local), Some(state), Some(inode)) =
                (fields.get(1), fields.get(3), fields.get(9))
            else {
                continue;
            };
            // Listening sockets come first (Linux, proc_net_tcp.rst). To list thousands of
            // connections, too, would take the kernel tens of milliseconds.
            if *state != LISTEN {
                break;
            }
            if parse(local).is_some_and(|local| accepts(local, address)) {
                inodes.insert((*inode).to_string());
            }
        }
    }
    topmost(holders(&inodes))
}

/// An address of `/proc/net/tcp`: groups of four bytes in this machine's order, and a port.
fn parse(local: &str) -> Option<SocketAddr> {
    let (address, port) = local.split_once(':')?;
    let groups = address.as_bytes().chunks(8).map(|group| {
        let group = u32::from_str_radix(std::str::from_utf8(group).ok()?, 16).ok()?;
        Some(group.to_ne_bytes())
    });
    let bytes = groups.collect::<Option<Vec<_>>>()?.concat();
    let address: IpAddr = match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?).into())
}

/// Whether a socket that listens on `local` gets the connections to `address`. That of `[::]` is
/// taken to have those over IPv4, which its program may have declined (`IPV6_V6ONLY`).
fn accepts(local: SocketAddr, address: SocketAddr) -> bool {
    let (own, wanted) = (local.ip().to_canonical(), address.ip().to_canonical());
    let is_same = own == wanted || own.is_unspecified() && (own.is_ipv6() || wanted.is_ipv4());
    local.port() == address.port() && is_same
}

/// The topmost processes that listen on a Unix socket. The kernel names a socket as its server did,
/// which may have been by another path to the same directory.
pub fn unix_listeners(socket: &Path) -> Vec<i32> {
    let canonical = socket.canonicalize().ok();
    let is_socket = |path: &Path| {
        path == socket
            || path.is_absolute() && canonical.is_some() && path.canonicalize().ok() == canonical
    };
    let text = read_to_string("/proc/net/unix").unwrap_or_default();
    let mut inodes = HashSet::new();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split_whitespace().collect();
        if let (Some(inode), Some(path)) = (fields.get(6), fields.get(7))
            && is_socket(Path::new(path))
        {
            inodes.insert((*inode).to_string());
        }
    }
    topmost(holders(&inodes))
}

/// Processes that have one of these sockets open.
fn holders(inodes: &HashSet<String>) -> Vec<i32> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let holds = |pid: &i32| {
        let descriptors = read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let mut targets = descriptors
            .flatten()
            .filter_map(|descriptor| read_link(descriptor.path()).ok());
        targets.any(|target| {
            let target = target.to_string_lossy();
            let inode = target.strip_prefix("socket:[");
            inode.is_some_and(|inode| inodes.contains(inode.trim_end_matches(']')))
        })
    };
    pids().filter(holds).collect()
}

/// Whether a process is the first one or another systemd, which holds the sockets of the services
/// that it starts (socket activation). All processes of the machine or of a user descend from it.
fn manages_services(pid: i32) -> bool {
    let name = || read_to_string(format!("/proc/{pid}/comm"));
    pid == 1 || name().is_ok_and(|name| name.trim_end() == "systemd")
}

/// Leaves out service managers, and processes that descend from another one of them.
fn topmost(mut found: Vec<i32>) -> Vec<i32> {
    found.retain(|pid| !manages_services(*pid));
    let descends = |pid: i32| {
        let mut parent = stat(pid).map(|stat| stat.parent);
        while let Some(ancestor) = parent.filter(|ancestor| *ancestor > 1) {
            if found.contains(&ancestor) {
                return true;
            }
            parent = stat(ancestor).map(|stat| stat.parent);
        }
        false
    };
    found
        .iter()
        .copied()
        .filter(|pid| !descends(*pid))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn service_manager_that_holds_a_socket_is_no_server() {
        let own = std::process::id().cast_signed();
        assert_eq!(topmost(vec![1, own]), [own]);
        assert!(topmost(vec![1]).is_empty());
        // That of a user has another number.
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("systemd");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut manager = std::process::Command::new(program)
            .arg("600")
            .spawn()
            .unwrap();
        let pid = manager.id().cast_signed();
        // The kernel lets its parent go on before it gives the process that name.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !manages_services(pid) && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(topmost(vec![pid]).is_empty());
        manager.kill().unwrap();
        manager.wait().unwrap();
    }
}
