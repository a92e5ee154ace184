//! Keeps the first lines that a starting PHP writes, which say why it did not start.

use std::sync::{Arc, Mutex};

/// The first lines of a starting PHP, which say why it did not start.
#[derive(Debug, Clone, Default)]
pub struct FirstLines(Arc<Mutex<Vec<String>>>);

/// Bytes kept of each line.
const FIRST_LINE: usize = 4096;

impl FirstLines {
    pub fn add(&self, line: &str) {
        let mut end = line.len().min(FIRST_LINE);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let line = &line[..end];
        let mut lines = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // Every worker writes the same lines.
        if lines.len() < 20 && !lines.iter().any(|other| other == line) {
            lines.push(line.to_string());
        }
    }

    /// The lines, joined by line breaks.
    pub fn text(&self) -> String {
        FirstLines::text_of(std::slice::from_ref(self))
    }

    /// The lines of several streams, one stream after the other, whichever was written first.
    pub fn text_of(streams: &[FirstLines]) -> String {
        let mut all: Vec<String> = Vec::new();
        for stream in streams {
            let lines = stream.0.lock();
            let lines = lines.unwrap_or_else(|poisoned| poisoned.into_inner());
            for line in &*lines {
                if !all.contains(line) {
                    all.push(line.clone());
                }
            }
        }
        all.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_one_stream_after_the_other_and_no_line_twice() {
        let streams = [FirstLines::default(), FirstLines::default()];
        streams[1].add("it has ended");
        streams[0].add("hello");
        streams[1].add("hello");
        streams[1].add("it has ended");
        assert_eq!(FirstLines::text_of(&streams), "hello\nit has ended");
        assert_eq!(streams[1].text(), "it has ended\nhello");
    }

    #[test]
    fn many_lines_of_one_stream_leave_room_for_the_next() {
        let streams = [FirstLines::default(), FirstLines::default()];
        (0..25).for_each(|number| streams[0].add(&format!("line {number}")));
        streams[1].add("the reason");
        assert!(FirstLines::text_of(&streams).ends_with("line 19\nthe reason"));
    }
}
