//! Log lines that carry their event's request id, in the formats of AWS Lambda's logs.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::log_format::Format;

/// The callers' names of events, by the events' own ids.
#[derive(Debug, Clone, Default)]
pub struct Names(Arc<Mutex<List>>);

type List = Vec<Entry>;

#[derive(Debug)]
struct Entry {
    event: u64,
    name: Arc<str>,
    /// The record of the event, if this entry is for a record.
    record: Option<Box<str>>,
}

impl Names {
    /// Names an event until the guard is dropped.
    pub fn name(&self, event: u64, name: &str) -> NameGuard {
        let named = NameGuard {
            names: self.clone(),
            name: name.into(),
        };
        named.add(event, None);
        named
    }

    /// The name of an event and of its record. Without an id, the only name if there is just one.
    fn find(&self, event: Option<u64>) -> Option<(Arc<str>, Option<String>)> {
        let names = self.lock();
        let mut names = names.iter();
        match event {
            Some(event) => {
                let found = names.find(|entry| entry.event == event)?;
                let record = found.record.as_deref().map(str::to_string);
                Some((found.name.clone(), record))
            }
            None => names
                .next()
                .filter(|first| names.all(|entry| Arc::ptr_eq(&entry.name, &first.name)))
                .map(|only| (only.name.clone(), None)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a name as long as it exists.
#[derive(Debug)]
pub struct NameGuard {
    names: Names,
    name: Arc<str>,
}

impl NameGuard {
    /// Gives the same name to another event, which processes this record of the first.
    pub fn record(&self, event: u64, record: &str) {
        self.add(event, Some(record.into()));
    }

    fn add(&self, event: u64, record: Option<Box<str>>) {
        self.names.lock().push(Entry {
            event,
            name: self.name.clone(),
            record,
        });
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        let mut names = self.names.lock();
        names.retain(|entry| !Arc::ptr_eq(&entry.name, &self.name));
    }
}

/// Formats these lines.
pub struct Lines {
    pub names: Names,
    pub format: Format,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut log_line = LogLine::default();
        event.record(&mut log_line);
        let metadata = event.metadata();
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let level = metadata.level().as_str();
        let mut name = log_line.name.take();
        if name.is_none()
            && let Some((found, record)) = self.names.find(log_line.event)
        {
            name = Some(found);
            if let Some(record) = record {
                log_line
                    .fields
                    .entry("record")
                    .or_insert_with(|| record.into());
            }
        }
        match self.format {
            Format::Json => {
                let is_php = metadata.target() == "php";
                let line = log_line.json(is_php, timestamp, level, name);
                writeln!(to, "{line}")
            }
            Format::Text | Format::Auto | Format::Journal => {
                write!(to, "{timestamp}\t")?;
                if let Some(name) = name {
                    write!(to, "{name}\t")?;
                }
                write!(to, "{level}\t")?;
                // A line feed ends a record, so the lines of one message are joined by carriage
                // returns.
                let mut text = log_line.message.replace('\n', "\r");
                for (key, value) in &log_line.fields {
                    write!(text, " {key}={value}")?;
                }
                writeln!(to, "{text}")
            }
        }
    }
}

/// The fields of a line.
#[derive(Default)]
struct LogLine {
    message: String,
    event: Option<u64>,
    name: Option<Arc<str>>,
    fields: Map<String, Value>,
}

impl LogLine {
    fn json(self, is_php: bool, timestamp: String, level: &str, name: Option<Arc<str>>) -> Value {
        let mut line = Map::new();
        // JSON that an application writes itself keeps its own keys; only missing keys are added.
        let own = is_php
            .then(|| serde_json::from_str(&self.message).ok())
            .flatten();
        match own {
            Some(Value::Object(own)) => line = own,
            _ => drop(line.insert("message".into(), self.message.into())),
        }
        let name = name.map(|name| ("requestId", name.to_string()));
        let added = [("timestamp", timestamp), ("level", level.to_string())];
        for (key, value) in added.into_iter().chain(name) {
            line.entry(key).or_insert_with(|| value.into());
        }
        for (key, value) in self.fields {
            line.entry(key).or_insert(value);
        }
        Value::Object(line)
    }

    fn put(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_string(), value);
    }
}

impl Visit for LogLine {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "request_id" => self.event = Some(value),
            _ => self.put(field, value.into()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_string(),
            "request_id" => self.name = (!value.is_empty()).then(|| value.into()),
            _ => self.put(field, value.into()),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}").into()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io;
    use std::sync::mpsc;

    use tracing::{error, info};

    use super::*;

    /// What is written when `log` logs.
    fn written(format: Format, names: &Names, log: impl FnOnce()) -> String {
        #[derive(Clone)]
        struct To(mpsc::Sender<Vec<u8>>);
        impl io::Write for To {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.to_vec()).unwrap();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, receiver) = mpsc::channel();
        let to = To(sender);
        let log_lines = tracing_subscriber::fmt()
            .event_format(Lines {
                names: names.clone(),
                format,
            })
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(log_lines, log);
        let pieces: Vec<_> = receiver.try_iter().collect();
        assert!(pieces.len() < 2, "a line is written at once");
        String::from_utf8(pieces.concat()).unwrap()
    }

    #[test]
    fn text_line_is_one_record_with_the_request_id() {
        let names = Names::default();
        let _named = names.name(7, "a-1");
        let _other = names.name(8, "a-2");
        let line = written(Format::Text, &names, || {
            info!(target: "php", request_id = 7u64, pid = 3, "one\n#0 two");
        });
        let mut parts = line.splitn(2, '\t');
        let timestamp = parts.next().unwrap();
        assert!(
            timestamp.ends_with('Z') && timestamp.contains('T'),
            "{line}"
        );
        assert_eq!(parts.next().unwrap(), "a-1\tINFO\tone\r#0 two pid=3\n");
    }

    #[test]
    fn json_line_has_the_keys_that_lambda_filters() {
        let names = Names::default();
        let named = names.name(7, "a-1");
        let json = |log: fn()| -> Value {
            serde_json::from_str(&written(Format::Json, &names, log)).unwrap()
        };
        let line = json(|| error!(request_id = 7u64, status = 500, "no\nanswer"));
        assert_eq!(line["level"], "ERROR");
        assert_eq!(line["message"], "no\nanswer");
        assert_eq!(line["requestId"], "a-1");
        assert_eq!(line["status"], 500);
        assert!(line["timestamp"].is_string());
        assert_eq!(json(|| info!("x"))["requestId"], "a-1", "the only one");
        assert!(
            json(|| info!(request_id = 7u64, "x"))
                .get("record")
                .is_none()
        );
        named.record(8, "m-1");
        let line = json(|| info!(request_id = 8u64, "x"));
        assert_eq!(line["requestId"], "a-1");
        assert_eq!(line["record"], "m-1");
        assert_eq!(
            json(|| info!("x"))["requestId"],
            "a-1",
            "still the only one"
        );
        let other = names.name(9, "a-2");
        assert!(json(|| info!("x")).get("requestId").is_none());
        drop(other);
        assert_eq!(json(|| info!(request_id = "b", "x"))["requestId"], "b");
        drop(named);
        assert!(json(|| info!("x")).get("requestId").is_none());
    }

    #[test]
    fn json_written_by_php_stays_one_object() {
        let line = written(Format::Json, &Names::default(), || {
            let text = r#"{"message":"hi","level":"DEBUG","context":{"a":1}}"#;
            info!(target: "php", request_id = 1u64, "{text}");
        });
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["message"], "hi");
        assert_eq!(line["level"], "DEBUG");
        assert_eq!(line["context"]["a"], 1);
        assert!(line["timestamp"].is_string());
    }
}
