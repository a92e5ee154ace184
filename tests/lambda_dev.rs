//! Does an application behind Lambda's fronts answer as it does behind `surus serve`? The emulator is Lambda, `surus lambda` its runtime.
//!
//! The corpus is the oracle's, for which `tests/oracle.rs` shows that `surus serve` answers as php-fpm does. What Lambda does not carry
//! is in `lambda_dev/exceptions.toml`. `ORACLE_CASE=word` asks only the cases whose names contain it.
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
