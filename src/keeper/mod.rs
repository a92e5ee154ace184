//! The process that keeps root's rights and meets no network: it starts the front and does for it
//! what the front may not.
//!
//! The front is forked from it and gives up root before it reads the first byte of a request.
//! Everything that the keeper reads from the front is taken for hostile: `message.rs` has the
//! closed set of messages, `services.rs` decides what a front may ask for, and [`Duties`] do it
//! from the configuration that the keeper has read itself.

pub mod client;
pub mod confine;
pub mod init;
pub mod message;
pub mod processes;
pub mod run;
mod running;
mod services;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

pub use client::Client;
pub use confine::{Confinement, confine, identity, reach};
pub use run::{Front, Keeper, Outcome};

use crate::launcher::Role;

/// The directories that a front serves from, opened.
#[derive(Debug)]
pub struct Place {
    /// What the keeper knows it by.
    pub number: u32,
    /// What the front has to know of them.
    pub text: Vec<u8>,
    /// The socket to the process that opens files below them, and the directories.
    pub fds: Vec<OwnedFd>,
}

/// The same, as [`Duties::place`] opens them.
pub struct Directories<T> {
    pub text: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// What processes that open files below them are started with.
    pub trees: T,
}

/// What the keeper does for the front, from the configuration. Pools are those of the
/// configuration, by their place.
pub trait Duties {
    /// What an installed PHP is started with. Dropping it removes its directory.
    type Home;

    /// Directories that files are opened below.
    type Trees;

    /// The time that a front has to end in when it is asked to.
    fn grace(&self) -> Duration;

    /// Opens the directories that are served.
    fn place(&mut self) -> anyhow::Result<Directories<Self::Trees>>;

    /// Starts a process that opens files below such directories; returns its number and the front's
    /// end of its socket.
    fn opener(&mut self, trees: &Self::Trees) -> anyhow::Result<(u32, OwnedFd)>;

    /// How many pools there are.
    fn pools(&self) -> u16;

    /// Processes of a pool's installed PHP that may run at once.
    fn most(&self, pool: u16) -> usize;

    /// Starts the master process of a pool; returns its number.
    fn master(&mut self, pool: u16, fds: Vec<OwnedFd>) -> anyhow::Result<u32>;

    /// Makes what the installed PHP of a pool is started with.
    fn home(&mut self, pool: u16) -> anyhow::Result<(PathBuf, Self::Home)>;

    /// Starts it; returns its number.
    fn php(
        &mut self,
        pool: u16,
        home: &mut Self::Home,
        role: Role,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<u32>;

    /// The process of [`Role::Probe`] has ended well.
    fn probed(&mut self, home: &mut Self::Home) -> anyhow::Result<()>;

    /// Connects to the php-fpm that a pool has configured.
    fn connect(&mut self, pool: u16) -> anyhow::Result<OwnedFd>;
}
