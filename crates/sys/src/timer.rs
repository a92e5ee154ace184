//! A timer for tasks that is precise to about 50 µs. Tokio's own has a resolution of 1 ms.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;

/// A timer that fires once each time it is set.
#[derive(Debug)]
pub struct Timer(AsyncFd<Descriptor>);

#[derive(Debug)]
struct Descriptor(TimerFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Timer {
    /// A timer that is not set. To be called within a runtime.
    pub fn new() -> io::Result<Timer> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Descriptor(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?);
        // SAFETY: the descriptor stays open and the same as long as the AsyncFd: it is owned by the
        // TimerFd within, whose field is private and never replaced, and AsyncFd gives it up only
        // after deregistering it.
        let registered = unsafe { AsyncFd::register(timer) };
        Ok(Timer(registered?))
    }

    /// Makes the timer fire after this time, instead of at the time set before.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would disarm it.
        let after = TimeSpec::from_duration(after.max(Duration::from_nanos(1)));
        let timer = &self.0.get_ref().0;
        timer.set(Expiration::OneShot(after), TimerSetTimeFlags::empty())?;
        Ok(())
    }

    /// Waits until the timer fires.
    pub async fn fired(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            // Setting the timer again may have taken the event back, so the read must not block.
            let read = ready.try_io(|timer| Ok(timer.get_ref().0.wait()?));
            if let Ok(read) = read {
                return read;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn set_timer_fires_once_and_not_before_its_time() {
        let timer = Timer::new().expect("timer");
        for millis in [0, 3] {
            let began = Instant::now();
            timer.set(Duration::from_millis(millis)).expect("set");
            timer.fired().await.expect("fired");
            assert!(began.elapsed() >= Duration::from_millis(millis));
        }
        let again = tokio::time::timeout(Duration::from_millis(10), timer.fired()).await;
        assert!(again.is_err(), "fired twice");
    }
}
