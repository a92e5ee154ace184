//! `cgi`: php-cgi, started for each event (RFC 3875).

use super::exchange::Exchange;
use super::home::Home;
use super::launch::{Extra, Launch};
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
            let mut env = Vec::new();
            for (name, value) in variables::of(event)? {
                env.extend_from_slice(&[&name[..], b"=", &value, b"\0"].concat());
            }
            let extra = Extra {
                env: &env,
                ..Extra::default()
            };
            let seat = self.seats.take(event).ok_or_else(no_seat)?;
            let body = event.request.body();
            let started = OneEvent::start(&self.launch, extra, body, event.id, seat, None).await?;
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
