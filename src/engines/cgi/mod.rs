//! CGI as engines share it: the variables of a request, the headers of a response, FastCGI records.

pub mod fastcgi;
pub(crate) mod params;
pub mod response;
pub mod server_vars;
