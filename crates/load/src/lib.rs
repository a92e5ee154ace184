//! The load generator: sends requests at a pace, over HTTP/1.1 or HTTP/2, and records responses.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod connect;
mod cookies;
mod expect;
mod find_max;
mod http1;
mod http2;
mod outcome;
mod pace;
mod plan;
mod requests;
pub mod response;
mod run;
mod target;
mod user;

pub use expect::{Expectations, StatusSet};
pub use find_max::{Attempt, FindMax};
pub use outcome::{Offered, RequestFailure, RunOutcome, Totals, Unexpected};
pub use pace::{Pace, Schedule};
pub use plan::{Plan, Protocol, Stop};
pub use requests::{Mix, Request, parse_file, weighted};
pub use run::{Watch, run};
pub use target::{InvalidUrl, Origin, Url};
