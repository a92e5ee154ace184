//! Sends entries of batch calls together: those that arrive while a call is under way are in the
//! next one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::address::QueueAddress;

/// SQS's limit for one call.
pub const MOST: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(10);

/// One kind of batch call for a queue.
pub struct Batch {
    action: &'static str,
    waiting: Mutex<Vec<Waiting>>,
    /// Held while a call is under way.
    sending: tokio::sync::Mutex<()>,
}

struct Waiting {
    entry: Value,
    reply: oneshot::Sender<Result<Settled, String>>,
}

/// SQS's answer to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// The receipt is no longer valid: the message has been received again, or deleted.
    Lost,
}

impl Batch {
    pub fn new(action: &'static str) -> Batch {
        Batch {
            action,
            waiting: Mutex::default(),
            sending: tokio::sync::Mutex::default(),
        }
    }

    /// Sends an entry, which the caller may drop meanwhile.
    pub async fn submit(&self, queue: &QueueAddress, entry: Value) -> anyhow::Result<Settled> {
        let (reply, mut answer) = oneshot::channel();
        self.waiting().push(Waiting { entry, reply });
        loop {
            tokio::select! {
                // Another call may have sent it.
                biased;
                answered = &mut answer => return match answered {
                    Ok(answered) => answered.map_err(|why| anyhow!(why)),
                    Err(_) => bail!("{} was interrupted", self.action),
                },
                sending = self.sending.lock() => {
                    self.send(queue).await;
                    drop(sending);
                }
            }
        }
    }

    async fn send(&self, queue: &QueueAddress) {
        let now: Vec<Waiting> = {
            let mut waiting = self.waiting();
            let count = waiting.len().min(MOST);
            waiting.drain(..count).collect()
        };
        if now.is_empty() {
            return;
        }
        let entries = now.iter().enumerate().map(|(at, waiting)| {
            let mut entry = waiting.entry.clone();
            entry["Id"] = at.to_string().into();
            entry
        });
        let batch = json!({ "Entries": entries.collect::<Vec<_>>() });
        let answer = queue.ask(self.action, batch, TIMEOUT).await;
        let answer = answer.map_err(|error| format!("{error:#}"));
        for (at, waiting) in now.into_iter().enumerate() {
            let settled = match &answer {
                Ok(answer) => settled(answer, &at.to_string()),
                Err(why) => Err(why.clone()),
            };
            // Its caller may have been dropped.
            let _ = waiting.reply.send(settled);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of an entry in a response.
fn settled(answer: &Value, id: &str) -> Result<Settled, String> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "PascalCase", default)]
    struct Failed {
        id: String,
        code: String,
        message: String,
    }
    let failed = answer["Failed"].as_array().into_iter().flatten();
    let mut failed = failed.filter_map(|failed| Failed::deserialize(failed).ok());
    match failed.find(|failed| failed.id == id) {
        None => Ok(Settled::Done),
        Some(failed) if is_lost(&failed.code) => Ok(Settled::Lost),
        Some(Failed { code, message, .. }) => Err(format!("SQS rejects it: {code} {message}")),
    }
}

/// Whether SQS no longer knows the receipt. It also says so after twelve hours, and by the code for
/// any invalid value; every other value that Surus sends is valid.
fn is_lost(code: &str) -> bool {
    let code = code.rsplit(['.', '#']).next().unwrap_or(code);
    [
        "InvalidParameterValue",
        "MessageNotInflight",
        "ReceiptHandleIsInvalid",
    ]
    .contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_done_lost_or_rejected() {
        let answer = json!({
            "Successful": [{"Id": "0"}],
            "Failed": [
                {"Id": "1", "Code": "ReceiptHandleIsInvalid", "SenderFault": true},
                {"Id": "2", "Code": "AWS.SimpleQueueService.MessageNotInflight"},
                {"Id": "3", "Code": "InternalError", "Message": "later", "SenderFault": false},
            ],
        });
        assert_eq!(settled(&answer, "0"), Ok(Settled::Done));
        assert_eq!(settled(&answer, "1"), Ok(Settled::Lost));
        assert_eq!(settled(&answer, "2"), Ok(Settled::Lost));
        let refused = settled(&answer, "3");
        assert_eq!(refused, Err("SQS rejects it: InternalError later".into()));
        assert_eq!(settled(&json!({}), "0"), Ok(Settled::Done));
    }
}
