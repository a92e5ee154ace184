//! The process that keeps root's rights and reads nothing from the network. It starts the front end
//! and performs privileged operations for it.
//!
//! The front end is forked from the keeper and gives up root before it reads the first byte of a
//! request. A server with `work.serve` has a second process of the keeper's, which runs the queues
//! as PHP's user (`queues.rs`). The keeper treats everything that the front end sends as hostile.
//! `message.rs` has the closed set of messages, `services.rs` decides which requests are allowed,
//! and [`PrivilegedOperations`] perform them from the configuration that the keeper has read
//! itself.

pub mod client;
pub mod confine;
pub mod init;
pub mod message;
pub mod processes;
mod queues;
pub mod run;
mod running;
mod services;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use surus_sys::seqpacket::Seqpacket;

pub use client::Client;
pub use confine::{Confinement, check_capabilities, confine, confine_attempt, identity, reach};
pub use run::{ForkedFrontEnd, Keeper, KeeperOutcome, REPEATED};

use crate::launcher::Role;

/// How long to wait for killed processes that do not exit, for example in a system call of a
/// hanging file system.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between attempts to kill them.
const KILL_INTERVAL: Duration = Duration::from_millis(100);
/// A front end, or a process of the queues, that lived this long did not fail at its start.
const SETTLED: Duration = Duration::from_secs(60);
/// The delay before the next one starts: first and longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The opened directories that a front end serves from.
#[derive(Debug)]
pub struct ServedDirectories {
    /// The keeper's number for these directories.
    pub number: u32,
    /// What the front end needs to know about them.
    pub text: Vec<u8>,
    /// The socket to their opener, then the directories.
    pub fds: Vec<OwnedFd>,
}

/// The same, as returned by [`PrivilegedOperations::site_directories`].
pub struct Directories<T> {
    pub text: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// The directories that an opener is started with.
    pub trees: T,
}

/// The privileged operations, as configured. No two configurations have the number of a site or of
/// a pool in common.
pub trait PrivilegedOperations {
    /// What an installed PHP is started with. Dropping it removes the directory.
    type PhpStarter;

    /// The directories below which an opener opens files.
    type Trees;

    /// An attempt to get a certificate.
    type Attempt;

    /// How long a front end may take to exit after it is asked to.
    fn shutdown_timeout(&self) -> Duration;

    /// A front end is about to be forked. Returns the numbers of the sites that it serves.
    fn begin_front_end(&mut self) -> Range<u32>;

    /// Opens the served directories of a site.
    fn site_directories(&mut self, site: u32) -> anyhow::Result<Directories<Self::Trees>>;

    /// Starts an opener for these directories of a site; returns its process id and the front end's
    /// end of the socket.
    fn opener(&mut self, site: u32, trees: &Self::Trees) -> anyhow::Result<(u32, OwnedFd)>;

    /// The name of a site, by which it is counted. Those of other configurations may have the same.
    fn site_name(&self, site: u32) -> anyhow::Result<&'static str>;

    /// The name of a pool, by which it is counted. Those of other configurations may have the same.
    fn pool_name(&self, pool: u32) -> anyhow::Result<&'static str>;

    /// How many processes of an installed PHP may run at once, of all pools with this name.
    fn max_processes(&self, pool: &str) -> usize;

    /// Starts the master process of a pool; returns its process id.
    fn master(&mut self, pool: u32, fds: Vec<OwnedFd>) -> anyhow::Result<u32>;

    /// Creates what the installed PHP of a pool is started with.
    fn runtime_dir(&mut self, pool: u32) -> anyhow::Result<(PathBuf, Self::PhpStarter)>;

    /// Starts an installed PHP; returns its process id.
    fn php(
        &mut self,
        pool: u32,
        starter: &mut Self::PhpStarter,
        role: Role,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<u32>;

    /// Called when the process of [`Role::Probe`] has exited successfully.
    fn keep_probe_output(&mut self, starter: &mut Self::PhpStarter) -> anyhow::Result<()>;

    /// Reads the certificates and keys of the configuration whose first site has this number into a
    /// file in memory. Nothing of them may stay in this process, because processes of PHP's user
    /// are forked from it.
    fn certificates(&mut self, first_site: u32) -> anyhow::Result<OwnedFd>;

    /// Reads the configuration again. If it has changed, plans its sites and describes them in a
    /// file in memory. An error if a running server cannot use it.
    fn configuration(&mut self) -> anyhow::Result<Option<OwnedFd>>;

    /// The front end serves the configuration whose first site has this number.
    fn configured(&mut self, first_site: u32) -> anyhow::Result<()>;

    /// Starts the process that gets the certificate of a domain, if it is due. Returns its process
    /// id. It speaks to the front end through the socket.
    fn acme(
        &mut self,
        domain: u16,
        is_asked: bool,
        socket: OwnedFd,
    ) -> anyhow::Result<(u32, Self::Attempt)>;

    /// Called when that process has ended. `is_shutdown`: a shutdown was requested before.
    fn acquired(&mut self, attempt: &Self::Attempt, wait_status: i32, is_shutdown: bool);

    /// Warms up the next boots of a pool with these pages, or with `keep` stores them for the next
    /// start. The text comes from the front end, which is untrusted.
    fn pages(&mut self, pool: u32, keep: bool, text: &str) -> anyhow::Result<()>;

    /// Connects to the php-fpm that the pool's configuration names.
    fn connect(&mut self, pool: u32) -> anyhow::Result<OwnedFd>;

    /// Closes the keeper's listening sockets when a shutdown begins: those of the front end and of
    /// the process of the queues are then the last ones.
    fn stop_listening(&mut self);

    /// How long running jobs may take to finish; None if a server has no queues.
    fn queues_shutdown_timeout(&self) -> Option<Duration>;

    /// Starts the process that runs the queues; returns its process id and the keeper's end of the
    /// socket to it.
    fn start_queues(&mut self) -> anyhow::Result<(u32, Seqpacket)>;
}
