//! The log of a function as in CloudWatch: the runtime's output line by line, with Lambda's own
//! lines between.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::unix::pipe;

use super::function::Sink;

/// The largest CloudWatch record; longer lines are split.
const LONGEST: usize = 1 << 20;

/// Distributes lines to the sink and to invocations.
pub struct Log {
    sink: Option<Sink>,
    /// None if the function does not keep its log.
    kept: Option<Mutex<Vec<String>>>,
}

impl Log {
    pub fn new(sink: Option<Sink>, keeps: bool) -> Log {
        Log {
            sink,
            kept: keeps.then(Mutex::default),
        }
    }

    /// Whether the lines go anywhere.
    pub fn is_read(&self) -> bool {
        self.sink.is_some() || self.kept.is_some()
    }

    pub fn line(&self, line: &str) {
        if let Some(sink) = &self.sink {
            sink(line);
        }
        if let Some(kept) = &self.kept {
            kept.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line.to_string());
        }
    }

    /// Takes the lines since the last call.
    pub fn take(&self) -> Vec<String> {
        let Some(kept) = &self.kept else {
            return Vec::new();
        };
        std::mem::take(&mut kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// stdout and stderr of a process and its children. They share one pipe, so that lines keep the
/// order of writing.
pub struct ProcessOutput {
    pipe: pipe::Receiver,
    partial: Mutex<Vec<u8>>,
    log: Arc<Log>,
}

impl ProcessOutput {
    /// Reads the pipe until all writers have closed it.
    pub fn follow(pipe: OwnedFd, log: Arc<Log>) -> io::Result<Arc<ProcessOutput>> {
        let output = Arc::new(ProcessOutput {
            pipe: pipe::Receiver::from_owned_fd(pipe)?,
            partial: Mutex::default(),
            log,
        });
        let following = output.clone();
        tokio::spawn(async move {
            while following.pipe.readable().await.is_ok() {
                if !following.drain() {
                    return;
                }
            }
        });
        Ok(output)
    }

    /// Reads what is in the pipe. Returns false at end of file.
    pub fn drain(&self) -> bool {
        let mut partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; 16 << 10];
        loop {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => {
                    self.flush(&mut partial);
                    return false;
                }
                Ok(read) => self.split(&mut partial, &buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }

    /// Like [`drain`](Output::drain), but also logs a last line without a line break.
    pub fn finish(&self) {
        self.drain();
        self.flush(&mut self.partial.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn split(&self, partial: &mut Vec<u8>, mut read: &[u8]) {
        while let Some(at) = memchr::memchr(b'\n', read) {
            partial.extend_from_slice(&read[..at]);
            read = &read[at + 1..];
            self.log.line(&String::from_utf8_lossy(partial));
            partial.clear();
        }
        partial.extend_from_slice(read);
        if partial.len() >= LONGEST {
            self.flush(partial);
        }
    }

    fn flush(&self, partial: &mut Vec<u8>) {
        if !partial.is_empty() {
            self.log.line(&String::from_utf8_lossy(partial));
            partial.clear();
        }
    }
}
