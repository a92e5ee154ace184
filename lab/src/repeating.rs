//! Repeats turns that other processes on the machine have disturbed.

use crate::disturbance::{DisturbedTurn, others};
use crate::results::{Results, Turn};

/// Repeats each disturbed turn of the finished rounds once, so that it comes soon after the turns
/// that it is compared with. After the last round, goes on until none is disturbed, or each
/// contestant had as many extra turns as there are rounds.
pub fn repeat(
    results: &mut Results,
    mut again: impl FnMut(&Results, &DisturbedTurn) -> anyhow::Result<Turn>,
    mut keep: impl FnMut(&Results) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        let disturbed = results.disturbed_turns();
        if disturbed.is_empty() {
            return Ok(());
        }
        for one in disturbed {
            // An earlier one of this list may have been the last that is allowed.
            if results.disturbed_turns().contains(&one) {
                let turn = again(results, &one)?;
                replace(results, &one, turn);
                keep(results)?;
            }
        }
        if results.rounds.len() < results.wanted {
            return Ok(());
        }
    }
}

/// Keeps of each disturbed load the sample that others have disturbed less. The rest of the new
/// turn, and what it replaces, is kept apart.
fn replace(results: &mut Results, disturbed: &DisturbedTurn, mut again: Turn) {
    let round = &mut results.rounds[disturbed.round];
    let mut turns = round.turns.iter_mut();
    if let Some(turn) = turns.find(|turn| turn.contestant == disturbed.contestant) {
        for load in &disturbed.loads {
            if let (Some(old), Some(new)) =
                (turn.samples.get_mut(load), again.samples.get_mut(load))
                && others(new).unwrap_or(f64::INFINITY) < others(old).unwrap_or(f64::INFINITY)
            {
                std::mem::swap(old, new);
            }
        }
    }
    round.repeated.push(again);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::quantity::{Quantity, Sample};

    /// Two rounds or more of one contestant, with the share that others used in each.
    fn results(shares: &[f64], wanted: usize) -> Results {
        let round = |share: &f64| {
            let sample = json!({"rate": 100.0 - share, "others": share});
            let turn = json!({"contestant": "surus", "samples": {"hello": sample, "short": {}}});
            json!({"load_average": 0.0, "turns": [turn]})
        };
        let machine = json!({"cpus": 2, "cpu": "", "memory_gib": 1, "kernel": ""});
        let results = json!({
            "experiment": "", "size": "full", "date": "", "command": "", "revision": "",
            "machine": machine, "contestants": {}, "fingerprint": "", "wanted": wanted,
            "rounds": shares.iter().map(round).collect::<Vec<_>>(),
        });
        serde_json::from_value(results).unwrap()
    }

    fn turn(share: f64) -> Turn {
        let sample = Sample::from([(Quantity::Rate, 100.0 - share), (Quantity::Others, share)]);
        Turn {
            samples: BTreeMap::from([("hello".into(), sample)]),
            ..Turn::new("surus")
        }
    }

    /// Repeats with these shares, the last one for all further turns. Returns the rounds of the
    /// turns that were repeated.
    fn repeated(results: &mut Results, shares: &[f64]) -> Vec<usize> {
        let mut asked = Vec::new();
        let again = |_: &Results, one: &DisturbedTurn| {
            asked.push(one.round);
            Ok(turn(shares[(asked.len() - 1).min(shares.len() - 1)]))
        };
        repeat(results, again, |_| Ok(())).unwrap();
        asked
    }

    fn others_of(results: &Results) -> Vec<f64> {
        let others = results.all_samples("surus", "hello", Quantity::Others);
        others.into_iter().flatten().collect()
    }

    #[test]
    fn disturbed_turn_is_repeated_until_it_is_quiet() {
        // The second repetition makes the quietest round, and so disturbs another.
        let mut some = results(&[5.0, 30.0, 19.0, 20.0], 4);
        assert_eq!(repeated(&mut some, &[25.0, 4.0]), [1, 3, 1, 2]);
        assert_eq!(others_of(&some), [5.0, 4.0, 4.0, 4.0]);
        let rates = some.samples("surus", "hello", Quantity::Rate);
        let rates: Vec<_> = rates.into_iter().flatten().collect();
        assert_eq!(rates, [95.0, 96.0, 96.0, 96.0]);
        // The others are kept.
        let kept = |round: usize| {
            let turns = some.rounds[round].repeated.iter();
            let shares = turns.map(|turn| others(&turn.samples["hello"]).unwrap());
            shares.collect::<Vec<_>>()
        };
        assert_eq!(kept(1), [30.0, 25.0]);
        assert_eq!(kept(3), [20.0]);
    }

    #[test]
    fn turns_are_repeated_as_often_as_there_are_rounds() {
        let mut some = results(&[5.0, 30.0, 31.0], 3);
        assert_eq!(repeated(&mut some, &[40.0]), [1, 2, 1]);
        assert_eq!(
            others_of(&some),
            [5.0, 30.0, 31.0],
            "the quieter ones are used"
        );
        assert!(some.is_disturbed("surus", "hello"));
        assert!(!some.is_disturbed("surus", "short"));
        let rates = some.samples("surus", "hello", Quantity::Rate);
        assert_eq!(rates.into_iter().flatten().count(), 3);
    }

    #[test]
    fn turns_between_rounds_are_repeated_once() {
        let mut some = results(&[5.0, 30.0], 9);
        assert_eq!(repeated(&mut some, &[40.0]), [1]);
    }

    #[test]
    fn small_form_and_quiet_rounds_are_not_repeated() {
        let mut some = results(&[5.0, 19.9, 8.0], 3);
        assert!(repeated(&mut some, &[5.0]).is_empty());
        let mut small = results(&[5.0, 90.0], 2);
        small.size = crate::length::Size::Small;
        assert!(repeated(&mut small, &[5.0]).is_empty());
    }

    #[test]
    fn disturbed_rounds_are_left_out_if_six_others_remain() {
        let shares = [5.0, 50.0, 6.0, 7.0, 40.0, 8.0, 9.0, 9.0];
        let used = |shares: &[f64]| {
            let some = results(shares, shares.len());
            let used = some.samples("surus", "hello", Quantity::Others);
            (
                used.into_iter().flatten().count(),
                some.is_disturbed("surus", "hello"),
            )
        };
        assert_eq!(used(&shares), (6, false));
        assert_eq!(used(&shares[..7]), (7, true));
    }
}
