//! The quantities measured under a load.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use surus_measure::Unit;

/// A measured quantity. The order is that of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Messages of a queue in expected responses, per second.
    Messages,
    /// Expected responses per second.
    Rate,
    /// Responses per second by which an overloaded server refused a request.
    Refused,
    /// CPU time of all server processes per expected response.
    Cpu,
    Mean,
    Min,
    P50,
    P99,
    Max,
    Failed,
    /// Highest memory of all server processes together (PSS).
    Memory,
    /// Memory that an idle connection needs, of all server processes together (PSS).
    PerConnection,
    /// What stays of that once the connections have closed, for each of them.
    Kept,
    /// CPU time of all server processes per second without a request.
    IdleCpu,
    /// Of a Lambda function: from the event to the request for the next one; average, minimum,
    /// percentiles.
    Billed,
    BilledMin,
    BilledP50,
    BilledP99,
    /// Of a Lambda function: its initialization and its first event.
    Cold,
    /// From the start of the processes to the first response.
    Start,
    /// CPU of the load generator, of one.
    Generator,
    /// CPU of everything else on the machine, of all.
    Others,
    /// CPU time of all server processes, however little, and the expected responses that it was
    /// for. [`Quantity::Cpu`] of all rounds comes from them where one round has too little.
    CpuTime,
    Responses,
}

/// One sample of each quantity.
pub type Sample = BTreeMap<Quantity, f64>;

impl Quantity {
    pub fn unit(self) -> Unit {
        match self {
            Quantity::Messages | Quantity::Rate | Quantity::Refused => Unit::PerSecond,
            Quantity::Cpu | Quantity::IdleCpu => Unit::Us,
            Quantity::Mean
            | Quantity::Min
            | Quantity::P50
            | Quantity::P99
            | Quantity::Max
            | Quantity::Billed
            | Quantity::BilledMin
            | Quantity::BilledP50
            | Quantity::BilledP99
            | Quantity::Cold
            | Quantity::Start => Unit::Ms,
            Quantity::Failed | Quantity::Responses => Unit::Count,
            Quantity::CpuTime => Unit::Seconds,
            Quantity::Memory | Quantity::PerConnection | Quantity::Kept => Unit::Bytes,
            Quantity::Generator | Quantity::Others => Unit::Percent,
        }
    }

    /// Whether it says more of the load generator than of the server if that was the limit.
    pub fn depends_on_generator(self) -> bool {
        matches!(
            self,
            Quantity::Messages
                | Quantity::Rate
                | Quantity::Refused
                | Quantity::Mean
                | Quantity::Min
                | Quantity::P50
                | Quantity::P99
                | Quantity::Max
        )
    }

    /// Whether other processes on the CPUs change it. CPU per request suffers least.
    pub fn depends_on_others(self) -> bool {
        let is_time = matches!(
            self,
            Quantity::Billed
                | Quantity::BilledMin
                | Quantity::BilledP50
                | Quantity::BilledP99
                | Quantity::Cold
                | Quantity::Start
        );
        is_time || self.depends_on_generator()
    }

    /// The head of its column.
    pub fn label(self) -> &'static str {
        match self {
            Quantity::Messages => "messages/s",
            Quantity::Rate => "requests/s",
            Quantity::Refused => "rejected/s",
            Quantity::Cpu => "CPU per request",
            Quantity::Mean => "mean",
            Quantity::Min => "minimum",
            Quantity::P50 => "p50",
            Quantity::P99 => "p99",
            Quantity::Max => "max",
            Quantity::Failed => "failed",
            Quantity::Memory => "memory (PSS)",
            Quantity::PerConnection => "memory per connection",
            Quantity::Kept => "of it kept",
            Quantity::IdleCpu => "CPU per idle second",
            Quantity::Billed => "billed, average",
            Quantity::BilledMin => "billed, minimum",
            Quantity::BilledP50 => "billed, p50",
            Quantity::BilledP99 => "billed, p99",
            Quantity::Cold => "cold start",
            Quantity::Start => "first response",
            Quantity::Generator => "generator's CPU",
            Quantity::Others => "other processes' CPU",
            Quantity::CpuTime => "CPU time",
            Quantity::Responses => "responses",
        }
    }
}
