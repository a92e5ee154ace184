//! `cgi`: php-cgi, started for each event (RFC 3875).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use surus_sys::process::Orphan;

use super::exchange::Exchange;
use super::home::Home;
use super::launch::Launch;
use super::process::OneEvent;
use super::seats::Seats;
use super::{Php, Spec, no_seat, variables};
use crate::engine::Pending;
use crate::event::{Event, Failure};
use crate::observe::status::WorkerStatus;

pub struct Cgi {
    launch: Launch,
    seats: Seats,
    /// Has the settings that it reads.
    _home: Home,
}

impl Cgi {
    pub fn new(spec: &Spec, home: Home) -> anyhow::Result<Cgi> {
        Ok(Cgi {
            launch: Launch::new(spec, &home)?,
            seats: Seats::new(spec.workers),
            _home: home,
        })
    }
}

impl Php for Cgi {
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>> {
        Box::pin(async move {
            // Without arguments: what begins with a `-` in a query without `=` would be taken for one of them.
            let command = self.launch.command(Orphan::Killed, Vec::new());
            let mut command = command.map_err(|error| Failure::Died(error.to_string()))?;
            for (name, value) in variables::of(event)? {
                command.env(OsStr::from_bytes(&name), OsStr::from_bytes(&value));
            }
            let seat = self.seats.take(event).ok_or_else(no_seat)?;
            let body = event.request.body();
            let started = OneEvent::start(command, body, event.id, seat, None)?;
            Ok(Box::new(started) as Box<dyn Exchange>)
        })
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.seats.status()
    }

    fn end(&self) -> Pending<'_, ()> {
        Box::pin(async {})
    }
}
