//! A front that has been taken over: what it can reach with its own rights, and with all that it
//! can send to the keeper and the opener.

use std::fs::{File, OpenOptions, Permissions, set_permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use surus::keeper::Front;
use surus::keeper::message::{Reply, Request};
use surus::launcher::{Role, Which};
use surus_sys::seqpacket::Seqpacket;

#[path = "command_line.rs"]
pub mod command_line;

/// A user that is neither the front, nor PHP, nor root.
const STRANGER: u32 = 47_111;

/// What every secret file has in it.
const SECRET: &str = "secret-4711";

pub fn compromised_front_reaches_nothing() {
    attack(&[]);
}

pub fn compromised_front_without_landlock_and_seccomp_reaches_nothing() {
    attack(&[
        ("SURUS_HTTP_LANDLOCK", "false"),
        ("SURUS_HTTP_SECCOMP", "false"),
    ]);
}

fn put(path: &Path, mode: u32, owner: u32, group: u32) {
    std::fs::write(path, SECRET).unwrap();
    chown(path, Some(owner), Some(group)).unwrap();
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn attack(env: &[(&str, &str)]) {
    if !crate::processes::is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let beside = dir.path().join("beside");
    let project = dir.path().join("project");
    // The front may make files there; so it must not be above the project.
    let temporary = dir.path().join("tmp");
    for (made, mode) in [(&beside, 0o755), (&project, 0o755), (&temporary, 0o1777)] {
        std::fs::create_dir(made).unwrap();
        set_permissions(made, Permissions::from_mode(mode)).unwrap();
    }
    let php = crate::processes::id_of("www-data");
    put(&project.join("public.txt"), 0o644, 0, 0);
    put(&project.join("php.txt"), 0o600, php, php);
    put(&project.join("root.txt"), 0o600, 0, 0);
    put(&project.join("stranger.txt"), 0o600, STRANGER, STRANGER);
    put(&project.join("source.php"), 0o640, 0, php);
    put(&project.join(".env"), 0o640, 0, php);
    put(&project.join("surus.toml"), 0o640, 0, php);
    std::fs::write(project.join("surus.toml"), "[engine]\nworkers = 1\n").unwrap();
    std::fs::write(project.join("index.php"), "<?php").unwrap();
    put(&beside.join("root.txt"), 0o600, 0, 0);
    put(&beside.join("php.txt"), 0o600, php, php);
    put(&beside.join("stranger.txt"), 0o600, STRANGER, STRANGER);
    symlink("/etc/shadow", project.join("shadow.txt")).unwrap();
    symlink("../beside/root.txt", project.join("out.txt")).unwrap();
    // One that a visitor of PHP's user could have made.
    std::os::unix::fs::symlink("../beside/stranger.txt", project.join("theirs.txt")).unwrap();
    std::os::unix::fs::lchown(project.join("theirs.txt"), Some(php), Some(php)).unwrap();
    std::os::unix::fs::symlink("..", project.join("up")).unwrap();

    put(&beside.join("public.txt"), 0o644, 0, 0);
    // As a deployment has it: a link that leads to one of several versions.
    let current = dir.path().join("current");
    symlink("project", &current).unwrap();
    let project = current;

    let mut foreign = Command::new("sleep").arg("600").spawn().unwrap();
    let keeper = Command::new(std::env::current_exe().unwrap())
        .env("HOSTILE_SURUS_FRONT", &project)
        .env("HOSTILE_SURUS_FOREIGN", foreign.id().to_string())
        .env("TMPDIR", &temporary)
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = keeper.id();
    let watching = std::thread::spawn(move || {
        let mut most = 0;
        while let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
            most = most.max(open.count());
            std::thread::sleep(Duration::from_millis(2));
        }
        most
    });
    let output = keeper.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let most = watching.join().unwrap();
    assert!(most < 100, "the keeper held {most} descriptors");
    assert!(
        output.status.success() && said.contains("the keeper still answers"),
        "{said}"
    );
    assert!(
        foreign.try_wait().unwrap().is_none(),
        "a foreign process was ended"
    );
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}

/// In the process that the test has started.
pub fn be_keeper(project: &Path) -> ExitCode {
    let foreign = std::env::var("HOSTILE_SURUS_FOREIGN")
        .unwrap()
        .parse()
        .unwrap();
    let kept = surus::cli::keep_other(project, |front| {
        let mut attacker = Attacker::new(project, front, foreign);
        if std::env::var_os("SURUS_ENGINE").is_some() {
            attacker.with_php_of_the_command_line();
            return match attacker.succeeded {
                0 => Ok(()),
                some => anyhow::bail!("{some} attacks succeeded"),
            };
        }
        attacker.with_its_own_rights();
        attacker.with_the_opener();
        attacker.with_the_keeper();
        match attacker.succeeded {
            0 => Ok(()),
            some => anyhow::bail!("{some} attacks succeeded"),
        }
    });
    match kept {
        Ok(status) => status.into(),
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

struct Attacker<'a> {
    project: &'a Path,
    keeper: Seqpacket,
    keeper_pid: u32,
    opener: Seqpacket,
    foreign: u32,
    next: u32,
    succeeded: usize,
    has_landlock: bool,
    /// Descriptors that the keeper has sent.
    held: Vec<OwnedFd>,
}

impl<'a> Attacker<'a> {
    fn new(project: &'a Path, front: Front, foreign: u32) -> Attacker<'a> {
        let mut fds = front.place.fds;
        let keeper = Seqpacket::from(front.socket);
        let opener = Seqpacket::from(fds.remove(0));
        keeper.limit_waits(Duration::from_secs(5)).unwrap();
        opener.limit_waits(Duration::from_millis(100)).unwrap();
        Attacker {
            project,
            keeper,
            keeper_pid: front.keeper,
            opener,
            foreign,
            next: 1,
            succeeded: 0,
            held: Vec::new(),
            has_landlock: std::env::var_os("SURUS_HTTP_LANDLOCK").is_none(),
        }
    }

    fn refused(&mut self, what: &str, is_refused: bool) {
        println!(
            "{} {what}",
            if is_refused { "refused" } else { "SUCCEEDED" }
        );
        self.succeeded += usize::from(!is_refused);
    }

    fn with_its_own_rights(&mut self) {
        assert_ne!(surus_sys::process::uid(), 0, "it must not attack as root");
        let keeper = self.keeper_pid;
        let proc = |name: &str| format!("/proc/{keeper}/{name}");
        let beside = self.project.parent().unwrap().join("beside");
        let mut unreadable = vec![
            "/etc/shadow".into(),
            "/proc/1/environ".into(),
            "/root/.ssh".into(),
        ];
        unreadable
            .extend([proc("environ"), proc("mem"), proc("maps"), proc("fd/1")].map(Into::into));
        unreadable.extend(["root.txt", "php.txt", "stranger.txt"].map(|name| beside.join(name)));
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
            unreadable.push(beside.join("public.txt"));
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
        // Its own; for a process of the same user it would be as forbidden: it is not dumpable.
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
        for pid in [1, keeper, self.foreign] {
            self.refused(
                &format!("kill {pid}"),
                surus_sys::process::kill(pid).is_err(),
            );
            self.refused(
                &format!("end {pid}"),
                surus_sys::process::terminate(pid).is_err(),
            );
        }
        if self.has_landlock {
            let started = Command::new("/bin/true").status();
            self.refused("start a program", started.is_err());
            let bound = std::net::TcpListener::bind("127.0.0.1:0");
            self.refused("bind a port", bound.is_err());
            let connected = std::net::TcpStream::connect("127.0.0.1:9");
            let why = connected.map_err(|error| error.kind());
            let denied = std::io::ErrorKind::PermissionDenied;
            self.refused("connect to a port", why.is_err_and(|why| why == denied));
        }
    }

    /// What the opener answers: a code, and a file's content if it sends one.
    fn ask_opener(&mut self, what: u8, tree: u16, path: &[u8]) -> Option<(u8, String)> {
        let number = self.next;
        self.next += 1;
        let head = [&number.to_le_bytes()[..], &[what], &tree.to_le_bytes()[..]].concat();
        let _ = self.opener.send_with(&[&head, path].concat(), &[]);
        let mut buffer = [0; 8192];
        loop {
            let mut received = self.opener.receive(&mut buffer).ok()?;
            let answer = &buffer[..received.len];
            if answer.len() < 5 {
                return None;
            }
            if answer[..4] == number.to_le_bytes() {
                let text = match received.fds.pop() {
                    Some(file) => std::io::read_to_string(File::from(file)).unwrap_or_default(),
                    None => String::from_utf8_lossy(&answer[5..]).into_owned(),
                };
                return Some((answer[4], text));
            }
        }
    }

    fn with_the_opener(&mut self) {
        let project = self.project.to_owned();
        let absolute = project.join("php.txt");
        let mut refused: Vec<Vec<u8>> = [
            "../beside/php.txt",
            "../beside/root.txt",
            "./php.txt",
            "a/../php.txt",
            "a/../../beside/php.txt",
            "/etc/passwd",
            "/etc/shadow",
            "",
            ".",
            "..",
            "root.txt",
            "stranger.txt",
            "source.php",
            ".env",
            "surus.toml",
            "shadow.txt",
            "out.txt",
            "theirs.txt",
            "up/beside/root.txt",
            "up/beside/stranger.txt",
            "up/project/.env",
            "php.txt\0",
        ]
        .map(|path| path.as_bytes().to_vec())
        .into();
        refused.push(absolute.as_os_str().as_encoded_bytes().to_vec());
        refused.push(vec![b'a'; 5000]);
        refused.push(vec![0xff; 100]);
        refused.push([b"../".repeat(100), b"etc/shadow".to_vec()].concat());
        for path in refused {
            // The second directory is the project, for X-Sendfile.
            for (what, tree) in [(1, 0), (1, 1), (4, 0), (0, 0), (255, 0)] {
                let answer = self.ask_opener(what, tree, &path);
                let is_refused = answer
                    .as_ref()
                    .is_none_or(|(_, text)| !text.contains(SECRET) && !text.contains("root:"));
                let path = String::from_utf8_lossy(&path[..path.len().min(60)]);
                self.refused(&format!("open {path:?} ({what}, {tree})"), is_refused);
            }
        }
        for tree in [7, u16::MAX] {
            let answer = self.ask_opener(1, tree, b"php.txt");
            self.refused(
                "open below no directory",
                answer.is_none_or(|(code, _)| code == 5),
            );
        }
        for path in [
            "/etc/shadow",
            "/root",
            "/etc",
            "/proc/self/root",
            "relative",
        ] {
            let answer = self.ask_opener(3, 0, path.as_bytes());
            self.refused(
                &format!("resolve {path}"),
                answer.is_none_or(|(code, _)| code == 5),
            );
        }
        // It is alive, and does what it is for.
        let answer = self.ask_opener(1, 0, b"php.txt");
        assert_eq!(answer, Some((2, SECRET.to_string())), "the opener has died");
    }

    /// The keeper's next answer to this question.
    fn ask_keeper(&mut self, request: impl Fn(u32) -> Request, fds: &[OwnedFd]) -> Reply {
        let id = self.next;
        self.next += 1;
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.keeper.send_with(&request(id).encode(), &fds).unwrap();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let received = self.keeper.receive(&mut buffer).unwrap();
            self.held.extend(received.fds);
            let reply = Reply::decode(&buffer[..received.len]).unwrap();
            match &reply {
                Reply::Started { id: of, .. }
                | Reply::Done { id: of, .. }
                | Reply::Failed { id: of, .. }
                    if *of == id =>
                {
                    return reply;
                }
                _ => {}
            }
        }
    }

    fn send_raw(&self, bytes: &[u8], fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        // It may be too large for the socket itself, or the keeper may be slower than this.
        for _ in 0..1000 {
            match self.keeper.send_with(bytes, &fds) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }

    fn with_the_keeper(&mut self) {
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
        let is_failed = |reply: Reply| matches!(reply, Reply::Failed { .. });

        for length in [1, 2, 3, 7, 64, 1000, 33_000, 100_000, 200_000] {
            for byte in [0, 1, 5, 8, 9, 255] {
                // This one would end the first start.
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
            self.send_raw(&Request::Place { id: 0 }.encode()[..2], &many);
        }
        for pool in [0, 1, 255, u16::MAX] {
            let failed = is_failed(self.ask_keeper(|id| Request::Home { id, pool }, &[]));
            self.refused(&format!("make a directory for pool {pool}"), failed);
            let failed = is_failed(self.ask_keeper(|id| Request::Connect { id, pool }, &[]));
            self.refused(&format!("connect for pool {pool}"), failed);
            for fds in [0, 1, 7, 8, 9, 16] {
                let template = |id| Request::Template { id, pool };
                let nulls: Vec<_> = (0..fds).map(|_| null()).collect();
                let failed = is_failed(self.ask_keeper(template, &nulls));
                self.refused(&format!("start pool {pool} with {fds} files"), failed);
                let memories: Vec<_> = (0..fds).map(|_| memory(4096)).collect();
                let failed = is_failed(self.ask_keeper(template, &memories));
                self.refused(&format!("start pool {pool} with {fds} memories"), failed);
            }
        }
        for (home, role) in [(0, Role::Probe), (1, Role::Event), (u32::MAX, Role::Server)] {
            let php = |id| Request::Php { id, home, role };
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
                Which::Stop,
                Which::Resume,
                Which::Terminate,
                Which::Kill,
                Which::KillGroup,
            ] {
                self.send_raw(&Request::Signal { pid, which }.encode(), &[]);
                self.send_raw(&Request::Signal { pid, which }.encode(), &[null()]);
                self.send_raw(&Request::Signal { pid, which }.encode(), &[null(), null()]);
            }
        }
        for place in [0, 2, u32::MAX] {
            let opener = |id| Request::Opener { id, place };
            let failed = is_failed(self.ask_keeper(opener, &[]));
            self.refused(&format!("have an opener of place {place}"), failed);
        }
        for _ in 0..100 {
            let opener = |id| Request::Opener { id, place: 1 };
            // It may have as many at once as it may have places; those before are killed.
            let _ = self.ask_keeper(opener, &[]);
        }
        self.held.clear();
        // Descriptors without room are missed by this message alone.
        let many: Vec<_> = (0..200).map(|_| null()).collect();
        let answer = self.ask_keeper(|id| Request::Home { id, pool: 0 }, &many);
        self.refused(
            "have a message with too many descriptors done",
            is_failed(answer),
        );
        for home in [0, 1, u32::MAX] {
            self.send_raw(&Request::CloseHome { home }.encode(), &[]);
        }
        let mut openers = 0;
        while openers < 100 && !is_failed(self.ask_keeper(|id| Request::Place { id }, &[])) {
            openers += 1;
        }
        self.refused(&format!("have {openers} openers"), openers < 20);
        self.held.clear();
        // Its openers end when they find that their sockets are closed.
        let answered = (0..6000).any(|_| {
            let reply = self.ask_keeper(|id| Request::Place { id }, &[]);
            let is_done = matches!(reply, Reply::Done { .. });
            if !is_done {
                std::thread::sleep(Duration::from_millis(10));
            }
            is_done
        });
        assert!(answered, "the keeper no longer does what it is for");
        let stat = std::fs::read_to_string(format!("/proc/{foreign}/stat")).unwrap();
        self.refused(
            "stop a foreign process",
            !stat.contains(") T ") && !stat.contains(") Z "),
        );
        println!("the keeper still answers");
    }
}
