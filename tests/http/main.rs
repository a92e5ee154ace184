//! The HTTP front end as a client sees it: bytes against a started `surus serve`.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod access_log;
mod answers;
mod error_pages;
mod files;
mod framing;
mod h2spec;
mod hints;
mod htaccess;
mod http3;
mod hygiene;
mod large;
mod limits;
mod log_files;
mod multiplexed;
mod overload;
mod persistence;
mod proxies;
mod reconfigured;
mod routes;
mod sites;
mod socket_activation;
mod streamed_bodies;
mod tags;
mod timeouts;
mod tls;
mod traces;
mod unreadable;
mod wire;
