//! Puts the bodies back that are in files, on the way from lapin to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{Bytes, BytesMut};

use super::bodies::{Bodies, Body, TOKEN};
use super::frame::{self, BODY, Frame, HEADER, MAX_FRAME, METHOD, MIN_FRAME, OVERHEAD, Wrong};

/// What lapin begins with: `AMQP` and a version.
const GREETING: usize = 8;

/// The beginning of connection.tune-ok, in which the client says how long frames may be.
const TUNE_OK: [u8; 4] = [0, 10, 0, 31];

/// The frames that lapin sends, on their way to the server.
#[derive(Debug)]
pub struct Outgoing {
    bodies: Arc<Bodies>,
    frame_max: Arc<AtomicU32>,
    raw: BytesMut,
    has_greeted: bool,
    /// What the server must get.
    pub ready: BytesMut,
    /// A content header whose body may be a token.
    header: Option<Frame>,
    sending: Option<Sending>,
}

#[derive(Debug)]
struct Sending {
    channel: u16,
    body: Arc<Body>,
    sent: u64,
}

impl Outgoing {
    pub fn new(bodies: Arc<Bodies>, frame_max: Arc<AtomicU32>) -> Outgoing {
        Outgoing {
            bodies,
            frame_max,
            raw: BytesMut::new(),
            has_greeted: false,
            ready: BytesMut::new(),
            header: None,
            sending: None,
        }
    }

    /// Takes bytes of lapin. Feed more only once [`advance`](Self::advance) has made nothing ready.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Makes some bytes ready, unless some are, or there are none.
    pub fn advance(&mut self) -> Result<(), Wrong> {
        while self.ready.is_empty() {
            if let Some(sending) = self.sending.take() {
                self.send(sending)?;
            } else if !self.has_greeted {
                if self.raw.len() < GREETING {
                    break;
                }
                self.ready = self.raw.split_to(GREETING);
                self.has_greeted = true;
            } else if !self.frames()? {
                break;
            }
        }
        Ok(())
    }

    /// Passes on all frames up to the next body that is in a file. Returns whether there were any.
    fn frames(&mut self) -> Result<bool, Wrong> {
        let mut were_any = false;
        while self.sending.is_none()
            && let Some(frame) = frame::next(&mut self.raw, MAX_FRAME as usize)?
        {
            were_any = true;
            self.frame(frame)?;
        }
        Ok(were_any)
    }

    fn frame(&mut self, frame: Frame) -> Result<(), Wrong> {
        match frame.kind {
            METHOD => {
                if let Some(tuned) = frame.payload.strip_prefix(&TUNE_OK) {
                    self.tuned(tuned);
                }
            }
            HEADER if body_len(&frame.payload) == Some(TOKEN as u64) => {
                self.header = Some(frame);
                return Ok(());
            }
            BODY => {
                if let Some(header) = self.header.take_if(|it| it.channel == frame.channel) {
                    return self.token(header, frame);
                }
            }
            _ => {}
        }
        frame::write(&mut self.ready, frame.kind, frame.channel, &frame.payload);
        Ok(())
    }

    fn tuned(&self, tuned: &[u8]) {
        let max = tuned.get(2..).and_then(<[u8]>::first_chunk);
        let max = match max.map(|max| u32::from_be_bytes(*max)) {
            // No limit.
            None | Some(0) => MAX_FRAME,
            Some(max) => max.clamp(MIN_FRAME, MAX_FRAME),
        };
        self.frame_max.store(max, Ordering::Relaxed);
    }

    /// Sends a body of the length of tokens, or the one that it stands for.
    fn token(&mut self, header: Frame, frame: Frame) -> Result<(), Wrong> {
        let channel = frame.channel;
        if !self.bodies.is_token(&frame.payload) {
            frame::write(&mut self.ready, HEADER, channel, &header.payload);
            frame::write(&mut self.ready, BODY, channel, &frame.payload);
            return Ok(());
        }
        let lost = || Wrong::Lost("its message has been settled".into());
        let body = self.bodies.claim(&frame.payload).ok_or_else(lost)?;
        // Checked before the header is sent: the server would wait for the body.
        body.is_kept().map_err(|why| Wrong::Lost(why.into()))?;
        let mut long = header.payload.to_vec();
        long[4..12].copy_from_slice(&body.len.to_be_bytes());
        frame::write(&mut self.ready, HEADER, channel, &long);
        self.sending = Some(Sending {
            channel,
            body,
            sent: 0,
        });
        Ok(())
    }

    fn send(&mut self, mut sending: Sending) -> Result<(), Wrong> {
        let left = sending.body.len - sending.sent;
        let max = self.frame_max.load(Ordering::Relaxed) as usize - OVERHEAD;
        let mut piece = vec![0; left.min(max as u64) as usize];
        let read = sending.body.read(&mut piece, sending.sent);
        read.map_err(Wrong::Lost)?;
        frame::write(&mut self.ready, BODY, sending.channel, &piece);
        sending.sent += piece.len() as u64;
        if sending.sent < sending.body.len {
            self.sending = Some(sending);
        }
        Ok(())
    }
}

fn body_len(header: &Bytes) -> Option<u64> {
    let len = header.get(4..)?.first_chunk()?;
    Some(u64::from_be_bytes(*len))
}
