//! Restricts this process: files, ports and signals (Landlock), and system calls that a server does
//! not need (seccomp).

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

mod seccomp;

pub use seccomp::seccomp;

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
    /// Whether it may make unix sockets at all ([`seccomp`]).
    pub has_unix_sockets: bool,
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
