//! Waits for the response to an event; busy-polls first if responses usually arrive soon.

use std::time::Instant;

use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::response_poller::ResponsePoller;
use crate::busy_poll::{PollLoop, PollPolicy};

/// Waits for the response to an event sent at `began`. Returns None if it will never arrive.
pub async fn wait<T>(
    policy: &PollPolicy,
    polls: bool,
    poller: &ResponsePoller,
    began: Instant,
    mut answer: Receiver<T>,
) -> Option<T> {
    if !polls {
        let answer = answer.await;
        policy.record_response(began.elapsed(), false);
        return answer.ok();
    }
    let seen = poll(policy, poller, &mut answer).await;
    // Recorded now, because the caller may give up later.
    policy.record_response(began.elapsed(), true);
    match seen {
        Err(TryRecvError::Empty) => answer.await.ok(),
        seen => seen.ok(),
    }
}

/// Other connections of this thread wait meanwhile, as for any computing task. If they have events,
/// too, a worker that polls serves these one after another, which takes no longer than waking other
/// workers.
async fn poll<T>(
    policy: &PollPolicy,
    poller: &ResponsePoller,
    answer: &mut Receiver<T>,
) -> Result<T, TryRecvError> {
    let _suppressed = poller.suppress_notifications();
    let mut poll_loop = PollLoop::begin(policy);
    loop {
        match answer.try_recv() {
            Err(TryRecvError::Empty) => (),
            seen => return seen,
        }
        let is_news = poller.poll();
        if poll_loop.is_over() {
            return Err(TryRecvError::Empty);
        }
        if is_news {
            // Let the frame's reader run.
            poll_loop.yield_task().await;
        } else {
            // Not through tokio, which would run its other threads.
            poll_loop.yield_cpu();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn answer_arrives_after_any_delay() {
        let poller = ResponsePoller::new(1).unwrap();
        let policy = PollPolicy::new(Duration::from_micros(100));
        for polls in [true, false] {
            for delay in [0, 50, 1_000, 20_000] {
                let (sends, answer) = oneshot::channel();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_micros(delay)).await;
                    sends.send(delay).unwrap();
                });
                let waited = wait(&policy, polls, &poller, Instant::now(), answer);
                assert_eq!(waited.await, Some(delay));
            }
            let (sends, answer) = oneshot::channel::<()>();
            drop(sends);
            let waited = wait(&policy, polls, &poller, Instant::now(), answer);
            assert!(waited.await.is_none());
        }
    }
}
