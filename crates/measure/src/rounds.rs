//! Compares contestants that take turns: medians, and their ratio with a bootstrap interval.

use serde::Serialize;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 4000;

/// From this number on, the bootstrap's interval is wide enough: in simulations, that of equal
/// contestants includes 1 in 94 to 96 % of the cases, and of six rounds in 93 %.
const ENOUGH_ROUNDS: usize = 10;

/// What a reader must know of the intervals of a few rounds.
pub fn caveat(rounds: usize) -> Option<String> {
    (2..ENOUGH_ROUNDS).contains(&rounds).then(|| {
        format!(
            "95 % intervals of ratios are of {rounds} rounds, and a bootstrap of few rounds is a \
             little too narrow: about 93 % with six of them"
        )
    })
}

/// A ratio of medians with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio of the medians of all rounds.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// Whether the interval excludes 1.
    pub fn shows_difference(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The samples of one quantity: one of each contestant per round.
#[derive(Debug, Clone)]
pub struct Rounds {
    samples: Vec<Vec<f64>>,
}

impl Rounds {
    /// No samples yet.
    pub fn new(contestants: usize) -> Rounds {
        Rounds {
            samples: vec![Vec::new(); contestants],
        }
    }

    /// The order of a round. It is rotated, so that each contestant has each place equally often.
    pub fn order(contestants: usize, round: usize) -> impl Iterator<Item = usize> {
        (0..contestants).map(move |place| (place + round) % contestants)
    }

    /// Adds a contestant's sample of the current round.
    pub fn push(&mut self, contestant: usize, sample: f64) {
        self.samples[contestant].push(sample);
    }

    /// A contestant's samples, by round.
    pub fn samples(&self, contestant: usize) -> &[f64] {
        &self.samples[contestant]
    }

    /// A contestant's median; `None` without samples.
    pub fn median(&self, contestant: usize) -> Option<f64> {
        median(&self.samples[contestant])
    }

    /// The ratio of two medians. Resamples whole rounds, because what slows the machine for a while
    /// slows both contestants of a round.
    pub fn ratio(&self, of: usize, to: usize) -> Option<Ratio> {
        let (a, b) = (&self.samples[of], &self.samples[to]);
        let rounds = a.len().min(b.len());
        let value = median(&a[..rounds])? / median(&b[..rounds])?;
        let mut random = SplitMix(0x5eed);
        let mut ratios = Vec::with_capacity(RESAMPLES);
        let (mut from_a, mut from_b) = (vec![0.0; rounds], vec![0.0; rounds]);
        for _ in 0..RESAMPLES {
            for place in 0..rounds {
                let round = random.below(rounds);
                from_a[place] = a[round];
                from_b[place] = b[round];
            }
            ratios.push(median(&from_a)? / median(&from_b)?);
        }
        // A median of zero in a resample has no ratio, so there is no interval.
        if !value.is_finite() || ratios.iter().any(|ratio| !ratio.is_finite()) {
            return None;
        }
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[((RESAMPLES - 1) as f64 * share).round() as usize];
        Some(Ratio {
            value,
            low: at(0.025),
            high: at(0.975),
        })
    }
}

/// The median; `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Random numbers that are the same in each run, so that a report can be repeated.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
