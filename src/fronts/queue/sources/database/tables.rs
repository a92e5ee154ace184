//! Laravel's tables `jobs` and `failed_jobs`, written as `Illuminate\Queue\DatabaseQueue` and its
//! failed-job providers write them.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::connection::{Connection, Value};
use super::job_table::{
    JobTable, ReleasedRow, after, delete, filled, id, id_list, in_transaction, now, number,
};
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};

/// How long a job rests that should be buried while there is no table for it.
const NO_TABLE: i64 = 3600;
/// The condition of jobs of a queue that are due, also those whose reservation has expired.
const DUE: &str = "queue = ? and ((reserved_at is null and available_at <= ?) or reserved_at <= ?)";

/// The tables of an open database.
pub struct OpenTables {
    pub(super) connection: Box<dyn Connection>,
    jobs: String,
    pub(super) failed: String,
    /// The columns of the table of failed jobs; None if there is no such table.
    pub(super) failed_columns: Option<Vec<String>>,
    /// The expression of a payload that is null if it is too long to be read.
    pub(super) payload: String,
    /// The largest number of attempts that fits into the column.
    most_attempts: i64,
}

/// A due job: its id, its payload, and its attempts before this one.
struct Due {
    id: i64,
    payload: Vec<u8>,
    attempts: i64,
}

impl OpenTables {
    pub fn open(
        mut connection: Box<dyn Connection>,
        jobs: &str,
        failed: &str,
        max_payload: u64,
    ) -> anyhow::Result<OpenTables> {
        let name = connection.name();
        let known = connection
            .columns(jobs)
            .with_context(|| format!("cannot read {name}"))?;
        ensure!(
            !known.is_empty(),
            "{name} has no table {jobs}; create it (php artisan queue:table, php artisan migrate) \
             or name another in queue.table"
        );
        for column in [
            "id",
            "queue",
            "payload",
            "attempts",
            "reserved_at",
            "available_at",
        ] {
            ensure!(
                known.iter().any(|(name, _)| name == column),
                "the table {jobs} of {name} has no column {column}, so it is not a table of \
                 Laravel's jobs"
            );
        }
        let columns = connection.columns(failed)?;
        let columns: Vec<_> = columns.into_iter().map(|(name, _)| name).collect();
        let quoted = connection.dialect().quoted;
        Ok(OpenTables {
            failed_columns: (!columns.is_empty()).then_some(columns),
            payload: format!(
                "case when octet_length(payload) <= {} then payload end",
                max_payload
            ),
            connection,
            jobs: quoted(jobs),
            failed: quoted(failed),
            most_attempts: most_attempts(&known),
        })
    }

    fn available(
        &mut self,
        queue: &str,
        lease: Duration,
        most: usize,
        lock: &str,
    ) -> anyhow::Result<Vec<Due>> {
        let sql = format!(
            "select id, {}, attempts from {} where {DUE} order by id asc limit ?{lock}",
            self.payload, self.jobs
        );
        let mut values = due(queue, lease, now()).to_vec();
        values.push(Value::Number(most as i64));
        let rows = self.connection.query(&sql, &values)?;
        let jobs = rows.into_iter().map(|mut row| {
            let payload = row.get_mut(1).and_then(Option::take);
            let (id, attempts) = (number(&row, 0), number(&row, 2));
            Ok(Due {
                id: id.context("a job's id is not a number")?,
                payload: payload.unwrap_or_default(),
                attempts: attempts.unwrap_or_default(),
            })
        });
        jobs.collect()
    }

    /// Deletes a job if the reservation is still this process's, and returns whether it is.
    fn delete(&mut self, job: &Job) -> anyhow::Result<bool> {
        let sql = format!("delete from {} where id = ? and attempts = ?", self.jobs);
        let values = [id(&job.lease)?, token(&job.lease)?];
        Ok(self.connection.execute(&sql, &values)? > 0)
    }

    fn put_back(
        &mut self,
        job: &Job,
        available_at: i64,
        attempts: u32,
        keeps_time: bool,
    ) -> anyhow::Result<()> {
        let available = match keeps_time {
            true => format!("{}(available_at, ?)", self.connection.dialect().least),
            false => "?".into(),
        };
        let sql = format!(
            "update {} set reserved_at = null, available_at = {available}, attempts = ? \
             where id = ? and attempts = ?",
            self.jobs
        );
        let values = [
            Value::Number(available_at),
            // Jobs of a group run again without another reservation.
            Value::Number(self.most_attempts.min(attempts.into())),
            id(&job.lease)?,
            token(&job.lease)?,
        ];
        self.connection.execute(&sql, &values).map(drop)
    }

    /// Writes the payload of a job. One that is not UTF-8 has not changed.
    fn rewrite(&mut self, job: &Job) -> anyhow::Result<()> {
        if std::str::from_utf8(&job.payload).is_err() {
            return Ok(());
        }
        let sql = format!(
            "update {} set payload = ? where id = ? and attempts = ?",
            self.jobs
        );
        let values = [
            Value::Text(&job.payload),
            id(&job.lease)?,
            token(&job.lease)?,
        ];
        self.connection.execute(&sql, &values).map(drop)
    }

