//! Checks each message's fate by the handlers' notes and the calls to the queue: done once and in
//! order, and deleted only after that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::json;

/// Group and number; a group's numbers are sent in order.
pub type Name = (usize, usize);

#[derive(Debug, Clone, Default)]
pub struct Message {
    pub group: usize,
    pub number: usize,
    /// How often it throws before it succeeds.
    pub fails: usize,
    /// How often its worker crashes before it is done.
    pub crashes: usize,
    /// How often its worker crashes after it is done.
    pub late: usize,
}

impl Message {
    pub fn name(&self) -> Name {
        (self.group, self.number)
    }

    pub fn body(&self) -> String {
        let Message {
            group,
            number,
            fails,
            crashes,
            late,
        } = self;
        json!({"group": group, "number": number, "fails": fails, "crashes": crashes, "late": late})
            .to_string()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Begins,
    Failed,
    Killed,
    Done,
}

#[derive(Debug, Clone)]
pub struct Note {
    pub what: What,
    pub name: Name,
    pub pid: u32,
    pub event: String,
    /// The queue's receipt of this delivery.
    pub receipt: String,
}

pub fn read(notes: &str) -> Vec<Note> {
    let lines = notes.lines().filter(|line| *line != "meet");
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, group, number, pid, event, receipt] = words[..] else {
                panic!("`{line}` is not one line");
            };
            Note {
                what: match what {
                    "begins" => What::Begins,
                    "failed" => What::Failed,
                    "killed" => What::Killed,
                    "done" => What::Done,
                    _ => panic!("{line}"),
                },
                name: (group.parse().unwrap(), number.parse().unwrap()),
                pid: pid.parse().unwrap(),
                event: event.to_string(),
                receipt: receipt.to_string(),
            }
        })
        .collect()
}

/// One delivery of a message to the handler.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub name: Name,
    pub pid: u32,
    pub event: String,
    pub is_done: bool,
    /// The handler killed its own worker, before or after it was done.
    pub is_killed: bool,
    /// The last delivery of a worker that was killed from outside. Whether its result arrived is
    /// unknown.
    pub is_unknown: bool,
}

impl Attempt {
    /// The handler has returned, according to its notes.
    pub fn is_well(&self) -> bool {
        self.is_done && !self.is_killed
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attempt {
            name, pid, event, ..
        } = self;
        write!(f, "{name:?} by the process {pid} for the event {event}")
    }
}

/// Everything that the handlers have done.
pub struct Account {
    notes: Vec<Note>,
    /// By receipt.
    attempts: BTreeMap<String, Attempt>,
    /// Receipts in the order of time.
    of_message: BTreeMap<Name, Vec<String>>,
    /// Mistakes found while reading the notes.
    wrong: Vec<String>,
}

impl Account {
    pub fn new(notes: Vec<Note>, killed: &[u32]) -> Account {
        let mut attempts: BTreeMap<String, Attempt> = BTreeMap::new();
        let mut of_message: BTreeMap<Name, Vec<String>> = BTreeMap::new();
        let mut last_of_process = BTreeMap::new();
        let mut wrong = Vec::new();
        for note in &notes {
            last_of_process.insert(note.pid, note.receipt.clone());
            if note.what == What::Begins {
                of_message
                    .entry(note.name)
                    .or_default()
                    .push(note.receipt.clone());
                let attempt = Attempt {
                    name: note.name,
                    pid: note.pid,
                    event: note.event.clone(),
                    is_done: false,
                    is_killed: false,
                    is_unknown: false,
                };
                if let Some(earlier) = attempts.insert(note.receipt.clone(), attempt) {
                    wrong.push(format!("delivered once and begun twice: {earlier}"));
                }
                continue;
            }
            let attempt = attempts.get_mut(&note.receipt);
            let attempt = attempt.unwrap_or_else(|| panic!("{note:?} has not begun"));
            match note.what {
                What::Done => attempt.is_done = true,
                What::Killed => attempt.is_killed = true,
                What::Begins | What::Failed => {}
            }
        }
        for pid in killed {
            let last = last_of_process.get(pid);
            if let Some(attempt) = last.and_then(|receipt| attempts.get_mut(receipt)) {
                attempt.is_unknown = true;
            }
        }
        Account {
            notes,
            attempts,
            of_message,
            wrong,
        }
    }

    /// How often a message began.
    pub fn times(&self, name: Name) -> usize {
        self.of_message.get(&name).map_or(0, Vec::len)
    }

    /// The number of all deliveries.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Messages that were delivered again although their deletion was requested: the queue had
    /// delivered them again before, because the machine stalled.
    pub fn late(&self, deleted: &BTreeSet<String>) -> usize {
        let all = self.of_message.values();
        all.map(|all| all[..all.len() - 1].iter())
            .map(|earlier| earlier.filter(|receipt| deleted.contains(*receipt)).count())
            .sum()
    }

