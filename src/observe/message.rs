//! One log message of PHP: its first bytes are kept, the rest is counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes kept of a message if `log.max_message` is not set.
pub const DEFAULT_MAX: usize = 64 << 10;

static MAX: AtomicUsize = AtomicUsize::new(DEFAULT_MAX);

/// How many messages were cut.
static CUT: AtomicU64 = AtomicU64::new(0);

/// Sets how many bytes of a message are kept.
pub fn set_max(bytes: usize) {
    MAX.store(bytes, Ordering::Relaxed);
}

/// How many messages have been cut so far.
pub fn cut_messages() -> u64 {
    CUT.load(Ordering::Relaxed)
}

#[derive(Debug, Clone, Default)]
pub struct Message {
    kept: Vec<u8>,
    cut: u64,
}

impl Message {
    pub fn new(text: &[u8]) -> Message {
        let mut message = Message::default();
        message.add(text);
        message
    }

    pub fn add(&mut self, piece: &[u8]) {
        let room = match self.cut {
            0 => MAX.load(Ordering::Relaxed).saturating_sub(self.kept.len()),
            _ => 0,
        };
        let (kept, cut) = piece.split_at(room.min(piece.len()));
        self.kept.extend_from_slice(kept);
        self.cut += cut.len() as u64;
    }

    /// Appends another message, which may have been cut.
    pub fn append(&mut self, other: Message) {
        self.add(&other.kept);
        self.cut += other.cut;
    }

    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The kept bytes.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// The text for the log, without trailing line breaks. It says how many bytes were cut.
    pub fn into_text(self) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        if self.cut == 0 {
            return text.trim_end_matches(['\n', '\r']).to_string();
        }
        CUT.fetch_add(1, Ordering::Relaxed);
        // The cut may have split a character.
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        format!("{whole} [cut: {} more bytes (log.max_message)]", self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_is_cut_and_counts_the_lost_bytes() {
        let mut message = Message::default();
        for _ in 0..DEFAULT_MAX / 1024 {
            message.add("x".repeat(1024).as_bytes());
        }
        assert_eq!(message.clone().into_text().len(), DEFAULT_MAX);
        message.add(b"1234");
        message.add(b"5");
        let text = message.into_text();
        assert!(text.ends_with("x [cut: 5 more bytes (log.max_message)]"));
        assert_eq!(
            text.matches('x').count(),
            DEFAULT_MAX + 1,
            "one is in the setting's name"
        );
    }

    #[test]
    fn cut_message_ends_with_a_whole_character() {
        let text = "ä".repeat(DEFAULT_MAX);
        let message = Message::new(&[b"x", text.as_bytes()].concat()).into_text();
        assert!(
            message.contains("ää [cut: "),
            "{}",
            &message[message.len() - 60..]
        );
    }

    #[test]
    fn trailing_line_breaks_are_removed() {
        assert_eq!(Message::new(b"one\ntwo\r\n").into_text(), "one\ntwo");
    }
}
