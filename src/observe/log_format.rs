//! The formats of a log line (`log.format`).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `journal` if stderr leads to systemd's journal, otherwise `text`.
    Auto,
    Text,
    Json,
    /// With the priority in front and without the time, for systemd's journal.
    Journal,
}
