//! Tests what a compromised front end can make the keeper do.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use surus::keeper::message::{KeeperReply, KeeperRequest};
use surus::launcher::{ProcessSignal, Role};

use super::Attacker;

impl Attacker<'_> {
    /// The keeper's next reply to this request.
    pub fn ask_keeper(
        &mut self,
        request: impl Fn(u32) -> KeeperRequest,
        fds: &[OwnedFd],
    ) -> KeeperReply {
        let id = self.next;
        self.next += 1;
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.keeper.send_with(&request(id).encode(), &fds).unwrap();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let received = self.keeper.receive(&mut buffer).unwrap();
            self.held.extend(received.fds);
            let reply = KeeperReply::decode(&buffer[..received.len]).unwrap();
            match &reply {
                KeeperReply::Started { id: of, .. }
                | KeeperReply::Done { id: of, .. }
                | KeeperReply::Failed { id: of, .. }
                    if *of == id =>
                {
                    return reply;
                }
                _ => {}
            }
        }
    }

    pub fn send_raw(&self, bytes: &[u8], fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        // The message may be too large for the socket, or the keeper may be slower than this.
        for _ in 0..1000 {
            match self.keeper.send_with(bytes, &fds) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }

    /// Sends a socket whose close(2) waits until the other end has read everything. The next answer
    /// of the keeper tells whether it waits.
    fn send_lingering_socket(&mut self) {
        let Ok(listener) = std::net::TcpListener::bind("127.0.0.1:0") else {
            return;
        };
        let address = listener.local_addr().unwrap();
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 64 * 1024]).is_ok() {}
        surus_sys::socket::set_linger(&socket, Some(Duration::from_secs(1000)));
        self.send_raw(
            &KeeperRequest::CloseRuntimeDir { runtime_dir: 9 }.encode(),
            &[socket.into()],
        );
        self.ask_keeper(|id| KeeperRequest::Connect { id, pool: 255 }, &[]);
        self.refused("have the keeper wait for a socket", true);
    }

    pub fn attack_keeper(&mut self) {
        let null = || {
            OwnedFd::from(
                File::options()
                    .read(true)
                    .write(true)
                    .open("/dev/null")
                    .unwrap(),
            )
        };
        let memory = |len: usize| surus_sys::process::memory_file(&vec![0; len]).unwrap();
        let is_failed = |reply: KeeperReply| matches!(reply, KeeperReply::Failed { .. });

        for length in [1, 2, 3, 7, 64, 1000, 33_000, 100_000, 200_000] {
            for byte in [0, 1, 5, 8, 9, 255] {
                // This message would end the first start.
                if (byte, length) != (8, 1) {
                    self.send_raw(&vec![byte; length], &[]);
                }
            }
        }
        for round in 0..200_u32 {
            let bytes: Vec<u8> = (0..round)
                .map(|n| (n * 7919 + round * 104_729) as u8)
                .collect();
            if bytes.first() != Some(&8) && !bytes.is_empty() {
                self.send_raw(&bytes, &[]);
            }
        }
        for _ in 0..100 {
            let many: Vec<_> = (0..200).map(|_| null()).collect();
            self.send_raw(
                &KeeperRequest::SiteDirectories { id: 0, site: 0 }.encode()[..2],
                &many,
            );
        }
        for pool in [0, 1, 255, u32::MAX] {
            let failed =
                is_failed(self.ask_keeper(|id| KeeperRequest::RuntimeDir { id, pool }, &[]));
            self.refused(&format!("make a directory for pool {pool}"), failed);
            let failed = is_failed(self.ask_keeper(|id| KeeperRequest::Connect { id, pool }, &[]));
            self.refused(&format!("connect for pool {pool}"), failed);
            for fds in [0, 1, 7, 8, 9, 16] {
                let master = |id| KeeperRequest::Master { id, pool };
                let nulls: Vec<_> = (0..fds).map(|_| null()).collect();
                let failed = is_failed(self.ask_keeper(master, &nulls));
                self.refused(&format!("start pool {pool} with {fds} files"), failed);
                let memories: Vec<_> = (0..fds).map(|_| memory(4096)).collect();
                let failed = is_failed(self.ask_keeper(master, &memories));
                self.refused(&format!("start pool {pool} with {fds} memories"), failed);
            }
        }
        for (runtime_dir, role) in [
            (0, Role::Probe),
            (1, Role::Request),
            (u32::MAX, Role::Server),
        ] {
            let php = |id| KeeperRequest::Php {
                id,
                runtime_dir,
                role,
            };
            let failed = is_failed(self.ask_keeper(php, &[null(), null(), null()]));
            self.refused(
                &format!("start PHP without a directory, as {role:?}"),
                failed,
            );
        }
        let pids = [
            0,
            1,
            2,
            u32::MAX,
            1 << 31,
            self.keeper_pid,
            self.foreign,
            std::process::id(),
        ];
        let foreign = self.foreign;
        for pid in pids {
            for which in [
                ProcessSignal::Stop,
                ProcessSignal::Resume,
                ProcessSignal::Terminate,
                ProcessSignal::Kill,
                ProcessSignal::KillGroup,
            ] {
                self.send_raw(&KeeperRequest::Signal { pid, which }.encode(), &[]);
                self.send_raw(&KeeperRequest::Signal { pid, which }.encode(), &[null()]);
                self.send_raw(
                    &KeeperRequest::Signal { pid, which }.encode(),
                    &[null(), null()],
                );
            }
        }
        for directories in [0, 2, u32::MAX] {
            let opener = |id| KeeperRequest::Opener { id, directories };
            let failed = is_failed(self.ask_keeper(opener, &[]));
            self.refused(
                &format!("have an opener of directories {directories}"),
                failed,
            );
        }
        for _ in 0..100 {
            let opener = |id| KeeperRequest::Opener { id, directories: 1 };
            // The front end can have as many openers at once as there are slots; earlier ones are
            // killed.
            let _ = self.ask_keeper(opener, &[]);
        }
        for domain in [0, 1, u16::MAX] {
            let acme = |is_asked| {
                move |id| KeeperRequest::Acme {
                    id,
                    domain,
                    is_asked,
                }
            };
            let (ours, theirs) = surus_sys::seqpacket::Seqpacket::blocking_pair().unwrap();
            for fds in [&[][..], &[null()], &[null(), null()], &[theirs]] {
                let failed = is_failed(self.ask_keeper(acme(false), fds));
                let failed = failed && is_failed(self.ask_keeper(acme(true), fds));
                self.refused(&format!("get a certificate for domain {domain}"), failed);
            }
            drop(ours);
        }
        for text in ["", "/etc/shadow", "surus pages 1\nfile:///etc/shadow\n"] {
            for (pool, keep) in [(0, false), (0, true), (u32::MAX, true)] {
                let pages = |id| KeeperRequest::Pages {
                    id,
                    pool,
                    keep,
                    text: text.into(),
                };
                let failed = is_failed(self.ask_keeper(pages, &[]));
                self.refused(&format!("warm up pool {pool} by {text:?}"), failed);
            }
        }
        self.held.clear();
        // Descriptors without room are missing from this message only.
        let many: Vec<_> = (0..200).map(|_| null()).collect();
        let answer = self.ask_keeper(|id| KeeperRequest::RuntimeDir { id, pool: 0 }, &many);
        self.refused(
            "send a message with too many descriptors",
            is_failed(answer),
        );
        self.send_lingering_socket();
        let file = [null()];
        let answer = self.ask_keeper(|id| KeeperRequest::SiteDirectories { id, site: 0 }, &file);
        self.refused("send a file where none belongs", is_failed(answer));
        for runtime_dir in [0, 1, u32::MAX] {
            self.send_raw(
                &KeeperRequest::CloseRuntimeDir { runtime_dir }.encode(),
                &[],
            );
        }
        let answer = self.ask_keeper(|id| KeeperRequest::SiteDirectories { id, site: 1 }, &[]);
        self.refused("open the directories of another site", is_failed(answer));
        let mut openers = 0;
        while openers < 100
            && !is_failed(self.ask_keeper(|id| KeeperRequest::SiteDirectories { id, site: 0 }, &[]))
        {
            openers += 1;
        }
        self.refused(&format!("have {openers} openers"), openers < 20);
        self.held.clear();
        // The front end's openers exit when their sockets are closed.
        let answered = (0..6000).any(|_| {
            let reply = self.ask_keeper(|id| KeeperRequest::SiteDirectories { id, site: 0 }, &[]);
            let is_done = matches!(reply, KeeperReply::Done { .. });
            if !is_done {
                std::thread::sleep(Duration::from_millis(10));
            }
            is_done
        });
        assert!(answered, "the keeper no longer serves requests");
        let stat = std::fs::read_to_string(format!("/proc/{foreign}/stat")).unwrap();
        self.refused(
            "stop a foreign process",
            !stat.contains(") T ") && !stat.contains(") Z "),
        );
        println!("the keeper still answers");
    }
}
