//! Settles a job by what a framework's adapter has decided about it.

use std::time::Duration;

use serde::Deserialize;

use super::{Outcome, Verdict};
use crate::fronts::queue::job::Disposition;

/// The shortest and the longest wait in milliseconds that a refusal can ask for.
const WAITS: (u64, u64) = (50, 60_000);

/// What the framework has decided.
#[derive(Debug, Deserialize)]
pub(super) struct Decision {
    /// Pause in seconds before it runs again; None if it does not.
    release: Option<u64>,
    /// It has failed, and the framework could not record that: Surus does it.
    #[serde(default)]
    unrecorded: bool,
    /// The framework has sent it again as another job.
    #[serde(default)]
    resent: bool,
    /// It has not run: the application runs no jobs, or a rate limiter lets none run, at present.
    #[serde(default)]
    pub(super) refused: bool,
    /// For how many milliseconds a rate limiter lets none run, as the limiter itself says.
    wait_ms: Option<u64>,
    /// Why it has failed, or runs again.
    error: Option<String>,
}

impl Decision {
    pub(super) fn verdict(self, lost: Option<String>) -> Verdict {
        if self.refused {
            let wait = self.wait_ms.map(|wait| wait.clamp(WAITS.0, WAITS.1));
            return Verdict {
                disposition: Disposition::Return,
                outcome: Outcome::Refused(wait.map(Duration::from_millis)),
            };
        }
        let why = self.error.or(lost);
        match (self.release, why) {
            (None, Some(why)) if self.unrecorded => Verdict::buried(why),
            (Some(pause), why) => Verdict {
                disposition: Disposition::Release(Duration::from_secs(pause)),
                outcome: why.map_or(Outcome::Released, Outcome::Retried),
            },
            (None, None) => Verdict::done(),
            (None, Some(why)) if self.resent => Verdict {
                disposition: Disposition::Done,
                outcome: Outcome::Retried(why),
            },
            // The framework has recorded it.
            (None, Some(why)) => Verdict {
                disposition: Disposition::Done,
                outcome: Outcome::Failed(why),
            },
        }
    }
}
