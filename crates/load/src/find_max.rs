//! Searches the highest rate that keeps a bound.

/// Ends the search when the lowest rate that failed is this much above the highest that held.
const PRECISION: f64 = 1.03;
/// Growth of the rate while none has failed, and its fall while none has held.
const STRIDE: f64 = 1.5;

/// A rate that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attempt {
    /// Requests per second.
    pub rate: f64,
    /// Whether it kept the bound.
    pub holds: bool,
}

/// The search: asks for a rate, is told whether it holds, and narrows the range.
#[derive(Debug)]
pub struct FindMax {
    first: f64,
    limit: usize,
    attempts: Vec<Attempt>,
    /// A rate that failed once.
    doubtful: Option<f64>,
}

impl FindMax {
    /// Begins at a guess, and tries at most `limit` rates.
    pub fn new(first: f64, limit: usize) -> FindMax {
        FindMax {
            first: first.max(1.0),
            limit,
            attempts: Vec::new(),
            doubtful: None,
        }
    }

    /// The next rate to try; `None` at the end. A rate that failed is tried once more, because all
    /// rates above it are ruled out.
    pub fn next_rate(&self) -> Option<f64> {
        if self.doubtful.is_some() {
            return self.doubtful;
        }
        let next = match (self.best(), self.lowest_failed()) {
            (None, None) => self.first,
            (Some(held), None) => held * STRIDE,
            (None, Some(failed)) => failed / STRIDE,
            (Some(held), Some(failed)) if failed / held <= PRECISION => return None,
            (Some(held), Some(failed)) => (held * failed).sqrt(),
        };
        (self.attempts.len() < self.limit && next >= 0.5).then_some(next)
    }

    /// Records whether a rate holds.
    pub fn record(&mut self, rate: f64, holds: bool) {
        if self.doubtful.take().is_none() && !holds {
            self.doubtful = Some(rate);
            return;
        }
        self.attempts.push(Attempt { rate, holds });
    }

    /// The highest rate that held, below all that failed.
    pub fn best(&self) -> Option<f64> {
        let bound = self.lowest_failed().unwrap_or(f64::INFINITY);
        let held = self
            .attempts
            .iter()
            .filter(|attempt| attempt.holds && attempt.rate < bound);
        held.map(|attempt| attempt.rate).max_by(f64::total_cmp)
    }

    fn lowest_failed(&self) -> Option<f64> {
        let failed = self.attempts.iter().filter(|attempt| !attempt.holds);
        failed.map(|attempt| attempt.rate).min_by(f64::total_cmp)
    }
}
