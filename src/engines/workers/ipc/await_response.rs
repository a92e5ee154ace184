//! Waits for the response to an event, busy-polling if responses usually arrive soon. This serves
//! 2.7 times as many requests per second of a hello world on one connection (2 CPUs, KVM), with
//! less CPU time.

use std::time::Instant;

use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::doorbell::RingPoller;
use crate::busy_poll::{PollBudget, PollLoop};

/// Waits for the response to an event sent at `began`. Returns None if it will never arrive. Calls
/// `on_poll_timeout` if polling ends without a response, before the long wait.
pub async fn wait<T>(
    budget: &PollBudget,
    poller: &RingPoller,
    began: Instant,
    mut answer: Receiver<T>,
    on_poll_timeout: impl FnOnce(),
) -> Option<T> {
    if budget.should_poll() {
        let seen = poll(budget, poller, &mut answer).await;
        // Recorded now, because the caller may give up later.
        budget.record_polled(began.elapsed());
        match seen {
            Err(TryRecvError::Empty) => on_poll_timeout(),
            seen => return seen.ok(),
        }
        return answer.await.ok();
    }
    let answer = answer.await;
    budget.record_parked(began.elapsed());
    answer.ok()
}

/// Other connections of this thread wait meanwhile, as for any computing task. If they have events,
/// too, an awake worker serves these one after another, which takes no longer than waking other
/// workers.
async fn poll<T>(
    budget: &PollBudget,
    poller: &RingPoller,
    answer: &mut Receiver<T>,
) -> Result<T, TryRecvError> {
    let _suppressed = poller.suppress_notifications();
    let mut poll_loop = PollLoop::begin(budget);
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

    fn budget_that_polls() -> PollBudget {
        let budget = PollBudget::new(Duration::from_micros(100));
        for _ in 0..100 {
            budget.record_polled(Duration::ZERO);
        }
        budget
    }

    #[tokio::test]
    async fn answer_arrives_after_any_delay() {
        let poller = RingPoller::new(1).unwrap();
        let budget = budget_that_polls();
        for delay in [0, 50, 1_000, 20_000] {
            let (sends, answer) = oneshot::channel();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(delay)).await;
                sends.send(delay).unwrap();
            });
            let waited = wait(&budget, &poller, Instant::now(), answer, || ());
            assert_eq!(waited.await, Some(delay));
        }
        let (sends, answer) = oneshot::channel::<()>();
        drop(sends);
        assert!(
            wait(&budget, &poller, Instant::now(), answer, || ())
                .await
                .is_none()
        );
    }

    #[tokio::test]
    async fn poll_times_out_before_the_long_wait() {
        let (poller, budget) = (RingPoller::new(1).unwrap(), budget_that_polls());
        let (sends, answer) = oneshot::channel();
        let on_poll_timeout = || sends.send("slept for").unwrap();
        let waited = wait(&budget, &poller, Instant::now(), answer, on_poll_timeout);
        let waited = tokio::time::timeout(Duration::from_secs(10), waited);
        assert_eq!(waited.await.unwrap(), Some("slept for"));
    }
}
