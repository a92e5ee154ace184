//! The parts of files that placeholders among the bytes of a connection stand for.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex};

/// Never read or written, so it takes addresses and no memory.
pub static PLACEHOLDER: [u8; 8 << 20] = [0; 8 << 20];

/// Do these bytes stand for a file?
pub fn is_placeholder(bytes: &[u8]) -> bool {
    PLACEHOLDER.as_ptr_range().contains(&bytes.as_ptr())
}

/// The parts of files that a connection's placeholders stand for, in their order.
#[derive(Debug, Default)]
pub struct Files(Mutex<VecDeque<Part>>);

#[derive(Debug)]
struct Part {
    file: Arc<File>,
    offset: u64,
    left: usize,
}

impl Files {
    /// Adds the file part of the next placeholder.
    pub fn push(&self, file: Arc<File>, offset: u64, left: usize) {
        self.lock().push_back(Part { file, offset, left });
    }

    /// Has the first part sent: `send(file, offset, at most)` says how much of it went. None when no part is left.
    pub fn send<E>(
        &self,
        most: usize,
        send: impl FnOnce(&File, u64, usize) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        let mut parts = self.lock();
        let part = parts.front_mut()?;
        let sent = send(&part.file, part.offset, part.left.min(most));
        if let Ok(sent) = sent {
            part.offset += sent as u64;
            part.left -= sent;
            if part.left == 0 {
                parts.pop_front();
            }
        }
        Some(sent)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Part>> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