    pub(super) fn insert(
        &mut self,
        queue: &str,
        job: &Job,
        available_at: i64,
    ) -> anyhow::Result<()> {
        let sql = format!(
            "insert into {} (queue, attempts, reserved_at, available_at, created_at, payload) \
             values (?, ?, null, ?, ?, ?)",
            self.jobs
        );
        let values = [
            Value::from(queue),
            Value::Number(job.attempts.into()),
            Value::Number(available_at),
            Value::Number(now()),
            Value::Text(&job.payload),
        ];
        self.connection.execute(&sql, &values).map(drop)
    }

    /// Moves a job to the table of failed jobs. Without that table it stays, and rests for an hour.
    fn bury(&mut self, queue: &str, connection: &str, job: &Job, why: &str) -> anyhow::Result<()> {
        let Some(columns) = &self.failed_columns else {
            tracing::error!(
                queue,
                job = job.lease.id,
                table = self.failed,
                "no table for failed jobs (queue.failed_table); the job stays and runs again in an \
                 hour"
            );
            return self.put_back(job, now() + NO_TABLE, job.attempts, false);
        };
        let has_uuid = columns.iter().any(|column| column == "uuid");
        let is_unread = job.payload.is_empty();
        if !is_unread && !self.delete(job)? {
            return Ok(());
        }
        let uuid = match uuid(&job.payload) {
            Some(uuid) if has_uuid && !self.is_buried(&uuid)? => uuid,
            _ => random_uuid(),
        };
        let (column, value) = match has_uuid {
            true => (", uuid", ", ?"),
            false => ("", ""),
        };
        let into = format!(
            "insert into {} (connection, queue, payload, exception, failed_at{column})",
            self.failed
        );
        let utc = self.connection.dialect().utc;
        if is_unread {
            // The database copies what this process does not read.
            let sql = format!(
                "{into} select ?, ?, payload, ?, {utc}{value} from {} \
                 where id = ? and attempts = ?",
                self.jobs
            );
            let mut values = [connection, queue, why].map(Value::from).to_vec();
            if has_uuid {
                values.push(Value::from(&*uuid));
            }
            values.extend([id(&job.lease)?, token(&job.lease)?]);
            self.connection.execute(&sql, &values)?;
            return self.delete(job).map(drop);
        }
        let sql = format!("{into} values (?, ?, ?, ?, {utc}{value})");
        let mut values = vec![
            Value::from(connection),
            Value::from(queue),
            Value::Text(&job.payload),
            Value::from(why),
        ];
        if has_uuid {
            values.push(Value::from(&*uuid));
        }
        self.connection.execute(&sql, &values).map(drop)
    }

    fn is_buried(&mut self, uuid: &str) -> anyhow::Result<bool> {
        let sql = format!("select 1 from {} where uuid = ?", self.failed);
        let found = self.connection.query(&sql, &[Value::from(uuid)])?;
        Ok(!found.is_empty())
    }
}

impl JobTable for OpenTables {
    fn connection(&mut self) -> &mut dyn Connection {
        &mut *self.connection
    }

    fn failures(&mut self, queue: &str, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        self.failed_jobs(queue, requested)
    }

    fn filled(&mut self, queues: &[(&str, Duration)]) -> anyhow::Result<Vec<bool>> {
        let now = now();
        let values: Vec<_> = queues
            .iter()
            .map(|(queue, lease)| due(queue, *lease, now))
            .collect();
        filled(&mut *self.connection, &self.jobs, DUE, &values)
    }

    fn receive(&mut self, queue: &str, lease: Duration, most: usize) -> anyhow::Result<Vec<Job>> {
        let lock = self.connection.dialect().lock;
        in_transaction(self, |open| {
            let found = open.available(queue, lease, most, lock)?;
            if found.is_empty() {
                return Ok(Vec::new());
            }
            let ids: Vec<_> = found.iter().map(|due| due.id).collect();
            let (list, ids) = id_list(&ids);
            let least = open.connection.dialect().least;
            let sql = format!(
                "update {} set reserved_at = ?, attempts = {least}(attempts + 1, {}) \
                 where id in ({list})",
                open.jobs, open.most_attempts
            );
            let values: Vec<_> = [Value::Number(now())].into_iter().chain(ids).collect();
            open.connection.execute(&sql, &values)?;
            let jobs = found.into_iter().map(|due| {
                let attempts = open.most_attempts.min(due.attempts + 1);
                Job {
                    lease: Lease {
                        id: due.id.to_string(),
                        token: attempts.to_string().into(),
                    },
                    unread: None,
                    payload: due.payload.into(),
                    attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                }
            });
            Ok(jobs.collect())
        })
    }

