//! Lambda's own log lines: START, END, REPORT, and those about initialization and failures.

use std::time::Duration;

use serde_json::{Value, json};

use super::function::{EmulatedFunction, LogFormat};
use super::identifier::{rfc3339, since_epoch};
use super::invoke_response::FunctionError;
use super::log::Log;

/// The status of an event in its REPORT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventStatus {
    Success,
    /// The type of the function's own error or of one of Lambda's.
    Error(String),
    Timeout,
}

/// The cost of an event.
#[derive(Debug, Clone)]
pub struct InvocationReport {
    pub request_id: String,
    pub status: EventStatus,
    /// From START until the runtime and the extensions asked for the next event.
    pub duration: Duration,
    /// In whole milliseconds, including the initialization, which Lambda bills since August 2025.
    pub billed: Duration,
    /// Only for the first event of an environment.
    pub init: Option<Duration>,
    pub restore: Option<Duration>,
    /// MB.
    pub memory_size: u64,
    /// MB, of all events of the environment; measured at most once per second.
    pub max_memory: u64,
    /// Whether the failure resets the environment.
    pub is_reset: bool,
}

/// When an initialization happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Init,
    /// Within an event, because the previous initialization failed or the runtime exited.
    Invoke,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Init => "init",
            Phase::Invoke => "invoke",
        }
    }
}

/// Writes Lambda's lines in the function's log format.
pub struct Platform<'a> {
    pub function: &'a EmulatedFunction,
    pub log: &'a Log,
}

impl Platform<'_> {
    fn write(&self, text: impl FnOnce() -> String, json: impl FnOnce() -> (&'static str, Value)) {
        if !self.log.is_read() {
            return;
        }
        match self.function.log_format {
            LogFormat::Text => self.log.line(&text()),
            LogFormat::Json => {
                let (kind, record) = json();
                let time = rfc3339(since_epoch());
                let line = json!({"time": time, "type": kind, "record": record});
                self.log.line(&line.to_string());
            }
        }
    }

    pub fn init_start(&self) {
        self.write(
            || "INIT_START Runtime Version: emulator\tRuntime Version ARN: ".to_string(),
            || {
                (
                    "platform.initStart",
                    json!({
                        "initializationType": self.function.initialization.name(),
                        "phase": "init",
                        "runtimeVersion": "emulator",
                        "functionName": self.function.name,
                        "functionVersion": self.function.version,
                    }),
                )
            },
        );
    }

    /// Like Lambda, writes the line only if the initialization failed.
    pub fn init_report(&self, phase: Phase, duration: Duration, failed: &EventStatus) {
        self.write(
            || {
                format!(
                    "INIT_REPORT Init Duration: {:.2} ms\tPhase: {}\t{}",
                    millis(duration),
                    phase.name(),
                    status_text(failed)
                )
            },
            || {
                let mut record = json!({
                    "initializationType": self.function.initialization.name(),
                    "phase": phase.name(),
                    "metrics": {"durationMs": rounded(duration)},
                });
                add_status(&mut record, failed);
                ("platform.initReport", record)
            },
        );
    }

    pub fn restore_start(&self) {
        self.write(
            || "RESTORE_START Runtime Version: emulator\tRuntime Version ARN: ".to_string(),
            || {
                let version = json!({"runtimeVersion": "emulator"});
                ("platform.restoreStart", version)
            },
        );
    }

    pub fn restore_report(&self, duration: Duration, status: &EventStatus) {
        self.write(
            || {
                let tail = match status {
                    EventStatus::Success => String::new(),
                    failed => format!("\t{}", status_text(failed)),
                };
                format!(
                    "RESTORE_REPORT Restore Duration: {:.2} ms{tail}",
                    millis(duration)
                )
            },
            || {
                let mut record = json!({"metrics": {"durationMs": rounded(duration)}});
                add_status(&mut record, status);
                ("platform.restoreReport", record)
            },
        );
    }

    pub fn start(&self, id: &str) {
        let version = &self.function.version;
        self.write(
            || format!("START RequestId: {id} Version: {version}"),
            || {
                (
                    "platform.start",
                    json!({"requestId": id, "version": version}),
                )
            },
        );
    }

    /// Writes the line for an environment failure, between the function's output and END.
    pub fn failure(&self, id: &str, status: &EventStatus, message: &str) {
        self.write(
            || match status {
                EventStatus::Timeout => format!("{} {id} {message}", rfc3339(since_epoch())),
                EventStatus::Error(kind) => format!("RequestId: {id} Error: {message}\n{kind}"),
                EventStatus::Success => message.to_string(),
            },
            || {
                let mut record = json!({"requestId": id, "message": message});
                add_status(&mut record, status);
                ("platform.runtimeDone", record)
            },
        );
    }

    /// END and REPORT.
    pub fn end(&self, report: &InvocationReport) {
        if !self.log.is_read() {
            return;
        }
        match self.function.log_format {
            LogFormat::Text => {
                self.log
                    .line(&format!("END RequestId: {}", report.request_id));
                self.log.line(&report.text());
            }
            LogFormat::Json => {
                let (nothing, record) = (String::new(), report.record());
                self.write(|| nothing, || ("platform.report", record));
            }
        }
    }
}

