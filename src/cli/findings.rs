//! Prints the findings of `surus check`.

use crate::cli::stdout::say;

/// Prints findings, and keeps those that would stop the start.
#[derive(Default)]
pub(super) struct Findings {
    /// What would stop the start, or which site, each once.
    pub stops: Vec<(String, String)>,
    /// The site that is checked; empty without `[[site]]`.
    pub site: String,
    /// A comparison that was asked for has failed.
    pub has_failed: bool,
}

impl Findings {
    /// Reports what works.
    pub fn fine(&self, what: &str, is: impl std::fmt::Display) {
        say!("✓ {what:<17}{is}");
    }

    /// Reports what works differently from what the user may expect.
    pub fn note(&self, text: impl std::fmt::Display) {
        say!("! {text}");
    }

    /// Reports that a comparison has failed, which does not stop the start.
    pub fn fail(&mut self, text: impl std::fmt::Display) {
        self.note(text);
        self.has_failed = true;
    }

    /// Reports what would stop the start.
    pub fn stop(&mut self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        let mut stops = self.stops.iter();
        if stops.any(|(site, stop)| *site == self.site && text.ends_with(stop.as_str())) {
            return;
        }
        match self.site.as_str() {
            "" => say!("✗ {text}"),
            site => say!("✗ site {site}: {text}"),
        }
        self.stops.push((self.site.clone(), text));
    }
}
