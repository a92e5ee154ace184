//! Starts the master process and parses its messages.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Report;
use crate::engines::catalogue::{self, BootsIn};
use crate::engines::external::command::groups;
use crate::engines::learned::Learned;
use crate::engines::php_ini;
use crate::engines::workers::ipc::requests;
use crate::engines::workers::ipc::response_poller::ResponsePoller;
use crate::event::Event;
use crate::launcher::{Child, Launch, MASTER_DESCRIPTORS};
use anyhow::{Context, anyhow};
use surus_sys::process::{self, User};
use surus_sys::scoreboard::Scoreboard;
use surus_sys::seqpacket::{AsyncSeqpacket, Seqpacket};
use tokio::net::unix::pipe;

/// How to run PHP; the same for every generation.
#[derive(Clone)]
pub struct Spec {
    /// The name in metrics, logs and the status.
    pub name: &'static str,
    /// The engine's name in the catalogue.
    pub engine: &'static str,
    /// `surus-php8.x`.
    pub program: PathBuf,
    /// The dynamic loader that starts `program` with the libraries in its directory. None for the
    /// loader that `program` names.
    pub loader: Option<PathBuf>,
    /// The most workers. The memory that they share with Surus is large enough for all.
    pub workers: usize,
    /// The fewest.
    pub min_workers: usize,
    /// How many there are at first.
    pub first_workers: usize,
    /// Finds what to boot, if the engine boots a script.
    pub script: Option<FindScript>,
    /// What requests teach the next boots.
    pub learned: Option<Arc<Learned>>,
    /// URLs of `engine.warmup`.
    pub warmup: Vec<String>,
    /// See [`Settings`](crate::engines::Settings::reports_leaks).
    pub reports_leaks: bool,
    /// Memory in which PHP records its start-up.
    pub profile: Option<Arc<std::fs::File>>,
    /// Peers to which the boot may leave connections open.
    pub shared_sockets: Vec<String>,
    /// Compare all memory after each rewind.
    pub verify_restore: bool,
    /// See [`Settings`](crate::engines::Settings::direct_binding).
    pub direct_binding: bool,
    /// Workers give Surus access to their memory, so that it can ask for backtraces.
    pub traces_slow: bool,
    /// The longest busy poll.
    pub busy_poll: Duration,
    pub max_requests: u64,
    /// Bytes; 0 means no limit.
    pub max_memory: u64,
    /// The workers' user. None for the current one.
    pub user: Option<User>,
    /// Replaces the php.ini that PHP would find.
    pub ini_file: Option<PathBuf>,
    /// Entries that override php.ini.
    pub ini: Vec<(String, String)>,
    pub clear_env: bool,
    pub env: BTreeMap<String, String>,
    /// The launcher that starts the master process, if not this process.
    pub launch: Option<Launch>,
}

impl Spec {
    /// Whether workers are forked from a booted process.
    pub fn boots_in_master(&self) -> bool {
        catalogue::find(self.engine).is_ok_and(|entry| entry.boots_in == BootsIn::Master)
    }

    /// Whether each worker serves one event.
    pub fn serves_one(&self) -> bool {
        catalogue::find(self.engine).is_ok_and(|entry| entry.serves_one)
    }

    /// Whether each worker boots the application itself.
    pub fn boots_in_workers(&self) -> bool {
        catalogue::find(self.engine).is_ok_and(|entry| entry.boots_in == BootsIn::Worker)
    }
}

/// The most URLs of `engine.warmup` that a boot reports as left to other scripts.
const MOST_LEFT: usize = 80;

/// What to boot.
pub struct Boot {
    /// Absolute path of the PHP file.
    pub script: PathBuf,
    /// The application's directory, if links may lead to another one later.
    pub project: Option<Linked>,
    /// A boot script of Surus that runs in its place.
    pub code: Option<Code>,
    /// Whether no request for another script of the document root gets here.
    pub leaves_others: bool,
    /// `DOCUMENT_ROOT` while it boots.
    pub document_root: String,
    /// Served once after the boot, before the first event.
    pub warmup: Vec<Event>,
    /// Which URLs of [`Spec::warmup`] are not among them, because other scripts answer those.
    pub left_to_others: Vec<usize>,
}

