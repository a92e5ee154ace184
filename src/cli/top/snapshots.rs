//! Reads the snapshots of a running surus: server-sent events of its admin listener.

use anyhow::{Context, bail, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::cli::options::Project;
use crate::cli::running;
use crate::observe::snapshot::Snapshot;

/// A larger event is not of Surus.
const MAX_EVENT: usize = 16 << 20;

pub struct Snapshots {
    body: Incoming,
    read: Vec<u8>,
}

impl Snapshots {
    pub async fn open(project: &Project) -> anyhow::Result<Snapshots> {
        let response = running::open(project, "/-/events").await?;
        let status = response.status();
        let body = response.into_body();
        if !status.is_success() {
            let why = body.collect().await?.to_bytes();
            bail!("{}", String::from_utf8_lossy(&why).trim_end());
        }
        Ok(Snapshots {
            body,
            read: Vec::new(),
        })
    }

    /// Waits for the next one. May be cancelled.
    pub async fn next(&mut self) -> anyhow::Result<Snapshot> {
        loop {
            if let Some(event) = take_event(&mut self.read) {
                let json = event.strip_prefix("data: ").unwrap_or(&event);
                return serde_json::from_str(json)
                    .context("surus has another version than this command; restart it");
            }
            let frame = self.body.frame().await;
            let frame = frame.context("the server has stopped")?;
            if let Ok(data) = frame
                .context("the connection to the server was lost")?
                .into_data()
            {
                self.read.extend_from_slice(&data);
            }
            ensure!(
                self.read.len() <= MAX_EVENT,
                "the server's response is too long"
            );
        }
    }
}

/// Takes the first complete event.
fn take_event(read: &mut Vec<u8>) -> Option<String> {
    let end = read.windows(2).position(|two| two == b"\n\n")?;
    let event = String::from_utf8_lossy(&read[..end]).into_owned();
    read.drain(..end + 2);
    Some(event)
}

#[cfg(test)]
mod tests {
    use super::take_event;

    #[test]
    fn events_are_taken_one_by_one_when_they_are_complete() {
        let mut read = b"data: a\n\ndata: b\n".to_vec();
        assert_eq!(take_event(&mut read).as_deref(), Some("data: a"));
        assert_eq!(take_event(&mut read), None);
        read.push(b'\n');
        assert_eq!(take_event(&mut read).as_deref(), Some("data: b"));
        assert!(read.is_empty());
    }
}
