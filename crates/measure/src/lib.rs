//! Measures servers: records latencies, compares contestants in rounds, samples the server's
//! processes, and prints reports.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod interval_log;
pub mod machine;
pub mod number;
pub mod probe;
pub mod recorder;
pub mod report;
pub mod rounds;

pub use interval_log::Interval;
pub use machine::Machine;
pub use number::{DISTURBED_MARK, FAILED_MARK, MARK, Measured, Number, Published, Unit, marks};
pub use probe::{Probe, Usage};
pub use recorder::{Latencies, Recorder, Second};
pub use report::{Advice, BarNumbers, Bars, Cell, Chart, Line, Report, Row, Scale, Table};
pub use rounds::{Ratio, Rounds};