/// A path, and where its links lead.
pub struct Linked {
    pub path: PathBuf,
    pub target: PathBuf,
}

/// A script that is part of Surus. PHP gets its text and not a file, so that PHP's user cannot
/// change it, and `open_basedir` need not allow it.
#[derive(Debug, Clone)]
pub struct Code {
    /// Its name in PHP's messages. OPcache caches no script whose name is a URL.
    pub name: String,
    pub text: String,
}

/// Finds what to boot. Called for each boot, because a symbolic link may have changed before a
/// reload.
pub type FindScript = Arc<dyn Fn() -> anyhow::Result<Boot> + Send + Sync>;

/// A started master process.
pub struct StartedMaster {
    pub child: Child,
    pub control: AsyncSeqpacket,
    /// The sending end of the inbox.
    pub inbox: Seqpacket,
    /// Each worker sends a message when it first waits for events.
    pub waiting: AsyncSeqpacket,
    /// Its stdout and stderr.
    pub output: [pipe::Receiver; 2],
}

/// Starts the master process. `slots` is the number of slots for requests in the scoreboard.
pub async fn start(
    spec: &Spec,
    board: &Scoreboard,
    slots: u16,
    poller: &ResponsePoller,
) -> anyhow::Result<StartedMaster> {
    let (control, their_control) = Seqpacket::pair().context("cannot create the control socket")?;
    let (inbox, their_inbox) = Seqpacket::pair().context("cannot create the request socket")?;
    let (waiting, their_waiting) =
        Seqpacket::pair().context("cannot create the start-up socket")?;
    let (stdout, their_stdout) =
        io::pipe().context("cannot create a pipe for the master process")?;
    let (stderr, their_stderr) =
        io::pipe().context("cannot create a pipe for the master process")?;
    let theirs: [OwnedFd; MASTER_DESCRIPTORS] = [
        their_control,
        their_inbox,
        board.fd().try_clone_to_owned()?,
        their_waiting,
        poller.rings.fd().try_clone_to_owned()?,
        poller.doorbell.fd().try_clone_to_owned()?,
        their_stdout.into(),
        their_stderr.into(),
    ];
    let child = match &spec.launch {
        Some(launch) => launch.by.master(launch.pool, theirs.into()).await?,
        None => {
            let groups = spec.user.as_ref().map(groups).transpose()?;
            let groups = groups.unwrap_or_default();
            Child::Plain(launch(spec, slots, theirs, &groups)?)
        }
    };
    Ok(StartedMaster {
        child,
        control: AsyncSeqpacket::new(control)?,
        inbox,
        waiting: AsyncSeqpacket::new(waiting)?,
        output: [
            pipe::Receiver::from_owned_fd(stdout.into())?,
            pipe::Receiver::from_owned_fd(stderr.into())?,
        ],
    })
}

/// Starts the master process as a child of this process, with descriptors in the order of
/// [`MASTER_DESCRIPTORS`]. `groups` are those of the user.
pub fn launch(
    spec: &Spec,
    slots: u16,
    theirs: [OwnedFd; MASTER_DESCRIPTORS],
    groups: &[u32],
) -> anyhow::Result<std::process::Child> {
    let boot = spec.script.as_ref().map(|find| find()).transpose()?;
    let settings = process::memory_file(&encode(spec, boot.as_ref(), slots, groups)?)
        .context("cannot write the master process's settings to memory")?;
    let [
        control,
        inbox,
        board,
        waiting,
        rings,
        doorbell,
        stdout,
        stderr,
    ] = theirs;
    let mut command = command(spec);
    if spec.user.is_none() {
        // The dynamic linker and libraries read some before the settings can be read. A process
        // that still has to give up root gets them only afterwards.
        command.envs(&spec.env);
    }
    command
        .arg("master")
        .stdin(no_input().context("cannot open an empty input for PHP")?)
        .stdout(stdout)
        .stderr(stderr);
    // The numbers are those of sapi/base/descriptors.h.
    let mut fds: Vec<(OwnedFd, i32)> = vec![
        (control, 3),
        (inbox, 4),
        (board, 5),
        (settings, 6),
        (waiting, 9),
        (rings, 10),
        (doorbell, 11),
    ];
    if let Some(boot) = boot.as_ref().filter(|boot| !boot.warmup.is_empty()) {
        let messages = process::memory_file(&warmups(boot)?)
            .context("cannot write the warm-up requests to memory (engine.warmup)")?;
        fds.push((messages, 7));
    }
    if let Some(profile) = &spec.profile {
        fds.push((profile.try_clone()?.into(), 8));
    }
    process::spawn(command, fds).with_context(|| match &spec.loader {
        Some(loader) => format!("cannot start {} (engine.dynamic_loader)", loader.display()),
        None => format!("cannot start {}", spec.program.display()),
    })
}

