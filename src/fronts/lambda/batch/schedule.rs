//! Scheduling of a batch: which record may begin next.

use std::collections::BTreeSet;

use crate::fronts::records::order::RecordOrder;

/// Which records a failed record stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// None.
    Alone,
    /// Later records of its partition.
    Partition,
    /// All that have not begun.
    All,
    /// All later records of the event, since the source restarts at the first failure. Earlier
    /// records still run.
    Checkpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Done,
}

/// The schedule of one batch. Records are known by their index in the event and begin in that
/// order. Of a partition, only the first unfinished record may run.
#[derive(Debug)]
pub struct BatchSchedule {
    rule: Rule,
    workers: usize,
    /// The record to begin with. After the last record the schedule continues with the first.
    start: usize,
    states: Vec<State>,
    partition_of: Vec<usize>,
    /// Records that wait. Partitions with a suspect run last, each of their records alone.
    order: RecordOrder<usize>,
    /// Suspects that keep their position but run alone. Only with [`Rule::Checkpoint`]: if one ran
    /// last and failed, everything done before it would be delivered again.
    suspects: BTreeSet<usize>,
    running: usize,
    is_one_alone: bool,
    /// No record from this index on begins.
    end: usize,
}

impl BatchSchedule {
    pub fn new(
        partition_of: impl Iterator<Item = usize>,
        rule: Rule,
        workers: usize,
        start: usize,
        is_suspect: impl Fn(usize) -> bool,
    ) -> BatchSchedule {
        let partition_of: Vec<usize> = partition_of.collect();
        let mut order = RecordOrder::default();
        let mut suspects = BTreeSet::new();
        for (index, &partition) in partition_of.iter().enumerate() {
            let is_suspect = is_suspect(index);
            let keeps_position = rule == Rule::Checkpoint;
            order.push(index, partition, is_suspect && !keeps_position);
            if is_suspect && keeps_position {
                suspects.insert(index);
            }
        }
        BatchSchedule {
            rule,
            workers,
            start,
            states: vec![State::Waiting; partition_of.len()],
            order,
            suspects,
            running: 0,
            is_one_alone: false,
            end: partition_of.len(),
            partition_of,
        }
    }

    /// The record that begins now. None while it must wait for running records, and at the end.
    pub fn next(&mut self) -> Option<usize> {
        if self.is_one_alone || self.running >= self.workers {
            return None;
        }
        let ready = self.order.ready(self.start);
        let (index, alone) = match (ready, self.order.late(self.start)) {
            (Some(index), _) => (index, self.suspects.contains(&index)),
            (None, Some(index)) => (index, true),
            (None, None) => return None,
        };
        if alone && self.running > 0 {
            return None;
        }
        self.order.begin(index, &self.partition_of[index]);
        self.states[index] = State::Running;
        self.running += 1;
        self.is_one_alone = alone;
        Some(index)
    }

    /// Records that a running record has ended, and whether it succeeded.
    pub fn ended(&mut self, index: usize, well: bool) {
        self.running -= 1;
        self.is_one_alone = false;
        if well {
            self.states[index] = State::Done;
        } else {
            match self.rule {
                Rule::Alone => {}
                Rule::Partition => drop(self.order.abandon(&self.partition_of[index])),
                Rule::All => self.cut(),
                Rule::Checkpoint => {
                    self.end = self.end.min(index);
                    self.order.cut(self.end);
                }
            }
        }
        self.order.ended(self.partition_of[index], self.end);
    }

    /// Stops all further records.
    pub fn cut(&mut self) {
        self.end = 0;
        self.order.cut(0);
    }

    /// The records that must be delivered again, in order.
    pub fn not_done(&self) -> Vec<usize> {
        self.in_state(|state| state != State::Done).collect()
    }

    pub fn not_begun(&self) -> usize {
        self.in_state(|state| state == State::Waiting).count()
    }

    fn in_state(&self, is: impl Fn(State) -> bool) -> impl Iterator<Item = usize> {
        let all = self.states.iter().enumerate();
        all.filter(move |(_, state)| is(**state))
            .map(|(index, _)| index)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn schedule(partitions: &[usize], rule: Rule, suspects: &[usize]) -> BatchSchedule {
        BatchSchedule::new(partitions.iter().copied(), rule, 4, 0, |index| {
            suspects.contains(&index)
        })
    }

    /// All that may begin now.
    fn begin(schedule: &mut BatchSchedule) -> Vec<usize> {
        std::iter::from_fn(|| schedule.next()).collect()
    }

    #[test]
    fn only_the_first_of_a_partition_begins() {
        let mut schedule = schedule(&[0, 0, 1, 0, 1], Rule::Partition, &[]);
        assert_eq!(begin(&mut schedule), [0, 2]);
        schedule.ended(2, true);
        assert_eq!(begin(&mut schedule), [4]);
        schedule.ended(0, false);
        schedule.ended(4, true);
        assert!(begin(&mut schedule).is_empty());
        assert_eq!(schedule.not_done(), [0, 1, 3]);
        assert_eq!(schedule.not_begun(), 2);
    }

    #[test]
    fn running_records_do_not_exceed_the_workers() {
        let mut schedule = schedule(&[0, 1, 2, 3, 4, 5], Rule::Alone, &[]);
        assert_eq!(begin(&mut schedule), [0, 1, 2, 3]);
        schedule.ended(1, false);
        assert_eq!(begin(&mut schedule), [4]);
    }

    #[test]
    fn records_before_a_checkpoint_run_and_later_ones_do_not() {
        let mut schedule = schedule(&[0, 1, 2, 3, 4, 0, 2], Rule::Checkpoint, &[]);
        assert_eq!(begin(&mut schedule), [0, 1, 2, 3]);
        schedule.ended(0, true);
        assert_eq!(begin(&mut schedule), [4]);
        schedule.ended(4, false);
        assert!(begin(&mut schedule).is_empty());
        schedule.ended(2, true);
        schedule.ended(3, true);
        schedule.ended(1, true);
        assert!(begin(&mut schedule).is_empty());
        assert_eq!(schedule.not_done(), [4, 5, 6]);
    }

    #[test]
    fn first_failure_stops_all_records_by_rule() {
        let mut schedule = schedule(&[0, 1, 0, 2, 3, 4], Rule::All, &[]);
        assert_eq!(begin(&mut schedule), [0, 1, 3, 4]);
        schedule.ended(1, false);
        schedule.ended(0, true);
        assert!(begin(&mut schedule).is_empty());
        assert_eq!(schedule.not_done(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn suspect_partition_runs_last_and_alone() {
        let mut schedule = schedule(&[0, 1, 0, 2], Rule::Partition, &[2]);
        assert_eq!(begin(&mut schedule), [1, 3]);
        schedule.ended(1, true);
        assert!(begin(&mut schedule).is_empty());
        schedule.ended(3, true);
        assert_eq!(begin(&mut schedule), [0]);
        schedule.ended(0, true);
        assert_eq!(begin(&mut schedule), [2]);
        schedule.ended(2, false);
        assert!(begin(&mut schedule).is_empty());
        assert_eq!(schedule.not_done(), [2]);
    }

    #[test]
    fn suspect_of_a_stream_keeps_its_position_and_runs_alone() {
        let mut schedule = schedule(&[0, 1, 2, 3], Rule::Checkpoint, &[1]);
        assert_eq!(begin(&mut schedule), [0]);
        schedule.ended(0, true);
        assert_eq!(begin(&mut schedule), [1]);
        schedule.ended(1, true);
        assert_eq!(begin(&mut schedule), [2, 3]);
    }
}
