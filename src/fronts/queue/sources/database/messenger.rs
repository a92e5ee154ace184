//! The table of Symfony Messenger's Doctrine transport, written as its `Connection` writes it.
//!
//! A reservation is the time of its delivery in `delivered_at`. Messages that PHP cannot decode
//! move to a queue of their own.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::connection::{Connection, Value};
use super::failed::text_of;
use super::job_table::{
    JobTable, ReleasedRow, after, delete, filled, id, id_list, in_transaction, now, number,
};
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::messenger::{class, message, payload};

/// The condition of messages of a queue that are due, also those whose reservation has expired.
const DUE: &str = "queue_name = ? and (delivered_at is null or delivered_at < ?) \
                   and available_at <= ?";
/// Messenger marks rows in MySQL as done with this time, and deletes them later.
const DONE: &str = "9999-12-31 23:59:59";
const FORMAT: &str = "%Y-%m-%d %H:%M:%S";
/// Ends the names of queues of buried messages.
const BURIED: &str = "__failed";
/// The longest body of a failed message that is read for a list.
const SHOWN: u64 = 64 << 10;
/// The header with the reason for a burial, which Messenger ignores.
const REASON: &str = "surus-failure";

/// The table of an open database.
pub struct MessengerTable {
    connection: Box<dyn Connection>,
    table: String,
    zone: TimeZone,
    /// The longest message that is read, in bytes of body and headers.
    max_payload: u64,
    /// The newest extensions of reservations, by the first one: when, and the time as text.
    extended: HashMap<Lease, (i64, String)>,
    /// The longest lease, after which an extension is forgotten.
    longest: i64,
}

impl MessengerTable {
    pub fn open(
        mut connection: Box<dyn Connection>,
        table: &str,
        zone: &str,
        max_payload: u64,
    ) -> anyhow::Result<MessengerTable> {
        let name = connection.name();
        let known = connection
            .columns(table)
            .with_context(|| format!("cannot read {name}"))?;
        ensure!(
            !known.is_empty(),
            "{name} has no table {table}; create it (bin/console messenger:setup-transports)"
        );
        for column in [
            "id",
            "body",
            "headers",
            "queue_name",
            "available_at",
            "delivered_at",
        ] {
            ensure!(
                known.iter().any(|(name, _)| name == column),
                "the table {table} of {name} has no column {column}, so it is not a table of \
                 Messenger's"
            );
        }
        let zone = TimeZone::get(zone).with_context(|| {
            format!("PHP's time zone {zone:?} is not in /usr/share/zoneinfo (package tzdata)")
        })?;
        Ok(MessengerTable {
            table: (connection.dialect().quoted)(table),
            connection,
            zone,
            max_payload,
            extended: HashMap::new(),
            longest: 0,
        })
    }

    fn text(&self, seconds: i64) -> String {
        let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        let time = self.zone.to_datetime(time);
        time.strftime(FORMAT).to_string()
    }

    fn seconds(&self, text: &str) -> Option<i64> {
        // PostgreSQL and MySQL may add fractions.
        let time = DateTime::strptime(FORMAT, text.get(..19)?).ok()?;
        let time = self.zone.to_timestamp(time).ok()?;
        Some(time.as_second())
    }

    /// The values of [`DUE`] apart from the queue: the end of expired reservations, and now.
    fn times(&self, lease: Duration) -> [String; 2] {
        let now = now();
        [self.text(now - lease.as_secs() as i64), self.text(now)]
    }

    /// The values of [`HELD`]. The time of this process's reservation is between its first time and
    /// the newest extension, of which the database may know or not; another's begins after its end.
    fn held(&self, lease: &Lease) -> anyhow::Result<(Value<'static>, String, String)> {
        let first = std::str::from_utf8(&lease.token)?;
        let newest = self.extended.get(lease).map_or(first, |(_, time)| time);
        let (from, to) = (first.min(newest), first.max(newest));
        Ok((id(lease)?, from.into(), to.into()))
    }

    fn put_back(&mut self, job: &Job, available_at: Option<i64>) -> anyhow::Result<()> {
        let at = available_at.map(|at| self.text(at));
        let available = match at {
            Some(_) => ", available_at = ?",
            None => "",
        };
        let sql = format!(
            "update {} set delivered_at = null{available}{HELD}",
            self.table
        );
        let (id, from, to) = self.held(&job.lease)?;
        let at = at.iter().map(|at| Value::from(&**at));
        let values: Vec<_> = at
            .chain([id, Value::from(&*from), Value::from(&*to)])
            .collect();
        self.connection.execute(&sql, &values).map(drop)
    }

