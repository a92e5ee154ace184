//! The queue of file parts that a connection sends in place of placeholder bytes.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex};

/// Never read or written, so it occupies addresses but no memory.
pub static PLACEHOLDER: [u8; 8 << 20] = [0; 8 << 20];

/// Whether these bytes are a placeholder for a file.
pub fn is_placeholder(bytes: &[u8]) -> bool {
    PLACEHOLDER.as_ptr_range().contains(&bytes.as_ptr())
}

/// The file parts for a connection's placeholders, in order.
#[derive(Debug, Default)]
pub struct FileQueue(Mutex<VecDeque<FilePart>>);

#[derive(Debug)]
struct FilePart {
    file: Arc<File>,
    offset: u64,
    left: usize,
}

impl FileQueue {
    /// Adds the file part of the next placeholder.
    pub fn push(&self, file: Arc<File>, offset: u64, left: usize) {
        self.lock().push_back(FilePart { file, offset, left });
    }

    /// Sends some of the first part: `send(file, offset, at most)` returns how many bytes were
    /// sent. None if the queue is empty.
    pub fn send<E>(
        &self,
        max: usize,
        send: impl FnOnce(&File, u64, usize) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        let mut parts = self.lock();
        let part = parts.front_mut()?;
        let sent = send(&part.file, part.offset, part.left.min(max));
        if let Ok(sent) = sent {
            part.offset += sent as u64;
            part.left -= sent;
            if part.left == 0 {
                parts.pop_front();
            }
        }
        Some(sent)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<FilePart>> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
