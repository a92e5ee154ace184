//! All of Surus's unsafe Rust, and the system calls that the standard library lacks, as safe functions.
#![warn(missing_docs)]

pub mod bell;
pub mod hold;
pub mod open;
pub mod process;
pub mod rights;
pub mod rings;
pub mod scoreboard;
pub mod seqpacket;
pub mod shared;
pub mod signal;
pub mod socket;