/// An input without anything to read. An empty root, in which one executable runs, has no
/// `/dev/null`.
fn no_input() -> io::Result<Stdio> {
    match File::open("/dev/null") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(process::memory_file(&[])?.into())
        }
        opened => Ok(opened?.into()),
    }
}

/// `surus-php`, without arguments.
fn command(spec: &Spec) -> Command {
    let name = spec.program.file_name().unwrap_or(spec.program.as_os_str());
    let Some(loader) = &spec.loader else {
        let mut command = Command::new(&spec.program);
        command.arg0(name);
        return command;
    };
    let mut command = Command::new(loader);
    // On the command line and not in LD_LIBRARY_PATH, which programs started by PHP would inherit.
    // The system's cache may name libraries for another C library.
    command.arg("--inhibit-cache").arg("--library-path");
    command.arg(loader.parent().unwrap_or(Path::new("/")));
    command.arg("--argv0").arg(name).arg(&spec.program);
    command
}

/// NUL-terminated `key=value`, as sapi/base/settings.c reads them.
fn encode(spec: &Spec, boot: Option<&Boot>, slots: u16, groups: &[u32]) -> anyhow::Result<Vec<u8>> {
    let mut settings = Vec::new();
    let mut put = |key: &str, value: &str| {
        if value.contains('\0') {
            return Err(anyhow!("the setting {key} contains a NUL byte"));
        }
        settings.extend_from_slice(format!("{key}={value}\0").as_bytes());
        Ok(())
    };
    put("engine", spec.engine)?;
    if let Some(boot) = boot {
        put(
            "script",
            boot.script
                .to_str()
                .context("the path of the script is not UTF-8")?,
        )?;
        if let Some(code) = &boot.code {
            put("code", &code.text)?;
            put("code_name", &code.name)?;
        }
        put("document_root", &boot.document_root)?;
        put("leaves_others", if boot.leaves_others { "1" } else { "0" })?;
        // Only a path in UTF-8 can be passed; without it, links are not checked.
        let linked = boot.project.as_ref();
        let linked = linked.and_then(|linked| linked.path.to_str().zip(linked.target.to_str()));
        if let Some((path, target)) = linked {
            put("project", path)?;
            put("project_target", target)?;
        }
        put("warms_up", if boot.warmup.is_empty() { "0" } else { "1" })?;
        // PHP's report repeats it, because this may be another process than the front end.
        let left = boot.left_to_others.iter().take(MOST_LEFT);
        let left: Vec<_> = left.map(usize::to_string).collect();
        put("left_to_others", &left.join(","))?;
    }
    put("learns", if spec.learned.is_some() { "1" } else { "0" })?;
    put("reports_leaks", if spec.reports_leaks { "1" } else { "0" })?;
    put("profiles", if spec.profile.is_some() { "1" } else { "0" })?;
    for peer in &spec.shared_sockets {
        put("socket", peer)?;
    }
    put(
        "verify_restore",
        if spec.verify_restore { "1" } else { "0" },
    )?;
    put(
        "direct_binding",
        if spec.direct_binding { "1" } else { "0" },
    )?;
    put("traces_slow", if spec.traces_slow { "1" } else { "0" })?;
    put("workers", &spec.workers.to_string())?;
    put("slots", &slots.to_string())?;
    put("max_requests", &spec.max_requests.to_string())?;
    put("max_memory", &spec.max_memory.to_string())?;
    put("clear_env", if spec.clear_env { "1" } else { "0" })?;
    if let Some(user) = &spec.user {
        put("user", &user.name)?;
        put("uid", &user.uid.to_string())?;
        put("gid", &user.gid.to_string())?;
        for group in groups {
            put("group", &group.to_string())?;
        }
    }
    if let Some(file) = &spec.ini_file {
        put(
            "ini_file",
            file.to_str().context("the path of php.ini is not UTF-8")?,
        )?;
    }
    for (name, value) in &spec.ini {
        put("ini", &php_ini::line(name, value)?)?;
    }
    for (name, value) in &spec.env {
        put("env", &format!("{name}={value}"))?;
    }
    Ok(settings)
}