    /// Each message is in the dead-letter queue, or was done and then deleted.
    pub fn nothing_is_lost(
        &self,
        messages: &[Message],
        dead: &BTreeSet<Name>,
        deleted: &BTreeSet<String>,
    ) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        for message in messages {
            let name = message.name();
            let receipts = self.of_message.get(&name).map_or(&[][..], Vec::as_slice);
            let is_settled = receipts
                .iter()
                .any(|receipt| self.attempts[receipt].is_done && deleted.contains(receipt));
            if !dead.contains(&name) && !is_settled {
                let times = receipts.len();
                wrong.push(format!(
                    "{message:?} was deleted and not done (begun {times} times)"
                ));
            }
        }
        let known: BTreeSet<Name> = messages.iter().map(Message::name).collect();
        let unknown = self.of_message.keys().filter(|name| !known.contains(name));
        wrong.extend(unknown.map(|name| format!("{name:?} was never sent")));
        wrong
    }

    /// If Lambda learns about single messages: exactly the messages that are done are deleted.
    pub fn each_is_settled(&self, deleted: &BTreeSet<String>) -> Vec<String> {
        let mut wrong = self.never_begun(deleted);
        for (receipt, attempt) in &self.attempts {
            match (attempt.is_well(), deleted.contains(receipt)) {
                (true, false) if !attempt.is_unknown => {
                    wrong.push(format!("done, and not deleted: {attempt}"));
                }
                (false, true) => wrong.push(format!("deleted, though it failed: {attempt}")),
                _ => {}
            }
        }
        wrong
    }

    /// If Lambda learns about whole events only: all messages are deleted if all are done,
    /// otherwise none.
    pub fn events_are_settled(&self, deleted: &BTreeSet<String>) -> Vec<String> {
        let mut wrong = self.never_begun(deleted);
        let mut events: BTreeMap<&str, Vec<(&String, &Attempt)>> = BTreeMap::new();
        for (receipt, attempt) in &self.attempts {
            let of_event = events.entry(&attempt.event).or_default();
            of_event.push((receipt, attempt));
        }
        for (event, all) in events {
            let gone = all.iter().filter(|(receipt, _)| deleted.contains(*receipt));
            let gone = gone.count();
            let failed = all.iter().any(|(_, attempt)| !attempt.is_well());
            let is_unknown = all.iter().any(|(_, attempt)| attempt.is_unknown);
            if failed && gone > 0 {
                wrong.push(format!(
                    "{gone} of {} deleted with the failed event {event}",
                    all.len()
                ));
            }
            if !failed && gone < all.len() && (gone > 0 || !is_unknown) {
                wrong.push(format!(
                    "{gone} of {} deleted of the event {event}, all done",
                    all.len()
                ));
            }
        }
        wrong
    }

    fn never_begun(&self, deleted: &BTreeSet<String>) -> Vec<String> {
        let unknown = deleted
            .iter()
            .filter(|receipt| !self.attempts.contains_key(*receipt));
        unknown
            .map(|receipt| format!("deleted, and never begun: {receipt}"))
            .collect()
    }

    /// No message of a group begins before the earlier ones are done. A failed message begins again
    /// before later ones; with `whole`, messages done after it are delivered again, too, since the
    /// whole event does.
    pub fn out_of_order(
        &self,
        dead: &BTreeSet<Name>,
        deleted: &BTreeSet<String>,
        whole: bool,
    ) -> Vec<String> {
        #[derive(Default)]
        struct Group {
            done: BTreeSet<usize>,
            last: usize,
        }
        let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
        let mut last_receipt: BTreeMap<Name, &str> = BTreeMap::new();
        let mut wrong = Vec::new();
        for note in &self.notes {
            let (number, group) = (note.name.1, groups.entry(note.name.0).or_default());
            match note.what {
                What::Done => drop(group.done.insert(number)),
                What::Begins => {
                    let is_missing =
                        |n: &usize| !group.done.contains(n) && !dead.contains(&(note.name.0, *n));
                    if let Some(missing) = (0..number).find(is_missing) {
                        wrong.push(format!("{note:?} before {missing} was done"));
                    }
                    // A message that was done and is there again was delivered again by the queue.
                    let earlier = last_receipt.insert(note.name, &note.receipt);
                    let had_failed = earlier.is_none_or(|receipt| !deleted.contains(receipt));
                    if number < group.last && had_failed && !whole {
                        wrong.push(format!("{note:?} behind {}", group.last));
                    }
                    group.last = group.last.max(number);
                }
                What::Failed | What::Killed => {}
            }
        }
        wrong
    }
}
