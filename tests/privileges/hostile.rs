//! A compromised front end, the keeper that it attacks, and the verdicts. It uses its own rights
//! and everything that it can send to the keeper and the opener.

use std::fs::{Permissions, set_permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use surus::keeper::ForkedFrontEnd;
use surus_sys::seqpacket::Seqpacket;

#[path = "command_line.rs"]
pub mod command_line;
#[path = "messages.rs"]
mod messages;
#[path = "opener.rs"]
mod opener;
#[path = "own_rights.rs"]
mod own_rights;

/// A user other than the front end's, PHP's and root.
const STRANGER: u32 = 47_111;

/// The front end's user, unless the test configures another.
const FRONT: &str = "nobody";

/// The content of every secret file.
const SECRET: &str = "secret-4711";

pub fn compromised_front_end_reaches_nothing() {
    attack(&[]);
}

pub fn compromised_front_end_without_landlock_and_seccomp_reaches_nothing() {
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
    if !crate::server::is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let outside = dir.path().join("outside");
    let project = dir.path().join("project");
    // The front end may create files there, so it must not be above the project.
    let temporary = dir.path().join("tmp");
    for (made, mode) in [(&outside, 0o755), (&project, 0o755), (&temporary, 0o1777)] {
        std::fs::create_dir(made).unwrap();
        set_permissions(made, Permissions::from_mode(mode)).unwrap();
    }
    let php = crate::server::id_of("www-data");
    put(&project.join("public.txt"), 0o644, 0, 0);
    put(&project.join("php.txt"), 0o600, php, php);
    put(&project.join("root.txt"), 0o600, 0, 0);
    put(&project.join("stranger.txt"), 0o600, STRANGER, STRANGER);
    put(&project.join("source.php"), 0o640, 0, php);
    put(&project.join(".env"), 0o640, 0, php);
    put(&project.join("surus.toml"), 0o640, 0, php);
    std::fs::write(project.join("surus.toml"), "[engine]\nworkers = 1\n").unwrap();
    std::fs::write(project.join("index.php"), "<?php").unwrap();
    put(&outside.join("root.txt"), 0o600, 0, 0);
    put(&outside.join("php.txt"), 0o600, php, php);
    put(&outside.join("stranger.txt"), 0o600, STRANGER, STRANGER);
    symlink("/etc/shadow", project.join("shadow.txt")).unwrap();
    symlink("../outside/root.txt", project.join("out.txt")).unwrap();
    // A file that PHP's user could have created.
    std::os::unix::fs::symlink("../outside/stranger.txt", project.join("theirs.txt")).unwrap();
    std::os::unix::fs::lchown(project.join("theirs.txt"), Some(php), Some(php)).unwrap();
    std::os::unix::fs::symlink("..", project.join("up")).unwrap();
    std::os::unix::fs::symlink("..", project.join("phps")).unwrap();
    std::os::unix::fs::lchown(project.join("phps"), Some(php), Some(php)).unwrap();
    std::os::unix::fs::symlink("php.txt", outside.join("link")).unwrap();
    std::os::unix::fs::symlink("php.txt", project.join(".link")).unwrap();

    put(&outside.join("public.txt"), 0o644, 0, 0);
    // As in deployments: a link to one of several versions.
    let current = dir.path().join("current");
    symlink("project", &current).unwrap();
    let project = current;

    let foreign = Command::new("sleep").arg("600").spawn().unwrap();
    // The kernel alone would let a process of the same user signal it.
    let sibling = Command::new("sleep")
        .arg("600")
        .uid(crate::server::id_of(FRONT))
        .spawn()
        .unwrap();
    let keeper = Command::new(std::env::current_exe().unwrap())
        .env("SURUS_HTTP_USER", FRONT)
        .env("HOSTILE_SURUS_FRONT", &project)
        .env("HOSTILE_SURUS_FOREIGN", foreign.id().to_string())
        .env("HOSTILE_SURUS_SIBLING", sibling.id().to_string())
        .env("TMPDIR", &temporary)
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = keeper.id();
    let watching = std::thread::spawn(move || {
        let mut max = 0;
        while let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
            max = max.max(open.count());
            std::thread::sleep(Duration::from_millis(2));
        }
        max
    });
    let output = keeper.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let max = watching.join().unwrap();
    assert!(max < 100, "the keeper held {max} descriptors");
    assert!(
        output.status.success() && said.contains("the keeper still answers"),
        "{said}"
    );
    for (mut other, what) in [(foreign, "a foreign process"), (sibling, "one of its user")] {
        assert!(other.try_wait().unwrap().is_none(), "{what} was ended");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

/// In the process that the test has started.
pub fn be_keeper(project: &Path) -> ExitCode {
    let pid = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let others = [pid("HOSTILE_SURUS_FOREIGN"), pid("HOSTILE_SURUS_SIBLING")];
    let kept = surus::cli::keep_other(project, |front| {
        let mut attacker = Attacker::new(project, front, others);
        if std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("SURUS_ENGINE")) {
            match std::env::var_os("SURUS_ENGINE_PHP_CLI") {
                Some(_) => attacker.attack_with_probes(),
                None => attacker.attack_command_line_php(),
            }
            return match attacker.succeeded {
                0 => Ok(()),
                some => anyhow::bail!("{some} attacks succeeded"),
            };
        }
        attacker.attack_with_its_own_rights();
        attacker.attack_opener();
        attacker.attack_keeper();
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
    /// A process of the front end's user.
    sibling: u32,
    next: u32,
    succeeded: usize,
    has_landlock: bool,
    /// Descriptors that the keeper has sent.
    held: Vec<OwnedFd>,
}

impl<'a> Attacker<'a> {
    fn new(
        project: &'a Path,
        mut front: ForkedFrontEnd,
        [foreign, sibling]: [u32; 2],
    ) -> Attacker<'a> {
        let mut fds = front.directories.remove(0).unwrap().fds;
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
            sibling,
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
}
