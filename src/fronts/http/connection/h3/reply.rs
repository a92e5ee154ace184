//! The informational responses of a request of HTTP/3.

use std::sync::{Arc, Mutex, PoisonError};

use http::header::HeaderMap;
use http::{Response, StatusCode};
use tokio::sync::mpsc;
use tracing::debug;

use crate::budget::{MEMORY, Reservation};
use crate::event::EarlyHints;
use crate::fronts::http::connection::multiplexed::{informational, links};

/// How many informational responses may wait for the client's window.
const WAITING: usize = 8;

/// The way to send informational responses, until the response begins.
pub struct H3Reply {
    sender: mpsc::Sender<Response<()>>,
    /// The memory of early hints, until the client has read them.
    hints: Mutex<Reservation>,
}

impl H3Reply {
    /// Returns the reply, and the receiver of the responses to send.
    pub fn new() -> (Arc<H3Reply>, mpsc::Receiver<Response<()>>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let hints = Mutex::new(Reservation::none(&MEMORY));
        (Arc::new(H3Reply { sender, hints }), receiver)
    }

    /// Sends an informational response, unless too many wait.
    pub fn inform(&self, status: StatusCode, headers: HeaderMap) -> bool {
        let sent = self.sender.try_send(informational(status, headers));
        if sent.is_err() {
            debug!(status = status.as_u16(), "informational response omitted");
        }
        sent.is_ok()
    }
}

impl EarlyHints for H3Reply {
    fn send(&self, headers: &HeaderMap) -> bool {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        let links = links(headers, &mut hints);
        drop(hints);
        links.is_some_and(|links| self.inform(StatusCode::EARLY_HINTS, links))
    }
}
