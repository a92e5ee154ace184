//! Order of records: of a group, only the first unfinished record may run.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// Records that have not begun, known by number. The lowest number begins first.
#[derive(Debug)]
pub struct RecordOrder<G> {
    groups: HashMap<G, RecordGroup>,
    /// The next record of each group, if it may begin.
    ready: BTreeSet<usize>,
    /// The same for groups with a suspect.
    late: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct RecordGroup {
    /// The record that may begin now. None while one is running.
    next: Option<usize>,
    behind: VecDeque<usize>,
    is_late: bool,
}

impl<G> Default for RecordOrder<G> {
    fn default() -> RecordOrder<G> {
        RecordOrder {
            groups: HashMap::new(),
            ready: BTreeSet::new(),
            late: BTreeSet::new(),
        }
    }
}

impl<G: Hash + Eq> RecordOrder<G> {
    /// Adds a record behind the others of its group. A suspect makes its whole group late.
    pub fn push(&mut self, record: usize, group: G, is_suspect: bool) {
        let known = self.groups.contains_key(&group);
        let group = self.groups.entry(group).or_default();
        if is_suspect
            && !std::mem::replace(&mut group.is_late, true)
            && let Some(next) = group.next.filter(|next| self.ready.remove(next))
        {
            self.late.insert(next);
        }
        match known {
            true => group.behind.push_back(record),
            false => {
                group.next = Some(record);
                let set = if group.is_late {
                    &mut self.late
                } else {
                    &mut self.ready
                };
                set.insert(record);
            }
        }
    }

    /// The first record from `start` on that may begin, else the first of all.
    pub fn ready(&self, start: usize) -> Option<usize> {
        first(&self.ready, start)
    }

    /// All records that may begin, in order, without those of groups with a suspect.
    pub fn all_ready(&self) -> impl Iterator<Item = usize> {
        self.ready.iter().copied()
    }

    /// How many these are.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The same as [`ready`](Self::ready) for the groups with a suspect.
    pub fn late(&self, start: usize) -> Option<usize> {
        first(&self.late, start)
    }

    /// Notes that a record of this group begins.
    pub fn begin(&mut self, record: usize, group: &G) {
        self.ready.remove(&record);
        self.late.remove(&record);
        if let Some(group) = self.groups.get_mut(group) {
            group.next = None;
        }
    }

    /// Lets a record that has begun begin once more, before the others of its group.
    pub fn again(&mut self, record: usize, group: &G) {
        if let Some(group) = self.groups.get_mut(group) {
            group.next = Some(record);
            self.ready.insert(record);
        }
    }

    /// Removes all records that have not begun, and returns them.
    pub fn clear(&mut self) -> Vec<usize> {
        let mut removed: Vec<usize> = self.ready.iter().chain(&self.late).copied().collect();
        self.ready.clear();
        self.late.clear();
        self.groups.retain(|_, group| {
            removed.extend(group.behind.drain(..));
            group.next.take().is_none()
        });
        removed
    }

    /// Notes that the running record of this group has ended; the next of the group may begin if it
    /// is before `end`.
    pub fn ended(&mut self, group: G, end: usize) {
        let Some(found) = self.groups.get_mut(&group) else {
            return;
        };
        match found.behind.pop_front() {
            None => drop(self.groups.remove(&group)),
            Some(next) if next < end => {
                found.next = Some(next);
                let set = if found.is_late {
                    &mut self.late
                } else {
                    &mut self.ready
                };
                set.insert(next);
            }
            Some(_) => found.behind.clear(),
        }
    }

    /// Removes all records of a group that have not begun, and returns them. Only while one of the
    /// group is running.
    pub fn abandon(&mut self, group: &G) -> VecDeque<usize> {
        self.groups
            .get_mut(group)
            .map(|group| std::mem::take(&mut group.behind))
            .unwrap_or_default()
    }

    /// No record from `end` on begins any more.
    pub fn cut(&mut self, end: usize) {
        self.ready.split_off(&end);
        self.late.split_off(&end);
    }
}

fn first(set: &BTreeSet<usize>, start: usize) -> Option<usize> {
    let from_start = set.range(start..).next();
    from_start.or(set.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_behind_a_running_one_of_its_group_waits() {
        let mut order = RecordOrder::default();
        for (record, group) in [(0, "a"), (1, "a"), (2, "b")] {
            order.push(record, group, false);
        }
        assert_eq!(order.ready(0), Some(0));
        order.begin(0, &"a");
        assert_eq!(order.ready(0), Some(2));
        order.begin(2, &"b");
        assert_eq!(order.ready(0), None);
        order.push(3, "b", false);
        assert_eq!(order.ready(0), None);
        order.ended("a", usize::MAX);
        assert_eq!(order.ready(0), Some(1));
        order.begin(1, &"a");
        order.ended("a", usize::MAX);
        order.ended("b", usize::MAX);
        order.begin(3, &"b");
        order.ended("b", usize::MAX);
        assert!(
            order.groups.is_empty(),
            "groups without records are forgotten"
        );
    }

    #[test]
    fn suspect_moves_its_waiting_group_to_the_end() {
        let mut order = RecordOrder::default();
        order.push(0, "a", false);
        order.push(1, "b", false);
        order.push(2, "a", true);
        assert_eq!((order.ready(0), order.late(0)), (Some(1), Some(0)));
    }
}
