//! All unsafe Rust of Surus, and the system calls that the standard library lacks, as safe
//! functions.
#![warn(missing_docs)]

pub mod bell;
pub mod confine;
pub mod fork;
pub mod hold;
pub mod memory;
pub mod open;
pub mod privileges;
pub mod process;
pub mod rings;
pub mod scoreboard;
pub mod seqpacket;
pub mod shared;
pub mod signal;
pub mod signals;
pub mod socket;