/// Each message of the inbox after its length.
fn warmups(boot: &Boot) -> anyhow::Result<Vec<u8>> {
    let mut messages = Vec::new();
    for event in &boot.warmup {
        let message = requests::encode_records(event, 1)
            .map_err(|failure| anyhow!("the warm-up {}: {failure}", event.request.uri()))?;
        messages.extend_from_slice(&u32::try_from(message.len())?.to_ne_bytes());
        messages.extend_from_slice(&message);
    }
    Ok(messages)
}

/// A message from the master process.
#[derive(Debug)]
pub enum MasterMessage {
    Ready(Report),
    Worker {
        index: usize,
        pid: u32,
        outbox: OwnedFd,
        log: OwnedFd,
        pidfd: Option<OwnedFd>,
    },
    /// A worker gives access to its memory. Comes before or after its `Worker`.
    Memory {
        pid: u32,
        /// The address of PHP's interrupt flag.
        flag: u64,
        memory: OwnedFd,
    },
    Exited {
        index: usize,
        pid: u32,
        wait_status: i32,
        /// What its scoreboard line said last, unchecked: state, slot and ticket tag.
        state: u32,
        slot: u32,
        tag: u64,
    },
    /// It ends all workers that it has announced, so that others take their places.
    Restarting,
    /// It has checked what the boot depends on: the number and the name of a change.
    Checked(Option<(u64, String)>),
    /// OPcache takes no new files until a reload.
    OpcacheBlocked(OpcacheBlocked),
    /// It has exited.
    End,
}

/// Why OPcache takes no new files (`sapi/php/opcache.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpcacheBlocked {
    Full,
    /// It needs a restart, which it cannot do while booted processes hold pointers into it.
    Restart,
}

/// Waits for the master process's next message.
pub async fn listen(control: &AsyncSeqpacket) -> io::Result<MasterMessage> {
    let mut buffer = [0; 16 * 1024];
    let received = control.receive(&mut buffer).await?;
    if received.len == 0 {
        return Ok(MasterMessage::End);
    }
    let text = String::from_utf8_lossy(&buffer[..received.len]);
    parse(&text, received.fds).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("invalid message `{}` from the master process", text.trim()),
        )
    })
}

fn parse(text: &str, fds: Vec<OwnedFd>) -> Option<MasterMessage> {
    if let Some(lines) = text.strip_prefix("ready\n") {
        return Some(MasterMessage::Ready(Report::read(lines)));
    }
    if let Some(change) = text.strip_prefix("changed ") {
        let (number, what) = change.split_once(' ')?;
        let number = u64::from_str_radix(number, 16).ok()?;
        return Some(MasterMessage::Checked(Some((number, what.into()))));
    }
    let mut words = text.split_whitespace();
    match words.next()? {
        "worker" => {
            let index = words.next()?.parse().ok()?;
            let pid = words.next()?.parse().ok()?;
            let mut fds = fds.into_iter();
            Some(MasterMessage::Worker {
                index,
                pid,
                outbox: fds.next()?,
                log: fds.next()?,
                pidfd: fds.next(),
            })
        }
        "memory" => Some(MasterMessage::Memory {
            pid: words.next()?.parse().ok()?,
            flag: words.next()?.parse().ok()?,
            memory: fds.into_iter().next()?,
        }),
        "exited" => Some(MasterMessage::Exited {
            index: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
            wait_status: words.next()?.parse().ok()?,
            state: words.next()?.parse().ok()?,
            slot: words.next()?.parse().ok()?,
            tag: words.next()?.parse().ok()?,
        }),
        "unchanged" => Some(MasterMessage::Checked(None)),
        "restarting" => Some(MasterMessage::Restarting),
        "opcache" => Some(MasterMessage::OpcacheBlocked(match words.next()? {
            "full" => OpcacheBlocked::Full,
            "restart" => OpcacheBlocked::Restart,
            _ => return None,
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
