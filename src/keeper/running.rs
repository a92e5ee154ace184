//! The keeper's side of the socket to the running front end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use surus_sys::seqpacket::{MAX_DESCRIPTORS, Seqpacket};

use super::message::KeeperReply;

/// How many replies may be queued for the front end. At this limit the keeper stops reading from
/// it.
const MAX_WAITING: usize = 256;

/// The running front end.
pub(super) struct Running {
    pub pid: u32,
    pub socket: Seqpacket,
    /// Nothing more is read from its socket.
    pub is_closed: bool,
    pub since: Instant,
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

impl Running {
    pub fn new(pid: u32, socket: Seqpacket) -> Running {
        Running {
            pid,
            socket,
            is_closed: false,
            since: Instant::now(),
            waiting: VecDeque::new(),
        }
    }

    /// Whether the keeper reads from the front end.
    pub fn is_read(&self) -> bool {
        !self.is_closed && self.waiting.len() < MAX_WAITING
    }

    /// Whether replies are queued.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Queues a reply, or the error.
    pub fn answer(&mut self, id: u32, done: anyhow::Result<(KeeperReply, Vec<OwnedFd>)>) {
        let (reply, mut fds) = done.unwrap_or_else(|error| {
            let why = format!("{error:#}");
            (KeeperReply::Failed { id, why }, Vec::new())
        });
        // More descriptors than one message can carry are sent in several messages.
        if let KeeperReply::Done { number, .. } = reply {
            while fds.len() > MAX_DESCRIPTORS {
                let rest = fds.split_off(MAX_DESCRIPTORS);
                let text = "more".into();
                self.send(&KeeperReply::Done { id, number, text }, fds);
                fds = rest;
            }
        }
        self.send(&reply, fds);
    }

    pub fn send(&mut self, reply: &KeeperReply, fds: Vec<OwnedFd>) {
        self.waiting.push_back((reply.encode(), fds));
        self.flush();
    }

    /// Sends queued replies until the socket is full.
    pub fn flush(&mut self) {
        while let Some((message, fds)) = self.waiting.front() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match self.socket.send_with(message, &fds) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The front end has exited, or the reply cannot be sent at all.
                Ok(()) | Err(_) => drop(self.waiting.pop_front()),
            }
        }
    }
}
