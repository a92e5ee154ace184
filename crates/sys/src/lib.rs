//! All unsafe Rust of Surus, and the system calls that the standard library lacks, as safe
//! functions.
#![warn(missing_docs)]

pub mod acl;
pub mod appended;
pub mod confine;
pub mod dir_lock;
pub mod eventfd;
pub mod fork;
mod futex;
pub mod inherited;
pub mod memory;
pub mod openat2;
pub mod privileges;
pub mod process;
pub mod regular_file;
pub mod remove_tree;
pub mod rings;
pub mod scoreboard;
pub mod seqpacket;
pub mod shared_memory;
pub mod signal;
pub mod signals;
pub mod socket;
pub mod socket_file;
pub mod timer;
pub mod trusted_path;
pub mod watch;
