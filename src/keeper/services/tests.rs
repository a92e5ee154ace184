//! Tests the limits of running processes.
#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::bail;

use super::*;

/// Starts processes that never exit as master processes.
#[derive(Default)]
struct Sleepers(Vec<Child>);

impl PrivilegedOperations for Sleepers {
    type PhpStarter = ();
    type Trees = ();
    type Attempt = ();

    fn shutdown_timeout(&self) -> Duration {
        Duration::ZERO
    }
    fn begin_front_end(&mut self) -> Range<u32> {
        0..1
    }
    fn site_directories(&mut self, _: u32) -> anyhow::Result<Directories<()>> {
        bail!("none")
    }
    fn opener(&mut self, _: u32, (): &()) -> anyhow::Result<(u32, OwnedFd)> {
        bail!("none")
    }
    fn site_name(&self, _: u32) -> anyhow::Result<&'static str> {
        bail!("none")
    }
    fn pool_name(&self, pool: u32) -> anyhow::Result<&'static str> {
        Ok(["even", "odd"][usize::from(pool % 2 == 1)])
    }
    fn max_processes(&self, _: &str) -> usize {
        0
    }
    fn master(&mut self, _: u32, _: Vec<OwnedFd>) -> anyhow::Result<u32> {
        self.0.push(Command::new("sleep").arg("600").spawn()?);
        Ok(self.0.last().map_or(0, Child::id))
    }
    fn runtime_dir(&mut self, _: u32) -> anyhow::Result<(PathBuf, ())> {
        bail!("none")
    }
    fn php(&mut self, _: u32, (): &mut (), _: Role, _: Vec<OwnedFd>) -> anyhow::Result<u32> {
        bail!("none")
    }
    fn keep_probe_output(&mut self, (): &mut ()) -> anyhow::Result<()> {
        bail!("none")
    }
    fn certificates(&mut self, _: u32) -> anyhow::Result<OwnedFd> {
        bail!("none")
    }
    fn configuration(&mut self) -> anyhow::Result<Option<OwnedFd>> {
        bail!("none")
    }
    fn configured(&mut self, _: u32) -> anyhow::Result<()> {
        bail!("none")
    }
    fn acme(&mut self, _: u16, _: bool, _: OwnedFd) -> anyhow::Result<(u32, ())> {
        bail!("none")
    }
    fn acquired(&mut self, (): &(), _: i32, _: bool) {}
    fn pages(&mut self, _: u32, _: bool, _: &str) -> anyhow::Result<()> {
        bail!("none")
    }
    fn connect(&mut self, _: u32) -> anyhow::Result<OwnedFd> {
        bail!("none")
    }
    fn stop_listening(&mut self) {}
    fn queues_shutdown_timeout(&self) -> Option<Duration> {
        None
    }
    fn start_queues(&mut self) -> anyhow::Result<(u32, Seqpacket)> {
        bail!("none")
    }
}

#[test]
fn master_above_the_limit_kills_the_oldest_of_its_pool_in_any_configuration() {
    let mut services = Services::new(Sleepers::default());
    services.master(1, Vec::new()).unwrap();
    // The pool has another number in each configuration.
    for pool in (0..).step_by(2).take(MAX_MASTERS + 2) {
        services.master(pool, Vec::new()).unwrap();
    }
    let children = &mut services.operations.0;
    for oldest in &mut children[1..3] {
        assert_eq!(oldest.wait().unwrap().signal(), Some(9));
    }
    children.drain(1..3);
    assert_eq!(children.len(), 1 + MAX_MASTERS);
    for child in children {
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
