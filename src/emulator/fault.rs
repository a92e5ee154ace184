//! Faults that are injected on purpose: which ones, and into which events?

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// After the event everything stands still until the next one comes.
    Freeze,
    /// The time is over just as the runtime answers.
    TimeOut,
    /// The answer is refused with 410; the runtime is to go on.
    Gone,
    /// The answer is refused with 413, however small.
    TooLarge,
    /// The answer is refused with 500; the runtime is to end.
    Internal,
    /// The event arrives in pieces with pauses between them.
    SlowNext,
    /// The event comes a second time, with the same request id.
    Duplicate,
    /// A process that the runtime has started is killed while the event runs.
    KillWorker,
    /// The largest process is killed while the event runs, as the kernel does when memory is short.
    OutOfMemory,
    /// The file system cannot be written to, but for `/tmp`. Not of an event: it is so from the start.
    ReadOnly,
}

/// What a fault does to the call that answers an event.
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
            format!("`{text}` is no fault; there are {}", names.join(", "))
        })
    }
}

/// A fault and how often: `410`, or `410@3` for every third event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injection {
    pub fault: Fault,
    /// 1 is every event.
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
                        "`{text}`: after @ is which event it comes with, such as 3 for every third"
                    ));
                }
                (name, number)
            }
            None => (text, 1),
        };
        let fault: Fault = name.parse()?;
        if fault == Fault::ReadOnly && text.contains('@') {
            return Err(format!(
                "`{text}`: the file system is read-only all the time or never; write `read-only`"
            ));
        }
        Ok(Injection { fault, every })
    }
}

/// All that are injected; counts the events.
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

    /// Is this one injected at all?
    pub fn has(&self, fault: Fault) -> bool {
        self.injections.iter().any(|i| i.fault == fault)
    }

    /// Those of the next event.
    pub fn draw(&self) -> Drawn {
        if self.injections.is_empty() {
            return Drawn(Vec::new());
        }
        let number = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        let due = self.injections.iter();
        let due = due.filter(|injection| number.is_multiple_of(injection.every));
        Drawn(due.map(|injection| injection.fault).collect())
    }
}

/// The faults of one event.
#[derive(Debug, Clone, Default)]
pub struct Drawn(Vec<Fault>);

impl Drawn {
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
    fn faults_come_with_the_events_that_they_are_asked_for() {
        let faults = Faults::new(vec!["410@3".parse().unwrap(), "freeze".parse().unwrap()]);
        let drawn: Vec<bool> = (0..6).map(|_| faults.draw().has(Fault::Gone)).collect();
        assert_eq!(drawn, [false, false, true, false, false, true]);
        assert!(faults.draw().has(Fault::Freeze));
        assert_eq!(faults.draw().on_answer(), None);
        assert_eq!(faults.draw().on_answer(), Some(OnAnswer::Gone));
    }

    #[test]
    fn what_is_no_fault_is_answered_with_those_that_are() {
        let error = "frieze".parse::<Injection>().unwrap_err();
        assert!(error.contains("`frieze`") && error.contains("freeze, timeout, 410"));
        assert!("410@0".parse::<Injection>().unwrap_err().contains("third"));
        assert!("410@x".parse::<Injection>().is_err());
        assert!("read-only@2".parse::<Injection>().is_err());
    }
}
