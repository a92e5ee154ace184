//! Reports on stderr what has been measured, and how much time is left.

use std::time::{Duration, Instant};

use crate::results::Results;

/// The progress of a run.
pub struct RunProgress {
    round: usize,
    wanted: usize,
    turns: usize,
    /// Turns of this process, which says how long one takes.
    ended: usize,
    turn: usize,
    /// The round of which a turn is repeated.
    repeated: Option<usize>,
    began: Instant,
}

impl RunProgress {
    pub fn new(results: &Results, turns: usize) -> RunProgress {
        let (round, wanted) = (results.rounds.len(), results.wanted);
        RunProgress {
            round,
            wanted,
            turns,
            ended: 0,
            turn: 0,
            repeated: None,
            began: Instant::now(),
        }
    }

    pub fn print(&self, contestant: &str, line: &str) {
        let (round, turn) = (self.round + 1, self.turn + 1);
        let left = self.left().map_or(String::new(), |left| {
            format!(
                "  [{}:{:02} left]",
                left.as_secs() / 60,
                left.as_secs() % 60
            )
        });
        let (wanted, turns) = (self.wanted, self.turns);
        match self.repeated {
            Some(round) => eprintln!("  round {} again  {contestant}  {line}", round + 1),
            None => {
                eprintln!("  round {round}/{wanted}  {turn}/{turns} {contestant}  {line}{left}")
            }
        }
    }

    fn left(&self) -> Option<Duration> {
        let all = self.wanted.saturating_sub(self.round) * self.turns;
        let each = self
            .began
            .elapsed()
            .checked_div(u32::try_from(self.ended).ok()?)?;
        Some(each * u32::try_from(all.saturating_sub(self.turn)).ok()?)
    }

    /// What follows belongs to a turn of an earlier round, until [`RunProgress::repeated`].
    pub fn repeat(&mut self, round: usize) {
        self.repeated = Some(round);
    }

    pub fn repeated(&mut self) {
        self.repeated = None;
    }

    pub fn turn_ended(&mut self) {
        self.turn += 1;
        self.ended += 1;
    }

    pub fn round_ended(&mut self) {
        self.round += 1;
        self.turn = 0;
    }
}
