//! Tests that applications respond behind Lambda's services as behind `surus serve`. The emulator
//! plays Lambda with `surus lambda` as its runtime.
//!
//! The corpus is the oracle's: `tests/php/oracle.rs` shows that `surus serve` responds like
//! php-fpm. `dev/exceptions.toml` lists what Lambda does not carry. `ORACLE_CASE=word` runs only
//! the cases with this word in their names.

mod applications;
mod behind;
mod corpus;
mod exceptions;
mod faults;
mod hosts;
mod late;
mod round_trip;
mod wordpress;