    /// Moves a message to the queue of buried ones.
    fn bury(&mut self, queue: &str, job: &Job, why: &str) -> anyhow::Result<()> {
        let sql = format!(
            "update {} set queue_name = ?, headers = coalesce(?, headers), \
             available_at = ?, delivered_at = null{HELD}",
            self.table
        );
        let headers = match job.payload.is_empty() {
            true => self.unread_headers(&job.lease, why)?,
            false => Some(with_reason(&job.payload, why)?),
        };
        let (queue, now) = (format!("{queue}{BURIED}"), self.text(now()));
        let (id, from, to) = self.held(&job.lease)?;
        let values = [
            Value::from(&*queue),
            headers.as_deref().map_or(Value::Null, Value::from),
            Value::from(&*now),
            id,
            Value::from(&*from),
            Value::from(&*to),
        ];
        self.connection.execute(&sql, &values).map(drop)
    }

    /// The headers of a message whose body is not read, with the reason. None if they are too long
    /// themselves.
    fn unread_headers(&mut self, lease: &Lease, why: &str) -> anyhow::Result<Option<String>> {
        let headers = bounded("headers", HEADERS, self.max_payload);
        let sql = format!("select {headers} from {} where id = ?", self.table);
        let rows = self.connection.query(&sql, &[id(lease)?])?;
        let Some(Some(headers)) = rows.first().and_then(|row| row.first()) else {
            return Ok(None);
        };
        let headers = String::from_utf8_lossy(headers);
        with_reason(&payload("", &headers), why).map(Some)
    }
}

/// A column, or null if something has more bytes than are read.
fn bounded(column: &str, length: &str, most: u64) -> String {
    format!("case when {length} <= {most} then {column} end")
}

const HEADERS: &str = "octet_length(headers)";
const MESSAGE: &str = "octet_length(body) + octet_length(headers)";

/// The headers of a message as JSON, with the reason for its burial.
fn with_reason(payload: &[u8], why: &str) -> anyhow::Result<String> {
    let mut headers = message(payload).headers;
    headers.insert(REASON.into(), why.into());
    Ok(serde_json::to_string(&headers)?)
}

/// The condition of a reservation of this process.
const HELD: &str = " where id = ? and delivered_at >= ? and delivered_at <= ?";

impl JobTable for MessengerTable {
    fn connection(&mut self) -> &mut dyn Connection {
        &mut *self.connection
    }

    fn filled(&mut self, queues: &[(&str, Duration)]) -> anyhow::Result<Vec<bool>> {
        let times: Vec<_> = queues.iter().map(|(_, lease)| self.times(*lease)).collect();
        let values: Vec<_> = queues
            .iter()
            .zip(&times)
            .map(|((queue, _), [expired, now])| [*queue, expired, now].map(Value::from))
            .collect();
        filled(&mut *self.connection, &self.table, DUE, &values)
    }

    fn receive(&mut self, queue: &str, lease: Duration, most: usize) -> anyhow::Result<Vec<Job>> {
        let lock = self.connection.dialect().lock;
        self.longest = self.longest.max(lease.as_secs() as i64);
        in_transaction(self, |open| {
            let [expired, now] = open.times(lease);
            let [body, headers] =
                ["body", "headers"].map(|it| bounded(it, MESSAGE, open.max_payload));
            let sql = format!(
                "select id, {body}, {headers} from {} where {DUE} \
                 order by available_at, id limit ?{lock}",
                open.table
            );
            let mut values = [queue, &expired, &now].map(Value::from).to_vec();
            values.push(Value::Number(most as i64));
            let rows = open.connection.query(&sql, &values)?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let ids = rows.iter().map(|row| number(row, 0));
            let ids: Option<Vec<_>> = ids.collect();
            let (list, ids) = id_list(&ids.context("a message's id is not a number")?);
            let sql = format!(
                "update {} set delivered_at = ? where id in ({list})",
                open.table
            );
            let values: Vec<_> = [Value::from(&*now)].into_iter().chain(ids).collect();
            open.connection.execute(&sql, &values)?;
            let jobs = rows.iter().map(|row| {
                let [id, body, headers] = [0, 1, 2].map(|column| text_of(row, column));
                let is_read = row.get(1).is_some_and(Option::is_some);
                Job {
                    lease: Lease {
                        id,
                        token: Bytes::from(now.clone()),
                    },
                    unread: None,
                    payload: match is_read {
                        true => payload(&body, &headers),
                        false => Bytes::new(),
                    },
                    attempts: 1,
                }
            });
            Ok(jobs.collect())
        })
    }

    fn next_due(&mut self, queue: &str, lease: Duration) -> Duration {
        let text = self.connection.dialect().text;
        let sql = format!(
            "select cast(min(available_at) as {text}), cast(min(delivered_at) as {text}) \
             from {} where queue_name = ? group by delivered_at is null",
            self.table
        );
        let rows = self.connection.query(&sql, &[Value::from(queue)]);
        let lease = lease.as_secs() as i64;
        let due = rows.unwrap_or_default().into_iter().filter_map(|row| {
            let time = |column| self.seconds(&text_of(&row, column));
            match row.get(1) {
                Some(Some(_)) => time(1).map(|delivered| delivered + lease + 1),
                _ => time(0),
            }
        });
        match due.min() {
            Some(due) => Duration::from_secs((due - now()).max(0).unsigned_abs()),
            None => Duration::MAX,
        }
    }

