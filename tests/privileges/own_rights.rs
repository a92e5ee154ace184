//! Tests what a compromised front end can do with its own rights.

use std::fs::{File, OpenOptions};
use std::process::Command;

use super::Attacker;

impl Attacker<'_> {
    pub fn attack_with_its_own_rights(&mut self) {
        assert_ne!(surus_sys::process::uid(), 0, "it must not attack as root");
        let keeper = self.keeper_pid;
        let proc = |name: &str| format!("/proc/{keeper}/{name}");
        let outside = self.project.parent().unwrap().join("outside");
        let mut unreadable = vec![
            "/etc/shadow".into(),
            "/proc/1/environ".into(),
            "/root/.ssh".into(),
        ];
        unreadable
            .extend([proc("environ"), proc("mem"), proc("maps"), proc("fd/1")].map(Into::into));
        unreadable.extend(["root.txt", "php.txt", "stranger.txt"].map(|name| outside.join(name)));
        let inside = [
            "root.txt",
            "php.txt",
            "stranger.txt",
            "source.php",
            ".env",
            "surus.toml",
        ];
        unreadable.extend(inside.map(|name| self.project.join(name)));
        if self.has_landlock {
            unreadable.push(outside.join("public.txt"));
            unreadable.extend(["/etc/passwd", "/etc/hostname", "/usr/bin/env"].map(Into::into));
        }
        for path in unreadable {
            let opened = File::open(&path);
            self.refused(&format!("read {}", path.display()), opened.is_err());
        }
        for path in [
            self.project.join("made.txt"),
            "/etc/made".into(),
            "/run/made".into(),
        ] {
            let made = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path);
            self.refused(&format!("write {}", path.display()), made.is_err());
        }
        // Its own environment, which is also unreadable to other processes of the same user,
        // because it is not dumpable.
        let own = std::fs::metadata("/proc/self/environ").unwrap();
        self.refused(
            "be dumpable",
            std::os::unix::fs::MetadataExt::uid(&own) == 0,
        );
        let root = surus_sys::privileges::Identity {
            uid: 0,
            gid: 0,
            groups: vec![],
        };
        self.refused(
            "become root",
            surus_sys::privileges::give_up(&root).is_err(),
        );
        let mut others = vec![1, keeper, self.foreign];
        if self.has_landlock {
            others.push(self.sibling);
        }
        for pid in others {
            self.refused(
                &format!("kill {pid}"),
                surus_sys::process::kill(pid).is_err(),
            );
            self.refused(
                &format!("end {pid}"),
                surus_sys::process::terminate(pid).is_err(),
            );
        }
        let input = std::fs::read_link("/proc/self/fd/0").unwrap();
        self.refused("have root's stdin", input.as_os_str() == "/dev/null");
        if self.has_landlock {
            let socket = std::os::unix::net::UnixDatagram::unbound();
            let why = socket.map_err(|error| error.kind());
            let denied = std::io::ErrorKind::PermissionDenied;
            self.refused("make a unix socket", why.is_err_and(|why| why == denied));
            let pair = std::os::unix::net::UnixDatagram::pair();
            let why = pair.map_err(|error| error.kind());
            let is_denied = why.is_err_and(|why| why == denied);
            self.refused("make a pair of datagram sockets", is_denied);
            let parent = surus_sys::privileges::end_with(keeper);
            self.refused("outlive the keeper", parent.is_err());
            let started = Command::new("/bin/true").status();
            self.refused("start a program", started.is_err());
            let bound = std::net::TcpListener::bind("127.0.0.1:0");
            self.refused("bind a port", bound.is_err());
            let connected = std::net::TcpStream::connect("127.0.0.1:9");
            let why = connected.map_err(|error| error.kind());
            self.refused("connect to a port", why.is_err_and(|why| why == denied));
        }
    }
}
