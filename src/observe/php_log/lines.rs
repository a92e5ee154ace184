//! Splits the output of PHP into lines, and keeps the lines of one error together.

use crate::observe::message::Message;

/// The lines of a stream. The stack trace of an error is part of its line.
#[derive(Default)]
pub(super) struct Lines {
    /// A line that has not ended.
    partial: Message,
    /// A complete line that may still get a stack trace.
    whole: Option<Message>,
}

impl Lines {
    pub(super) fn add(&mut self, mut piece: &[u8], mut with: impl FnMut(&str)) {
        while !piece.is_empty() {
            let end = memchr::memchr(b'\n', piece);
            self.partial.add(&piece[..end.unwrap_or(piece.len())]);
            piece = &piece[end.map_or(piece.len(), |end| end + 1)..];
            if end.is_some() {
                self.end_line(&mut with);
            }
        }
    }

    fn end_line(&mut self, mut with: impl FnMut(&str)) {
        let line = std::mem::take(&mut self.partial);
        match &mut self.whole {
            Some(whole) if is_in_stack_trace(line.kept(), whole.kept()) => {
                whole.add(b"\n");
                whole.append(line);
            }
            whole => {
                if let Some(before) = whole.replace(line) {
                    with(&before.into_text());
                }
            }
        }
    }

    /// Ends the complete line.
    pub(super) fn settle(&mut self, mut with: impl FnMut(&str)) {
        if let Some(whole) = self.whole.take() {
            with(&whole.into_text());
        }
    }

    /// Ends the last line, too, which may lack its line break.
    pub(super) fn end(&mut self, mut with: impl FnMut(&str)) {
        if !self.partial.is_empty() {
            self.end_line(&mut with);
        }
        self.settle(with);
    }
}

/// Whether this line belongs to the stack trace that PHP writes after the line `whole`.
fn is_in_stack_trace(line: &[u8], whole: &[u8]) -> bool {
    let is_frame = matches!(line, [b'#', b'0'..=b'9', ..]);
    let in_trace = || memchr::memmem::find(whole, b"Stack trace:").is_some();
    let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(word.as_bytes()));
    is_frame
        || begins(&["Stack trace:", "[stacktrace]", "  thrown in "])
        || (begins(&["Next "]) || line.trim_ascii_end().is_empty()) && in_trace()
}
