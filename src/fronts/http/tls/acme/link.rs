//! The messages of an attempt to the front end, which answers the authority's validations.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use surus_sys::seqpacket::{AsyncSeqpacket, Seqpacket};

use super::schedule::LONGEST_WAIT;

/// The largest packet.
const MAX_BYTES: usize = 16 * 1024;

/// The least time between two attempts.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The most characters of a reason, whose parts come from the authority.
const MAX_REASON: usize = 1000;

/// What the front end must answer to the authority.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChallengeAnswer {
    pub domain: String,
    /// HTTP-01: the last part of the path, and the body of the response.
    pub token: String,
    pub authorization: String,
    /// TLS-ALPN-01: the digest in the certificate.
    pub digest: Vec<u8>,
}

/// A message of the attempt.
#[derive(Debug, Serialize, Deserialize)]
pub enum AttemptMessage {
    /// The front end confirms with an empty object when it gives this answer.
    Answer(ChallengeAnswer),
    End(AttemptEnd),
}

/// What an attempt says at its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The next one is useful after this time.
    pub next: Duration,
    pub outcome: AttemptOutcome,
    /// Why there is no certificate, or no new one.
    pub reason: Option<String>,
}

impl AttemptEnd {
    pub fn new(next: Duration, outcome: AttemptOutcome, reason: Option<String>) -> AttemptEnd {
        let end = AttemptEnd {
            next,
            outcome,
            reason,
        };
        end.bounded()
    }

    /// Within bounds, whatever the attempt has sent.
    pub fn bounded(self) -> AttemptEnd {
        let reason = self.reason;
        AttemptEnd {
            next: self.next.clamp(SHORTEST_WAIT, LONGEST_WAIT),
            reason: reason.map(|text| text.chars().take(MAX_REASON).collect()),
            ..self
        }
    }
}

/// How an attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptOutcome {
    Issued,
    Failed,
    /// Nothing had to be done, or it was too early.
    NotAttempted,
}

/// One end of the socket between attempt and front end.
pub struct AttemptLink(AsyncSeqpacket);

impl AttemptLink {
    /// Must be called within a runtime.
    pub fn new(socket: OwnedFd) -> anyhow::Result<AttemptLink> {
        let socket = Seqpacket::nonblocking(socket).and_then(AsyncSeqpacket::new);
        Ok(AttemptLink(
            socket.context("cannot use the attempt's socket")?,
        ))
    }

    /// In the attempt: returns when the front end gives the answer.
    pub async fn answer(&self, answer: ChallengeAnswer) -> anyhow::Result<()> {
        self.send(&AttemptMessage::Answer(answer)).await?;
        let received = self.0.receive(&mut [0; 16]).await?;
        ensure!(
            received.len > 0,
            "the front end does not answer validations"
        );
        Ok(())
    }

    /// In the attempt.
    pub async fn end(&self, end: AttemptEnd) {
        // A front end that has left needs no message.
        let _ = self.send(&AttemptMessage::End(end)).await;
    }

    async fn send(&self, message: &AttemptMessage) -> anyhow::Result<()> {
        Ok(self.0.send_with(&serde_json::to_vec(message)?, &[]).await?)
    }

    /// In the front end: the next message. None if the attempt has exited.
    pub async fn next(&self) -> anyhow::Result<Option<AttemptMessage>> {
        let mut buffer = vec![0; MAX_BYTES];
        let received = self.0.receive(&mut buffer).await?;
        match received.len {
            0 => Ok(None),
            len => Ok(Some(serde_json::from_slice(&buffer[..len])?)),
        }
    }

    /// In the front end: confirms an answer.
    pub async fn confirm(&self) -> anyhow::Result<()> {
        Ok(self.0.send_with(b"{}", &[]).await?)
    }
}
