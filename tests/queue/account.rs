//! What has become of every message, by what the handlers have noted: was it done, how often, in which order?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

/// Group and number in it: numbers of a group are sent in their order.
pub type Name = (usize, usize);

#[derive(Debug, Clone, Default)]
pub struct Message {
    pub group: usize,
    pub number: usize,
    /// So often it throws before it succeeds.
    pub fails: usize,
    /// So often its worker dies before it has done it.
    pub dies: usize,
    /// The same when it has done it.
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
            dies,
            late,
        } = self;
        json!({"group": group, "number": number, "fails": fails, "dies": dies, "late": late})
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
}

pub fn read(notes: &str) -> Vec<Note> {
    let lines = notes.lines().filter(|line| *line != "meet");
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, group, number, pid, event] = words[..] else {
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
            }
        })
        .collect()
}

/// One time that a message was handed to the handler.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub pid: u32,
    pub event: String,
    pub is_done: bool,
    /// It has killed its own worker, be it when it was done.
    pub is_killed: bool,
}

impl Attempt {
    /// The handler has returned, as far as it says.
    pub fn is_well(&self) -> bool {
        self.is_done && !self.is_killed
    }
}

/// What the handlers did with each message, in the order of time.
pub fn attempts(notes: &[Note]) -> BTreeMap<Name, Vec<Attempt>> {
    let mut all: BTreeMap<Name, Vec<Attempt>> = BTreeMap::new();
    for note in notes {
        let of_message = all.entry(note.name).or_default();
        if note.what == What::Begins {
            of_message.push(Attempt {
                pid: note.pid,
                event: note.event.clone(),
                is_done: false,
                is_killed: false,
            });
            continue;
        }
        let same = |attempt: &&mut Attempt| attempt.pid == note.pid && attempt.event == note.event;
        let attempt = of_message.iter_mut().rev().find(same);
        let attempt = attempt.unwrap_or_else(|| panic!("{note:?} has not begun"));
        match note.what {
            What::Begins => {}
            What::Done => attempt.is_done = true,
            What::Killed => attempt.is_killed = true,
            What::Failed => {}
        }
    }
    all
}

/// Every message has been done, and the last time that it came it was: what the queue has deleted had not failed.
pub fn nothing_is_lost(
    messages: &[Message],
    dead: &BTreeSet<Name>,
    attempts: &BTreeMap<Name, Vec<Attempt>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for message in messages {
        let name = message.name();
        if dead.contains(&name) {
            continue;
        }
        match attempts.get(&name).and_then(|all| all.last()) {
            None => wrong.push(format!("{message:?} has never come")),
            Some(last) if !last.is_done => {
                wrong.push(format!(
                    "{message:?} was deleted though it failed: {last:?}"
                ));
            }
            Some(_) => {}
        }
    }
    let known: BTreeSet<Name> = messages.iter().map(Message::name).collect();
    let unknown = attempts.keys().filter(|name| !known.contains(name));
    wrong.extend(unknown.map(|name| format!("nobody has sent {name:?}")));
    wrong
}

/// What came again though it had been done, and not because its worker was killed.
pub fn done_twice(attempts: &BTreeMap<Name, Vec<Attempt>>, killed: &[u32]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, all) in attempts {
        let earlier = &all[..all.len() - 1];
        let is_well = |attempt: &&Attempt| attempt.is_well() && !killed.contains(&attempt.pid);
        wrong.extend(
            earlier
                .iter()
                .filter(is_well)
                .map(|attempt| format!("{name:?} came again after {attempt:?}")),
        );
    }
    wrong
}

/// No message of a group begins before those in front of it are done. `again` says that what is done may begin again behind
/// others, as it does where a whole batch comes again.
pub fn out_of_order(notes: &[Note], dead: &BTreeSet<Name>, again: bool) -> Vec<String> {
    #[derive(Default)]
    struct Group {
        done: BTreeSet<usize>,
        last: usize,
    }
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    let mut wrong = Vec::new();
    for note in notes {
        let (number, group) = (note.name.1, groups.entry(note.name.0).or_default());
        match note.what {
            What::Done => drop(group.done.insert(number)),
            What::Begins => {
                let is_missing =
                    |n: &usize| !group.done.contains(n) && !dead.contains(&(note.name.0, *n));
                if let Some(missing) = (0..number).find(is_missing) {
                    wrong.push(format!("{note:?} before {missing} was done"));
                }
                if number < group.last && !again {
                    wrong.push(format!("{note:?} behind {}", group.last));
                }
                group.last = group.last.max(number);
            }
            What::Failed | What::Killed => {}
        }
    }
    wrong
}

/// Messages of events in which anything failed, that did not come again: where Lambda does not hear of single messages, the whole event
/// has failed.
pub fn deleted_with_failures(attempts: &BTreeMap<Name, Vec<Attempt>>) -> Vec<String> {
    let all = || attempts.values().flatten();
    let failed: BTreeSet<&str> = all()
        .filter(|attempt| !attempt.is_well())
        .map(|attempt| attempt.event.as_str())
        .collect();
    let lasts = attempts
        .iter()
        .filter_map(|(name, all)| Some((name, all.last()?)));
    lasts
        .filter(|(_, last)| failed.contains(last.event.as_str()))
        .map(|(name, last)| format!("{name:?} was deleted with the failed event {}", last.event))
        .collect()
}