impl InvocationReport {
    /// The report of an event that never reached an environment.
    pub fn rejected(
        function: &EmulatedFunction,
        request_id: String,
        error: &FunctionError,
    ) -> InvocationReport {
        InvocationReport {
            request_id,
            status: EventStatus::Error(error.kind.clone()),
            duration: Duration::ZERO,
            billed: Duration::ZERO,
            init: None,
            restore: None,
            memory_size: function.memory,
            max_memory: 0,
            is_reset: false,
        }
    }

    /// `REPORT RequestId: …`, separated by tabs.
    pub fn text(&self) -> String {
        let mut line = format!(
            "REPORT RequestId: {}\tDuration: {:.2} ms\tBilled Duration: {} ms\tMemory Size: {} \
             MB\tMax Memory Used: {} MB\t",
            self.request_id,
            millis(self.duration),
            self.billed.as_millis(),
            self.memory_size,
            self.max_memory,
        );
        if let Some(init) = self.init {
            line += &format!("Init Duration: {:.2} ms\t", millis(init));
        }
        if let Some(restore) = self.restore {
            line += &format!(
                "Restore Duration: {:.2} ms\tBilled Restore Duration: {} ms\t",
                millis(restore),
                ceiled(restore).as_millis()
            );
        }
        if self.is_reset {
            line += &status_text(&self.status);
        }
        line
    }

    fn record(&self) -> Value {
        let mut metrics = json!({
            "durationMs": rounded(self.duration),
            "billedDurationMs": self.billed.as_millis() as u64,
            "memorySizeMB": self.memory_size,
            "maxMemoryUsedMB": self.max_memory,
        });
        if let Some(init) = self.init {
            metrics["initDurationMs"] = json!(rounded(init));
        }
        if let Some(restore) = self.restore {
            metrics["restoreDurationMs"] = json!(rounded(restore));
            metrics["billedRestoreDurationMs"] = json!(ceiled(restore).as_millis() as u64);
        }
        let mut record = json!({"requestId": self.request_id, "metrics": metrics});
        add_status(&mut record, &self.status);
        record
    }
}

/// Rounds up to whole milliseconds, which Lambda bills.
pub fn ceiled(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_micros().div_ceil(1000) as u64)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn rounded(duration: Duration) -> f64 {
    (millis(duration) * 1000.0).round() / 1000.0
}

fn status_text(status: &EventStatus) -> String {
    match status {
        EventStatus::Success => "Status: success".into(),
        EventStatus::Error(kind) => format!("Status: error\tError Type: {kind}"),
        EventStatus::Timeout => "Status: timeout".into(),
    }
}

fn add_status(record: &mut Value, status: &EventStatus) {
    match status {
        EventStatus::Success => record["status"] = json!("success"),
        EventStatus::Error(kind) => {
            record["status"] = json!("error");
            record["errorType"] = json!(kind);
        }
        EventStatus::Timeout => record["status"] = json!("timeout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_lambdas_fields_in_order() {
        let report = InvocationReport {
            request_id: "8f5a".into(),
            status: EventStatus::Success,
            duration: Duration::from_micros(1234),
            billed: Duration::from_millis(103),
            init: Some(Duration::from_micros(101_010)),
            restore: None,
            memory_size: 128,
            max_memory: 30,
            is_reset: false,
        };
        assert_eq!(
            report.text(),
            "REPORT RequestId: 8f5a\tDuration: 1.23 ms\tBilled Duration: 103 ms\tMemory Size: 128 \
             MB\t\
             Max Memory Used: 30 MB\tInit Duration: 101.01 ms\t"
        );
        let failed = InvocationReport {
            status: EventStatus::Error("Runtime.OutOfMemory".into()),
            init: None,
            is_reset: true,
            ..report
        };
        let text = failed.text();
        assert!(
            text.ends_with("30 MB\tStatus: error\tError Type: Runtime.OutOfMemory"),
            "{text}"
        );
    }

    #[test]
    fn billed_duration_rounds_up_to_milliseconds() {
        for (micros, millis) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            let billed = ceiled(Duration::from_micros(micros));
            assert_eq!(billed, Duration::from_millis(millis));
        }
    }
}
