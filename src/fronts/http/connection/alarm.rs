//! Polls a future only when it has been woken, however often the task that holds it is polled.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakes the future, and through it the task.
pub struct Alarm {
    has_rung: AtomicBool,
    task: AtomicWaker,
}

impl Alarm {
    /// An alarm that has rung, so that the future is polled a first time.
    pub fn new() -> Arc<Alarm> {
        Arc::new(Alarm {
            has_rung: AtomicBool::new(true),
            task: AtomicWaker::new(),
        })
    }

    /// Waits for a future and polls it only when the alarm has rung.
    pub async fn wait<F: Future>(self: &Arc<Alarm>, mut future: Pin<&mut F>) -> F::Output {
        std::future::poll_fn(|cx| {
            self.task.register(cx.waker());
            if !self.has_rung.swap(false, Ordering::AcqRel) {
                return Poll::Pending;
            }
            let waker = Waker::from(self.clone());
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }

    /// Makes `wait` poll its future, for example after it was replaced.
    pub fn ring(&self) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Alarm>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Alarm>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn future_is_polled_only_when_it_has_been_woken() {
        let alarm = Alarm::new();
        let mut polls = 0;
        let mut woken: Option<Waker> = None;
        let mut future = pin!(std::future::poll_fn(|cx| {
            polls += 1;
            woken = Some(cx.waker().clone());
            match polls {
                1 => Poll::Pending,
                _ => Poll::Ready(polls),
            }
        }));
        assert_eq!(alarm.wait(future.as_mut()).now_or_never(), None);
        assert_eq!(alarm.wait(future.as_mut()).now_or_never(), None);
        alarm.clone().wake();
        assert_eq!(alarm.wait(future.as_mut()).now_or_never(), Some(2));
        assert!(woken.is_some_and(|waker| waker.will_wake(&Waker::from(alarm))));
    }
}
