//! Tests that applications respond behind Lambda's services as behind `surus serve`. The emulator
//! plays Lambda with `surus lambda` as its runtime.
//!
//! The corpus is the oracle's: `tests/oracle.rs` shows that `surus serve` responds like php-fpm.
//! `lambda_dev/exceptions.toml` lists what Lambda does not carry. `ORACLE_CASE=word` runs only the
//! cases with this word in their names.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/engines.rs"]
mod engines;

#[allow(dead_code)]
#[path = "apps"]
mod apps {
    pub mod blog;
    pub mod client;
    pub mod database;
    pub mod examples;
    pub mod site;
}

#[allow(dead_code)]
#[path = "oracle"]
mod oracle {
    pub mod answer;
    pub mod compare;
    pub mod corpus;
    pub mod http;
    pub mod request;
    pub mod watch;
}

mod lambda_dev {
    mod applications;
    mod behind;
    mod corpus;
    mod exceptions;
    mod faults;
    mod hosts;
    mod late;
    mod round_trip;
    mod wordpress;
}
