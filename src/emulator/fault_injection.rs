//! Faults to inject, and the events that they apply to.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fault that the emulator can inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Stops all processes after the event until the next event arrives.
    Freeze,
    /// The timeout passes just as the runtime responds.
    TimeOut,
    /// The response is rejected with 410; the runtime should continue.
    Gone,
    /// The response is rejected with 413, whatever its size.
    TooLarge,
    /// The response is rejected with 500; the runtime should exit.
    Internal,
    /// The event arrives in pieces with pauses between them.
    SlowNext,
    /// The event arrives a second time with the same request id.
    Duplicate,
    /// A process that the runtime has started is killed during the event.
    KillWorker,
    /// The largest process is killed during the event, as the OOM killer does.
    OutOfMemory,
    /// Only `/tmp` is writable. Applies from the start, not to single events.
    ReadOnly,
}

/// The effect of a fault on the call that answers an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAnswer {
    Gone,
    TooLarge,
    Internal,
    TimeOut,
}

const NAMES: [(&str, Fault); 10] = [
    ("freeze", Fault::Freeze),
    ("timeout", Fault::TimeOut),
    ("410", Fault::Gone),
    ("413", Fault::TooLarge),
    ("500", Fault::Internal),
    ("slow-next", Fault::SlowNext),
    ("duplicate", Fault::Duplicate),
    ("kill-worker", Fault::KillWorker),
    ("out-of-memory", Fault::OutOfMemory),
    ("read-only", Fault::ReadOnly),
];

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, fault)| *fault).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("unknown fault `{text}`; known faults: {}", names.join(", "))
        })
    }
}

/// A fault and its frequency: `410`, or `410@3` for every third event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injection {
    pub fault: Fault,
    /// 1 means every event.
    pub every: u64,
}

impl FromStr for Injection {
    type Err = String;

    fn from_str(text: &str) -> Result<Injection, String> {
        let (name, every) = match text.split_once('@') {
            Some((name, every)) => {
                let number: u64 = every.parse().unwrap_or(0);
                if number == 0 {
                    return Err(format!(
                        "`{text}`: write a number after @, such as 3 for every third event"
                    ));
                }
                (name, number)
            }
            None => (text, 1),
        };
        let fault: Fault = name.parse()?;
        if fault == Fault::ReadOnly && text.contains('@') {
            return Err(format!(
                "`{text}`: this fault applies to all events; write `read-only`"
            ));
        }
        Ok(Injection { fault, every })
    }
}

/// All injected faults; counts the events.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    injections: Vec<Injection>,
    events: Arc<AtomicU64>,
}

impl Faults {
    pub fn new(injections: Vec<Injection>) -> Faults {
        Faults {
            injections,
            events: Arc::default(),
        }
    }

    /// Whether this fault is injected at all.
    pub fn has(&self, fault: Fault) -> bool {
        self.injections.iter().any(|i| i.fault == fault)
    }

    /// The faults of the next event.
    pub fn draw(&self) -> EventFaults {
        if self.injections.is_empty() {
            return EventFaults(Vec::new());
        }
        let number = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        let due = self.injections.iter();
        let due = due.filter(|injection| number.is_multiple_of(injection.every));
        EventFaults(due.map(|injection| injection.fault).collect())
    }
}

/// The faults of one event.
#[derive(Debug, Clone, Default)]
pub struct EventFaults(Vec<Fault>);

impl EventFaults {
    pub fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }

    pub fn on_answer(&self) -> Option<OnAnswer> {
        self.0.iter().find_map(|fault| match fault {
            Fault::Gone => Some(OnAnswer::Gone),
            Fault::TooLarge => Some(OnAnswer::TooLarge),
            Fault::Internal => Some(OnAnswer::Internal),
            Fault::TimeOut => Some(OnAnswer::TimeOut),
            _ => None,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn injection_with_interval_applies_to_every_nth_event() {
        let faults = Faults::new(vec!["410@3".parse().unwrap(), "freeze".parse().unwrap()]);
        let drawn: Vec<bool> = (0..6).map(|_| faults.draw().has(Fault::Gone)).collect();
        assert_eq!(drawn, [false, false, true, false, false, true]);
        assert!(faults.draw().has(Fault::Freeze));
        assert_eq!(faults.draw().on_answer(), None);
        assert_eq!(faults.draw().on_answer(), Some(OnAnswer::Gone));
    }

    #[test]
    fn unknown_fault_is_rejected_with_the_known_names() {
        let error = "frieze".parse::<Injection>().unwrap_err();
        assert!(error.contains("`frieze`") && error.contains("freeze, timeout, 410"));
        assert!("410@0".parse::<Injection>().unwrap_err().contains("third"));
        assert!("410@x".parse::<Injection>().is_err());
        assert!("read-only@2".parse::<Injection>().is_err());
    }
}
