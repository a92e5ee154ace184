//! Scheduled events, as EventBridge Scheduler sends them.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tokio::time::{MissedTickBehavior, interval_at};

use super::Emulator;
use crate::units::Time;

/// `1m=event.json`: an interval and the file with the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatedSchedule {
    pub every: Time,
    pub event: PathBuf,
}

impl FromStr for EmulatedSchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<EmulatedSchedule, String> {
        let Some((every, event)) = text.split_once('=') else {
            return Err(format!(
                "`{text}`: write an interval and a file with the event, as in 1m=event.json"
            ));
        };
        let every: Time = every.parse()?;
        if every.0.is_zero() || event.is_empty() {
            return Err(format!(
                "`{text}`: write a duration above 0s and a file, as in 1m=event.json"
            ));
        }
        Ok(EmulatedSchedule {
            every,
            event: event.into(),
        })
    }
}

impl EmulatedSchedule {
    /// Sends the event until dropped; reads the file again each time. An event that is due while
    /// the last one runs waits for it. If more become due, they are skipped.
    pub async fn run(self, emulator: Emulator, tell: Arc<dyn Fn(&str) + Send + Sync>) {
        let first = tokio::time::Instant::now() + self.every.0;
        let mut clock = interval_at(first, self.every.0);
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            clock.tick().await;
            match tokio::fs::read(&self.event).await {
                Ok(event) => {
                    emulator.invoke(event).await;
                }
                Err(error) => tell(&format!("cannot read {}: {error}", self.event.display())),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn schedule_is_an_interval_and_a_file() {
        let schedule: EmulatedSchedule = "5m=jobs/clean.json".parse().unwrap();
        assert_eq!(schedule.every, Time::seconds(300));
        assert_eq!(schedule.event, PathBuf::from("jobs/clean.json"));
        for wrong in ["5m", "5=a.json", "0s=a.json", "5m="] {
            assert!(wrong.parse::<EmulatedSchedule>().is_err(), "{wrong}");
        }
    }
}
