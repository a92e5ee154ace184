//! Where work comes from.

pub mod admin;
pub mod http;
pub mod lambda;
pub mod queue;
pub mod records;