    fn next_due(&mut self, queue: &str, lease: Duration) -> Duration {
        let sql = format!(
            "select min(case when reserved_at is null then available_at else reserved_at + ? end) \
             from {} where queue = ?",
            self.jobs
        );
        let values = [Value::Number(lease.as_secs() as i64), Value::from(queue)];
        let rows = self.connection.query(&sql, &values).unwrap_or_default();
        let due = rows.first().and_then(|row| number(row, 0));
        let due = due.and_then(|due| u64::try_from(due).ok());
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        match (due, epoch) {
            (Some(due), Ok(now)) => Duration::from_secs(due).saturating_sub(now),
            _ => Duration::MAX,
        }
    }

    fn depth(&mut self, queue: &str) -> anyhow::Result<Depth> {
        let due = "reserved_at is null and available_at <= ?";
        let sql = format!(
            "select count(case when {due} then 1 end), \
             count(case when reserved_at is null and available_at > ? then 1 end), \
             count(reserved_at), min(case when {due} then available_at end) \
             from {} where queue = ?",
            self.jobs
        );
        let now = now();
        let at = Value::Number(now);
        let rows = self
            .connection
            .query(&sql, &[at, at, at, Value::from(queue)])?;
        let count = |column| {
            let counted = rows.first().and_then(|row| number(row, column));
            counted.and_then(|it| u64::try_from(it).ok())
        };
        let oldest = rows.first().and_then(|row| number(row, 3));
        Ok(Depth {
            waiting: count(0).unwrap_or_default(),
            delayed: count(1).unwrap_or_default(),
            reserved: count(2).unwrap_or_default(),
            oldest: oldest.and_then(|at| u64::try_from(now - at).ok()),
        })
    }

    fn extend(&mut self, leases: &[Lease]) -> anyhow::Result<Vec<Lease>> {
        let sql = format!(
            "update {} set reserved_at = ? \
             where id = ? and attempts = ? and reserved_at is not null",
            self.jobs
        );
        let mut lost = Vec::new();
        for lease in leases {
            let values = [Value::Number(now()), id(lease)?, token(lease)?];
            if self.connection.execute(&sql, &values)? == 0 {
                lost.push(lease.clone());
            }
        }
        Ok(lost)
    }

    fn delete_done(&mut self, leases: &[&Lease]) -> anyhow::Result<()> {
        delete(&mut *self.connection, &self.jobs, leases)
    }

    fn settle_one(
        &mut self,
        queue: &str,
        connection: &str,
        job: &Job,
        disposition: &Disposition,
        released: ReleasedRow,
    ) -> anyhow::Result<()> {
        match disposition {
            Disposition::Done => self.delete_done(&[&job.lease]),
            Disposition::Return => self.put_back(job, now(), job.attempts.saturating_sub(1), true),
            Disposition::Interrupt => self.put_back(job, now(), job.attempts, true),
            Disposition::Postpone(pause) => {
                self.put_back(job, after(pause), job.attempts.saturating_sub(1), false)
            }
            Disposition::Release(pause) => {
                let at = after(pause);
                match released {
                    ReleasedRow::New if self.delete(job)? => self.insert(queue, job, at),
                    ReleasedRow::New => Ok(()),
                    ReleasedRow::Same => self.put_back(job, at, job.attempts, false),
                    ReleasedRow::Rewritten => {
                        self.rewrite(job)?;
                        self.put_back(job, at, job.attempts, false)
                    }
                }
            }
            Disposition::Bury(why) => self.bury(queue, connection, job, why),
        }
    }
}

/// The values of [`DUE`].
fn due(queue: &str, lease: Duration, now: i64) -> [Value<'_>; 3] {
    let expired = now - lease.as_secs() as i64;
    [
        Value::from(queue),
        Value::Number(now),
        Value::Number(expired),
    ]
}

fn token(lease: &Lease) -> anyhow::Result<Value<'static>> {
    let token = std::str::from_utf8(&lease.token)?;
    Ok(Value::Number(token.parse()?))
}

/// MySQL refuses numbers that are too large for their column, which would end the whole queue.
fn most_attempts(columns: &[(String, String)]) -> i64 {
    let found = columns.iter().find(|(name, _)| name == "attempts");
    let kind = found.map_or("", |(_, kind)| kind);
    match kind.to_ascii_lowercase() {
        kind if kind.starts_with("tinyint") && kind.contains("unsigned") => u8::MAX.into(),
        kind if kind.starts_with("tinyint") => i8::MAX.into(),
        kind if kind.starts_with("smallint") => i16::MAX.into(),
        _ => i32::MAX.into(),
    }
}

fn random_uuid() -> String {
    // Each state of the standard library's hash maps has random keys.
    let random = || RandomState::new().hash_one(0);
    let hex = format!("{:016x}{:016x}", random(), random());
    let (a, b, c, d, e) = (
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..],
    );
    format!("{a}-{b}-4{c}-a{d}-{e}")
}

fn uuid(payload: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Payload {
        uuid: String,
    }
    serde_json::from_slice::<Payload>(payload)
        .ok()
        .map(|payload| payload.uuid)
}
