//! TODO

pub mod fastcgi;
mod params;
pub mod response;
pub mod server_vars;
