//! The HTTP front as a client sees it: bytes against a started `surus serve`.
#![allow(clippy::unwrap_used)]

#[path = "http/answers.rs"]
mod answers;
mod common;
#[path = "http/hints.rs"]
mod hints;
#[path = "http/hygiene.rs"]
mod hygiene;
#[path = "http/multiplexed.rs"]
mod multiplexed;
#[path = "http/overload.rs"]
mod overload;
#[path = "http/proxies.rs"]
mod proxies;
#[path = "http/tags.rs"]
mod tags;
#[path = "http/timeouts.rs"]
mod timeouts;
#[path = "http/unreadable.rs"]
mod unreadable;
#[path = "http/wire.rs"]
mod wire;
