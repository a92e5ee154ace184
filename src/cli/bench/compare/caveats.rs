//! The caveats of `surus bench compare`: counts of what makes numbers worth less, and their notes.

use std::collections::BTreeMap;

use surus_measure::Usage;

use super::{NAMES, cpu_per_request};
use crate::cli::bench::measuring::Result;
use crate::cli::bench::notes::{never_sent, redirected};

/// What lessens the worth of a URL's numbers.
#[derive(Debug, Default)]
pub struct Caveats {
    /// Rounds in which the load generator was the limit.
    pub generator_limited: u32,
    /// Rounds in which the rate was not kept.
    rate_missed: u32,
    /// Rounds in which the server's processes were not found.
    server_missing: u32,
    /// Rounds in which one of them ended.
    server_ended: u32,
    /// The processes of the last round.
    pub server: Option<String>,
    /// Rounds in which CPU time per request is not known.
    cpu_unknown: u32,
    /// In all rounds.
    due: u64,
    unsent: u64,
    /// Responses of all rounds.
    pub statuses: BTreeMap<u16, u64>,
}

impl Caveats {
    /// Adds those of a round.
    pub fn add(&mut self, result: &Result) {
        let outcome = &result.outcome;
        self.server_missing += u32::from(result.usage.is_none());
        let has_ended = |usage: &Usage| !usage.ended.is_empty();
        self.server_ended += u32::from(result.usage.as_ref().is_some_and(has_ended));
        self.server = result.usage.as_ref().map(Usage::names);
        self.cpu_unknown += u32::from(cpu_per_request(result).is_none());
        self.generator_limited += u32::from(outcome.is_generator_limited());
        self.rate_missed += u32::from(!outcome.kept_rate());
        if let Some(offered) = outcome.offered {
            self.due += offered.due;
            self.unsent += offered.unsent;
        }
        for (status, count) in &outcome.totals.statuses {
            *self.statuses.entry(*status).or_default() += *count;
        }
    }
}

/// The notes on both URLs.
pub fn notes(caveats: &[Caveats; 2], rounds: u32) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, caveats) in NAMES.into_iter().zip(caveats) {
        if caveats.generator_limited > 0 {
            notes.push(format!(
                "{name}: the load generator was the limit in {} of {rounds} rounds; the server can \
                 do more",
                caveats.generator_limited
            ));
        }
        if caveats.rate_missed > 0 {
            notes.push(format!(
                "{name}: the rate could not be kept in {} of {rounds} rounds",
                caveats.rate_missed
            ));
        }
        if caveats.server_missing > 0 {
            notes.push(format!(
                "{name}: CPU per request is not known, because the server's processes were not \
                 found: they are on another machine, in another container or another user's"
            ));
        } else if caveats.server_ended > 0 {
            notes.push(format!(
                "{name}: CPU per request is not known, because a process of the server ended in \
                 {} of {rounds} rounds",
                caveats.server_ended
            ));
        } else if caveats.cpu_unknown > 0 {
            notes.push(format!(
                "{name}: CPU per request is not known in {} of {rounds} rounds, because the server \
                 used too little CPU time to divide; measure longer (--duration)",
                caveats.cpu_unknown
            ));
        }
        if caveats.unsent > 0 {
            let note = never_sent(caveats.unsent, caveats.due);
            notes.push(format!("{name}: {note}"));
        }
        if let Some(note) = redirected(&caveats.statuses) {
            notes.push(format!("{name}: {note}"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_why_cpu_per_request_is_not_known() {
        let caveats = |server_missing, cpu_unknown| Caveats {
            server_missing,
            cpu_unknown,
            ..Caveats::default()
        };
        let notes = notes(&[caveats(6, 6), caveats(0, 2)], 6);
        let not_found = "A: CPU per request is not known, because the server's processes were not";
        assert!(notes[0].starts_with(not_found), "{notes:?}");
        let too_little =
            "B: CPU per request is not known in 2 of 6 rounds, because the server used";
        assert!(notes[1].starts_with(too_little), "{notes:?}");
    }

    #[test]
    fn notes_say_in_how_many_rounds_the_generator_was_the_limit() {
        let limited = Caveats {
            generator_limited: 2,
            ..Caveats::default()
        };
        let notes = notes(&[Caveats::default(), limited], 6);
        assert_eq!(
            notes,
            ["B: the load generator was the limit in 2 of 6 rounds; the server can do more"]
        );
    }

    #[test]
    fn notes_say_which_url_redirects() {
        let of = |status| Caveats {
            statuses: BTreeMap::from([(status, 9)]),
            ..Caveats::default()
        };
        let expected = ["B: all 9 responses were 301; redirects are not followed"];
        assert_eq!(notes(&[of(200), of(301)], 6), expected);
    }
}
