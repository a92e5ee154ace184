//! The bodies of messages that are longer than `work.max_payload`, in temporary files.
//!
//! In lapin, and in the code that uses it, a token stands in such a body's place. The connection
//! that receives the message puts it there, and a connection that publishes it puts the body back.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::spool::TempFile;

/// What no server keeps. RabbitMQ limits messages to 512 MiB, older ones to 2 GiB.
const MAX_BODY: u64 = 2 << 30;

/// The length of all tokens, which differ in their last digits.
pub const TOKEN: usize = PREFIX.len() + 48;
const PREFIX: &str = "surus-body-";

/// A body in a file.
#[derive(Debug)]
pub struct Body {
    pub len: u64,
    /// Or why it is not there.
    file: Result<TempFile, String>,
    /// How many bytes have been read to be sent.
    sent: AtomicU64,
}

impl Body {
    /// Grows while the body is being sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Checks that the body can be sent.
    pub fn is_kept(&self) -> Result<(), &str> {
        self.file.as_ref().map(drop).map_err(String::as_str)
    }

    /// Fills `buffer` from the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
        let file = self.file.as_ref().map_err(String::clone)?;
        let read = file.read_exact_at(buffer, offset);
        self.sent.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        read.map_err(|error| error.to_string())
    }
}

/// A body that is being received.
#[derive(Debug)]
pub struct Arriving {
    len: u64,
    file: Result<TempFile, String>,
}

impl Arriving {
    pub fn new(len: u64) -> Arriving {
        let file = match len > MAX_BODY {
            true => Err(format!(
                "a body of {len} bytes; at most {MAX_BODY} are kept"
            )),
            false => TempFile::create(None).map_err(lost),
        };
        Arriving { len, file }
    }

    /// Appends to the file. If that fails, the rest of the body is lost, too.
    pub fn push(&mut self, piece: &[u8]) {
        let Ok(file) = &self.file else {
            return;
        };
        let written = file.reserve(piece.len() as u64);
        let written = written.and_then(|()| (&**file).write_all(piece));
        if let Err(error) = written {
            self.file = Err(lost(error));
        }
    }
}

fn lost(error: io::Error) -> String {
    format!("the body is longer than work.max_payload and fits in no temporary file: {error}")
}

#[derive(Debug)]
enum Slot {
    /// It has been received on this connection, and nothing has asked for it.
    Received(u64, Arc<Body>),
    Claimed(Weak<Body>),
}

/// All bodies in files of a server's connections, by token.
#[derive(Debug)]
pub struct Bodies {
    /// Secret, so that no message can have a token as its body.
    nonce: [u64; 2],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: u64,
    bodies: u64,
    slots: HashMap<Vec<u8>, Slot>,
}

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies {
            nonce: [0, 1].map(|part: u8| RandomState::new().hash_one(part)),
            state: Mutex::default(),
        }
    }
}

impl Bodies {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a new connection.
    pub fn connect(&self) -> u64 {
        let mut state = self.state();
        state.connections += 1;
        state.connections
    }

    /// Forgets the bodies that a connection has received and that nothing has claimed.
    pub fn disconnect(&self, connection: u64) {
        let mut state = self.state();
        state
            .slots
            .retain(|_, slot| !matches!(slot, Slot::Received(by, _) if *by == connection));
    }

    /// Keeps a body. Returns its token.
    pub fn keep(&self, connection: u64, arrived: Arriving) -> Vec<u8> {
        let body = Body {
            len: arrived.len,
            file: arrived.file,
            sent: AtomicU64::new(0),
        };
        let mut state = self.state();
        state.bodies += 1;
        let token = format!("{}{:016x}", self.secret(), state.bodies).into_bytes();
        let received = Slot::Received(connection, Arc::new(body));
        state.slots.insert(token.clone(), received);
        token
    }

    /// What all tokens begin with.
    fn secret(&self) -> String {
        format!("{PREFIX}{:016x}{:016x}", self.nonce[0], self.nonce[1])
    }

    /// Whether this stands in the place of a body, even if that body has been dropped.
    pub fn is_token(&self, data: &[u8]) -> bool {
        data.len() == TOKEN && data.starts_with(self.secret().as_bytes())
    }

    /// The body that a token stands for, which is kept as long as the caller has it.
    pub fn claim(&self, data: &[u8]) -> Option<Arc<Body>> {
        if !self.is_token(data) {
            return None;
        }
        let mut state = self.state();
        state.slots.retain(|_, slot| match slot {
            Slot::Received(..) => true,
            Slot::Claimed(body) => body.strong_count() > 0,
        });
        let slot = state.slots.get_mut(data)?;
        match slot {
            Slot::Claimed(body) => body.upgrade(),
            Slot::Received(_, body) => {
                let body = body.clone();
                *slot = Slot::Claimed(Arc::downgrade(&body));
                Some(body)
            }
        }
    }
}
