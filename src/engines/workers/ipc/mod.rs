//! The channels between Surus and the workers of a pool.

pub(crate) mod await_response;
pub(crate) mod requests;
mod response_delivery;
mod response_order;
pub(crate) mod response_poller;
mod response_ring;
pub(crate) mod responses;
mod worker_exit;
