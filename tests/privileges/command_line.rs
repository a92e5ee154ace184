//! Tests what a compromised front end can do with command-line PHP, whose settings the keeper
//! replaces.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use surus::keeper::message::{KeeperReply, KeeperRequest};
use surus::launcher::{ProcessSignal, Role};

use super::Attacker;

pub fn compromised_front_end_cannot_change_the_disabled_functions() {
    if !crate::server::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::write(dir.path().join("index.php"), "<?php").unwrap();
    let keeper = Command::new(std::env::current_exe().unwrap())
        .env("HOSTILE_SURUS_FRONT", dir.path())
        .env("HOSTILE_SURUS_FOREIGN", "0")
        .env("HOSTILE_SURUS_SIBLING", "0")
        .env("SURUS_ENGINE", "cli")
        .output();
    let keeper = keeper.unwrap();
    let said = String::from_utf8_lossy(&keeper.stdout);
    println!("{said}");
    assert!(keeper.status.success(), "{said}");
}

/// A front end can close the directory of each and make another.
pub fn compromised_front_end_cannot_start_probes_without_end() {
    if !crate::server::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::write(dir.path().join("index.php"), "<?php").unwrap();
    let php = dir.path().join("php");
    let script = "#!/bin/sh\n[ \"$1\" != -i ] || exec php \"$@\"\nexec sleep 60\n";
    std::fs::write(&php, script).unwrap();
    set_permissions(&php, Permissions::from_mode(0o755)).unwrap();
    let keeper = Command::new(std::env::current_exe().unwrap())
        .env("HOSTILE_SURUS_FRONT", dir.path())
        .env("HOSTILE_SURUS_FOREIGN", "0")
        .env("HOSTILE_SURUS_SIBLING", "0")
        .env("SURUS_ENGINE_NAME", "cli")
        .env("SURUS_ENGINE_PHP_CLI", &php)
        .output();
    let keeper = keeper.unwrap();
    let said = String::from_utf8_lossy(&keeper.stdout);
    println!("{said}");
    assert!(keeper.status.success(), "{said}");
}

impl Attacker<'_> {
    pub fn attack_with_probes(&mut self) {
        let mut started = 0;
        for _ in 0..64 {
            let asked = self.ask_keeper(|id| KeeperRequest::RuntimeDir { id, pool: 0 }, &[]);
            let KeeperReply::Done {
                number: runtime_dir,
                ..
            } = asked
            else {
                panic!("{asked:?}");
            };
            let (_out, their_out) = std::io::pipe().unwrap();
            let fds = [
                surus_sys::process::memory_file(b"").unwrap(),
                their_out.try_clone().unwrap().into(),
                their_out.into(),
            ];
            let role = Role::Probe;
            let reply = self.ask_keeper(
                |id| KeeperRequest::Php {
                    id,
                    runtime_dir,
                    role,
                },
                &fds,
            );
            started += usize::from(matches!(reply, KeeperReply::Started { .. }));
            self.send_raw(
                &KeeperRequest::CloseRuntimeDir { runtime_dir }.encode(),
                &[],
            );
        }
        assert!(started > 0);
        self.refused(&format!("start {started} probes at once"), started < 10);
    }

    /// How a child exits.
    fn exit_of(&mut self, pid: u32) -> i32 {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let received = self.keeper.receive(&mut buffer).unwrap();
            match KeeperReply::decode(&buffer[..received.len]).unwrap() {
                KeeperReply::Exited {
                    pid: of,
                    wait_status,
                } if of == pid => return wait_status,
                _ => {}
            }
        }
    }

    pub fn attack_command_line_php(&mut self) {
        let mut runtime_dir =
            || match self.ask_keeper(|id| KeeperRequest::RuntimeDir { id, pool: 0 }, &[]) {
                KeeperReply::Done { number, .. } => number,
                other => panic!("{other:?}"),
            };
        let (first, second) = (runtime_dir(), runtime_dir());
        let memory = || surus_sys::process::memory_file(b"").unwrap();
        let start = |this: &mut Self, runtime_dir, role| {
            let (_out, their_out) = std::io::pipe().unwrap();
            let (_head, their_head) = std::io::pipe().unwrap();
            let mut fds = vec![
                memory(),
                their_out.try_clone().unwrap().into(),
                their_out.into(),
            ];
            if role == Role::Request {
                fds.extend([memory(), their_head.into()]);
            }
            match this.ask_keeper(
                |id| KeeperRequest::Php {
                    id,
                    runtime_dir,
                    role,
                },
                &fds,
            ) {
                KeeperReply::Started { pid, .. } => Some(pid),
                _ => None,
            }
        };
        let early = start(self, first, Role::Request);
        self.refused("run a script before PHP was asked", early.is_none());
        let probe = start(self, first, Role::Probe).unwrap();
        let which = ProcessSignal::Kill;
        self.send_raw(&KeeperRequest::Signal { pid: probe, which }.encode(), &[]);
        let is_killed = self.exit_of(probe) != 0;
        if is_killed {
            let without = start(self, first, Role::Request);
            self.refused("run a script when PHP could not answer", without.is_none());
        }
        let again = start(self, first, Role::Probe);
        self.refused("ask PHP a second time", again.is_none());
        let probe = start(self, second, Role::Probe).unwrap();
        assert_eq!(self.exit_of(probe), 0);
        assert!(start(self, second, Role::Request).is_some());
    }
}
