//! Interface of a table of jobs for the database's thread.

use std::time::{Duration, SystemTime};

use anyhow::Context;

use super::connection::{Connection, Row, Value};
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};

/// The row of a job that is released.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReleasedRow {
    /// A new one behind the others, as Laravel writes it.
    New,
    /// The same.
    Same,
    /// The same, with the payload that the job has now: a worker of RoadRunner may have changed it.
    Rewritten,
}

/// The tables of jobs of an open database, in one format.
pub trait JobTable {
    fn connection(&mut self) -> &mut dyn Connection;

    /// Which of these queues have jobs that are due, without a lock: usually they are empty.
    fn filled(&mut self, queues: &[(&str, Duration)]) -> anyhow::Result<Vec<bool>>;

    /// Reserves up to `most` jobs, the oldest first, also those whose reservation has expired.
    fn receive(&mut self, queue: &str, lease: Duration, most: usize) -> anyhow::Result<Vec<Job>>;

    /// How long until the next job of a queue is due that is delayed or reserved.
    fn next_due(&mut self, queue: &str, lease: Duration) -> Duration;

    fn depth(&mut self, queue: &str) -> anyhow::Result<Depth>;

    /// Extends reservations, and returns those that this process has lost.
    fn extend(&mut self, leases: &[Lease]) -> anyhow::Result<Vec<Lease>>;

    /// Ends the reservations of jobs that are done.
    fn delete_done(&mut self, leases: &[&Lease]) -> anyhow::Result<()>;

    /// Ends a reservation.
    fn settle_one(
        &mut self,
        queue: &str,
        connection: &str,
        job: &Job,
        disposition: &Disposition,
        released: ReleasedRow,
    ) -> anyhow::Result<()>;

    /// Lists the failed jobs of a queue, or retries or forgets one. Returns those concerned.
    fn failures(&mut self, queue: &str, requested: &Failures) -> anyhow::Result<Vec<FailedJob>>;
}

/// Deletes the rows of jobs that are done.
pub(super) fn delete(
    connection: &mut dyn Connection,
    table: &str,
    leases: &[&Lease],
) -> anyhow::Result<()> {
    let ids: Vec<_> = leases.iter().filter_map(|it| it.id.parse().ok()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let (list, ids) = id_list(&ids);
    let sql = format!("delete from {table} where id in ({list})");
    connection.execute(&sql, &ids).map(drop)
}

/// Queues of one query. SQLite takes 500.
const MAX_QUEUES: usize = 100;

/// Which queues have jobs that are due: a condition, and its values for each queue.
pub fn filled(
    connection: &mut dyn Connection,
    table: &str,
    due: &str,
    values: &[[Value<'_>; 3]],
) -> anyhow::Result<Vec<bool>> {
    let mut filled = vec![false; values.len()];
    for (start, some) in values.chunks(MAX_QUEUES).enumerate() {
        let start = start * MAX_QUEUES;
        let selects: Vec<_> = (0..some.len())
            .map(|at| {
                format!("select {at} from (select id from {table} where {due} limit 1) q{at}")
            })
            .collect();
        let rows = connection.query(&selects.join(" union all "), &some.concat())?;
        let found = rows.iter().filter_map(|row| number(row, 0));
        for at in found.filter_map(|at| usize::try_from(at).ok()) {
            if let Some(filled) = filled.get_mut(start + at) {
                *filled = true;
            }
        }
    }
    Ok(filled)
}

/// Runs changes in one transaction.
pub fn in_transaction<J: JobTable + ?Sized, T>(
    table: &mut J,
    run: impl FnOnce(&mut J) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let begin = table.connection().dialect().begin;
    table.connection().run(begin)?;
    let done = run(table).and_then(|done| {
        table.connection().run("commit")?;
        Ok(done)
    });
    if done.is_err() {
        table.connection().roll_back()?;
    }
    done
}

pub fn id(lease: &Lease) -> anyhow::Result<Value<'static>> {
    let id = lease.id.parse().map(Value::Number);
    id.context("a job's id is not a number")
}

pub fn number(row: &Row, column: usize) -> Option<i64> {
    let cell = row.get(column)?.as_deref()?;
    std::str::from_utf8(cell).ok()?.parse().ok()
}

/// Placeholders for ids, and the ids. The last one is repeated, so that few lengths occur and
/// databases prepare few statements.
pub fn id_list(ids: &[i64]) -> (String, Vec<Value<'static>>) {
    let length = ids.len().next_power_of_two();
    let repeated = ids.iter().chain(std::iter::repeat(&ids[ids.len() - 1]));
    let values = repeated.take(length).map(|id| Value::Number(*id));
    (vec!["?"; length].join(", "), values.collect())
}

/// The time after a pause, in whole seconds since 1970.
pub fn after(pause: &Duration) -> i64 {
    now().saturating_add_unsigned(pause.as_millis().div_ceil(1000) as u64)
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs() as i64)
}
