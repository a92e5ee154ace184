//! Front ends, which bring work: HTTP, AWS Lambda, queues, and the admin listener.

pub mod address;
pub mod admin;
pub mod http;
pub mod lambda;
pub mod queue;
pub mod records;
