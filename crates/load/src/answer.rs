//! The outcome of one request: a response, or why there is none.

use std::io;

use crate::expect::StatusSet;
use crate::outcome::RequestFailure;
use crate::response::Malformed;

/// A complete response, whether or not it was expected.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub received: u64,
    pub sent: u64,
    /// Empty unless it was wanted.
    pub body: Vec<u8>,
    /// Values of `Set-Cookie`, whose bytes may be in any encoding.
    pub cookies: Vec<Vec<u8>>,
}

/// What of a response is kept.
pub struct Retention<'a> {
    pub keeps_body: bool,
    /// Keeps the body of a response with another status.
    pub sample_unless: Option<&'a StatusSet>,
}

impl Retention<'_> {
    pub fn is_sample(&self, status: u16) -> bool {
        self.sample_unless
            .is_some_and(|expected| !expected.has(status))
    }
}

/// Why there is no response.
#[derive(Debug)]
pub struct Error {
    pub failure: RequestFailure,
    pub text: Option<String>,
    /// The server has said that it has not processed the request.
    pub is_unprocessed: bool,
    /// No connection could be opened.
    pub is_unconnected: bool,
}

impl Error {
    pub fn new(failure: RequestFailure, text: Option<String>) -> Error {
        Error {
            failure,
            text,
            is_unprocessed: false,
            is_unconnected: false,
        }
    }

    pub fn closed() -> Error {
        Error::new(RequestFailure::Closed, None)
    }

    pub fn malformed(why: &str) -> Error {
        Error::new(RequestFailure::Malformed, Some(why.to_string()))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::new(RequestFailure::from_io(&error), Some(error.to_string()))
    }
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Error {
        Error::malformed(error.0)
    }
}
