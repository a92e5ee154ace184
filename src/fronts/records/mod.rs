//! Serves front ends that hand single records (a queue's messages) to PHP: the order of groups, the
//! guard against records that kill workers, and the request that a record becomes.

pub mod order;
pub mod request;
pub mod response;
pub mod suspects;

use std::time::Instant;

/// The runtime's clock, which tests can pause.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
