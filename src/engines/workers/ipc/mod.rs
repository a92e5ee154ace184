//! TODO

mod await_response;
mod doorbell;
mod requests;
mod response_order;
mod response_ring;
mod responses;