    fn depth(&mut self, queue: &str) -> anyhow::Result<Depth> {
        let text = self.connection.dialect().text;
        let due = "delivered_at is null and available_at <= ?";
        let sql = format!(
            "select count(case when {due} then 1 end), \
             count(case when delivered_at is null and available_at > ? then 1 end), \
             count(case when delivered_at < '{DONE}' then 1 end), \
             cast(min(case when {due} then available_at end) as {text}) \
             from {} where queue_name = ?",
            self.table
        );
        let now = now();
        let at = self.text(now);
        let at = Value::from(&*at);
        let rows = self
            .connection
            .query(&sql, &[at, at, at, Value::from(queue)])?;
        let count = |column| {
            let counted = rows.first().and_then(|row| number(row, column));
            counted.and_then(|it| u64::try_from(it).ok())
        };
        let oldest = rows.first().map(|row| text_of(row, 3));
        let oldest = oldest.and_then(|text| self.seconds(&text));
        Ok(Depth {
            waiting: count(0).unwrap_or_default(),
            delayed: count(1).unwrap_or_default(),
            reserved: count(2).unwrap_or_default(),
            oldest: oldest.and_then(|at| u64::try_from(now - at).ok()),
        })
    }

    fn extend(&mut self, leases: &[Lease]) -> anyhow::Result<Vec<Lease>> {
        let sql = format!("update {} set delivered_at = ?{HELD}", self.table);
        let now = now();
        let newest = self.text(now);
        let forgotten = now - 2 * self.longest;
        self.extended.retain(|_, (at, _)| *at > forgotten);
        let mut lost = Vec::new();
        for lease in leases {
            let (id, from, to) = self.held(lease)?;
            let [text, from, to] = [&*newest, &*from, &*to].map(Value::from);
            // Noted first: whether the transaction ends well is not known here.
            self.extended.insert(lease.clone(), (now, newest.clone()));
            if self.connection.execute(&sql, &[text, id, from, to])? == 0 {
                lost.push(lease.clone());
            }
        }
        Ok(lost)
    }

    fn delete_done(&mut self, leases: &[&Lease]) -> anyhow::Result<()> {
        delete(&mut *self.connection, &self.table, leases)
    }

    fn settle_one(
        &mut self,
        queue: &str,
        _: &str,
        job: &Job,
        disposition: &Disposition,
        _: ReleasedRow,
    ) -> anyhow::Result<()> {
        match disposition {
            Disposition::Done => self.delete_done(&[&job.lease]),
            Disposition::Return | Disposition::Interrupt => self.put_back(job, None),
            Disposition::Release(pause) | Disposition::Postpone(pause) => {
                self.put_back(job, Some(after(pause)))
            }
            Disposition::Bury(why) => self.bury(queue, job, why),
        }
    }

    fn failures(&mut self, queue: &str, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        in_transaction(self, |open| {
            let text = open.connection.dialect().text;
            // Only their class is shown.
            let body = bounded("body", "octet_length(body)", SHOWN.min(open.max_payload));
            let headers = bounded("headers", HEADERS, open.max_payload);
            let sql = format!(
                "select id, {body}, {headers}, cast(available_at as {text}) from {} \
                 where queue_name = ? order by id",
                open.table
            );
            let buried = format!("{queue}{BURIED}");
            let rows = open.connection.query(&sql, &[Value::from(&*buried)])?;
            let mut found = Vec::new();
            for row in rows {
                let row_id = number(&row, 0).context("a message's id is not a number")?;
                let [id, body, headers, failed_at] = [0, 1, 2, 3].map(|at| text_of(&row, at));
                if requested.id().is_some_and(|requested| requested != id) {
                    continue;
                }
                let payload = payload(&body, &headers);
                let mut headers = message(&payload).headers;
                let why = headers.remove(REASON);
                match requested {
                    Failures::List | Failures::Find(_) => {}
                    Failures::Retry(_) => {
                        let sql = format!(
                            "update {} set queue_name = ?, headers = coalesce(?, headers) \
                             where id = ?",
                            open.table
                        );
                        let headers = match (&why, headers.is_empty()) {
                            (None, _) => None,
                            // As PHP writes an empty array.
                            (_, true) => Some("[]".into()),
                            (_, false) => Some(serde_json::to_string(&headers)?),
                        };
                        let values = [
                            Value::from(queue),
                            headers.as_deref().map_or(Value::Null, Value::from),
                            Value::Number(row_id),
                        ];
                        open.connection.execute(&sql, &values)?;
                    }
                    Failures::Forget(_) => {
                        let sql = format!("delete from {} where id = ?", open.table);
                        open.connection.execute(&sql, &[Value::Number(row_id)])?;
                    }
                }
                // A message whose headers are too long to be read has no other reason.
                let reason = why.as_ref().and_then(|why| why.as_str());
                let why = reason.unwrap_or("its headers are longer than work.max_payload");
                let mut failed = FailedJob::new(id, queue, b"", why, failed_at);
                failed.class = class(&payload);
                found.push(failed);
            }
            Ok(found)
        })
    }
}
