//! Laravel's tables `jobs` and `failed_jobs`, written as `Illuminate\Queue\DatabaseQueue` and its
//! failed-job providers write them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Deserialize;

use super::Tables;
use crate::fronts::queue::job::{Depth, Fate, Job, Lease};

/// How long to wait for another process that writes.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a job rests that should be buried while there is no table for it.
const NO_TABLE: i64 = 3600;

/// An open database.
pub struct OpenTables {
    pub(super) connection: Connection,
    jobs: String,
    pub(super) failed: String,
    /// The columns of the table of failed jobs; None if there is no such table.
    pub(super) failed_columns: Option<Vec<String>>,
}

impl OpenTables {
    pub fn open(file: &Path, tables: &Tables) -> anyhow::Result<OpenTables> {
        let path = file.display();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags)
            .with_context(|| format!("cannot open the database {path}"))?;
        connection.busy_timeout(TIMEOUT)?;
        let columns = |table: &str| columns(&connection, table);
        let known = columns(&tables.jobs).with_context(|| format!("cannot read {path}"))?;
        ensure!(
            !known.is_empty(),
            "{path} has no table {}; create it (php artisan queue:table, php artisan migrate) or \
             name another in queue.table",
            tables.jobs
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
                known.iter().any(|name| name == column),
                "the table {} of {path} has no column {column}, so it is not a table of Laravel's \
                 jobs",
                tables.jobs
            );
        }
        let failed = columns(&tables.failed)?;
        Ok(OpenTables {
            failed_columns: (!failed.is_empty()).then_some(failed),
            connection,
            jobs: quoted(&tables.jobs),
            failed: quoted(&tables.failed),
        })
    }

    /// Runs changes in one transaction.
    pub fn in_transaction<T>(
        &mut self,
        run: impl FnOnce(&mut OpenTables) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        // A transaction that began as a reader could not become a writer.
        self.connection.execute_batch("begin immediate")?;
        let done = run(self).and_then(|done| {
            self.connection.execute_batch("commit")?;
            Ok(done)
        });
        if done.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("rollback")?;
        }
        done
    }

    /// Reserves up to `most` jobs, the oldest first, also those whose reservation has expired.
    pub fn receive(
        &mut self,
        queue: &str,
        lease: Duration,
        most: usize,
    ) -> anyhow::Result<Vec<Job>> {
        // Without a lock first: usually a queue is empty.
        if self.available(queue, lease, 1)?.is_empty() {
            return Ok(Vec::new());
        }
        self.in_transaction(|open| {
            let found = open.available(queue, lease, most)?;
            let sql = format!(
                "update {} set reserved_at = ?, attempts = attempts + 1 where id = ?",
                open.jobs
            );
            let mut reserve = open.connection.prepare_cached(&sql)?;
            for (id, _, _) in &found {
                reserve.execute(params![now(), id])?;
            }
            let jobs = found.into_iter().map(|(id, payload, attempts)| Job {
                lease: Lease {
                    id: id.to_string(),
                    token: (attempts + 1).to_string().into(),
                },
                payload: payload.into(),
                attempts: attempts as u32 + 1,
            });
            Ok(jobs.collect())
        })
    }

    fn available(
        &self,
        queue: &str,
        lease: Duration,
        most: usize,
    ) -> anyhow::Result<Vec<(i64, Vec<u8>, i64)>> {
        let sql = format!(
            "select id, cast(payload as blob), attempts from {} where queue = ? and \
             ((reserved_at is null and available_at <= ?) or reserved_at <= ?) \
             order by id asc limit ?",
            self.jobs
        );
        let mut select = self.connection.prepare_cached(&sql)?;
        let now = now();
        let expired = now - lease.as_secs() as i64;
        let rows = select.query_map(params![queue, now, expired, most as i64], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How long until the next job of a queue is due that is delayed or reserved.
    pub fn next_due(&self, queue: &str, lease: Duration) -> Duration {
        let sql = format!(
            "select min(case when reserved_at is null then available_at else reserved_at + ? end) \
             from {} where queue = ?",
            self.jobs
        );
        let due = self.connection.prepare_cached(&sql).and_then(|mut select| {
            select.query_row(params![lease.as_secs() as i64, queue], |row| {
                row.get::<_, Option<i64>>(0)
            })
        });
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let due = due.ok().flatten().and_then(|due| u64::try_from(due).ok());
        match (due, epoch) {
            (Some(due), Ok(now)) => Duration::from_secs(due).saturating_sub(now),
            _ => Duration::MAX,
        }
    }

    pub fn depth(&self, queue: &str) -> anyhow::Result<Depth> {
        let sql = format!(
            "select count(*) filter (where reserved_at is null and available_at <= ?1), \
             count(*) filter (where reserved_at is null and available_at > ?1), \
             count(reserved_at), \
             ?1 - min(available_at) filter (where reserved_at is null and available_at <= ?1) \
             from {} where queue = ?2",
            self.jobs
        );
        let mut select = self.connection.prepare_cached(&sql)?;
        let depth = select.query_row(params![now(), queue], |row| {
            let number = |column| {
                let number = row.get::<_, Option<i64>>(column);
                number.map(|number| number.and_then(|it| u64::try_from(it).ok()))
            };
            Ok(Depth {
                waiting: number(0)?.unwrap_or_default(),
                delayed: number(1)?.unwrap_or_default(),
                reserved: number(2)?.unwrap_or_default(),
                oldest: number(3)?,
            })
        });
        Ok(depth?)
    }

    /// Extends reservations, and returns those that are no longer this process's.
    pub fn extend(&self, leases: &[Lease]) -> anyhow::Result<Vec<Lease>> {
        let sql = format!(
            "update {} set reserved_at = ? \
             where id = ? and attempts = cast(? as integer) and reserved_at is not null",
            self.jobs
        );
        let mut update = self.connection.prepare_cached(&sql)?;
        let mut lost = Vec::new();
        for lease in leases {
            let changed = update.execute(params![now(), lease.id, &lease.token[..]])?;
            if changed == 0 {
                lost.push(lease.clone());
            }
        }
        Ok(lost)
    }

    /// Ends a reservation.
    pub fn settle_one(
        &self,
        queue: &str,
        connection: &str,
        job: &Job,
        fate: &Fate,
        moves_released: bool,
    ) -> anyhow::Result<()> {
        match fate {
            Fate::Done => self.delete(job, false).map(drop),
            Fate::Return => self.put_back(job, now(), job.attempts.saturating_sub(1), true),
            Fate::Interrupt => self.put_back(job, now(), job.attempts, true),
            Fate::Release(pause) => {
                let at = now().saturating_add_unsigned(pause.as_millis().div_ceil(1000) as u64);
                match moves_released {
                    // As Laravel does.
                    true if self.delete(job, true)? => self.insert(queue, job, at),
                    true => Ok(()),
                    false => self.put_back(job, at, job.attempts, false),
                }
            }
            Fate::Bury(why) => self.bury(queue, connection, job, why),
        }
    }

    /// Whether there was a row. `is_ours`: only if the reservation is still this process's.
    fn delete(&self, job: &Job, is_ours: bool) -> anyhow::Result<bool> {
        let sql = format!(
            "delete from {} where id = ? and (attempts = cast(? as integer) or ?)",
            self.jobs
        );
        let mut delete = self.connection.prepare_cached(&sql)?;
        let token = &job.lease.token[..];
        Ok(delete.execute(params![job.lease.id, token, !is_ours])? > 0)
    }

    fn put_back(
        &self,
        job: &Job,
        available_at: i64,
        attempts: u32,
        keeps_time: bool,
    ) -> anyhow::Result<()> {
        let sql = format!(
            "update {} set reserved_at = null, attempts = ?, \
             available_at = case when ? then min(available_at, ?) else ? end \
             where id = ? and attempts = cast(? as integer)",
            self.jobs
        );
        let mut update = self.connection.prepare_cached(&sql)?;
        update.execute(params![
            attempts,
            keeps_time,
            available_at,
            available_at,
            job.lease.id,
            &job.lease.token[..]
        ])?;
        Ok(())
    }

    pub(super) fn insert(&self, queue: &str, job: &Job, available_at: i64) -> anyhow::Result<()> {
        let sql = format!(
            "insert into {} (queue, attempts, reserved_at, available_at, created_at, payload) \
             values (?, ?, null, ?, ?, cast(? as text))",
            self.jobs
        );
        let mut insert = self.connection.prepare_cached(&sql)?;
        insert.execute(params![
            queue,
            job.attempts,
            available_at,
            now(),
            &job.payload[..]
        ])?;
        Ok(())
    }

    /// Moves a job to the table of failed jobs. Without that table it stays, and rests for an hour.
    fn bury(&self, queue: &str, connection: &str, job: &Job, why: &str) -> anyhow::Result<()> {
        let Some(columns) = &self.failed_columns else {
            tracing::error!(
                queue,
                job = job.lease.id,
                "there is no table {} for failed jobs (queue.failed_table), so the job stays and \
                 rests for an hour",
                self.failed
            );
            return self.put_back(job, now() + NO_TABLE, job.attempts, false);
        };
        if !self.delete(job, true)? {
            return Ok(());
        }
        let has_uuid = columns.iter().any(|column| column == "uuid");
        let uuid = match has_uuid {
            true => Some(match uuid(&job.payload) {
                Some(uuid) if !self.is_buried(&uuid)? => uuid,
                _ => self.random_uuid()?,
            }),
            false => None,
        };
        let (column, value) = match has_uuid {
            true => ("uuid, ", "?6, "),
            false => ("", ""),
        };
        let sql = format!(
            "insert into {} ({column}connection, queue, payload, exception, failed_at) values \
             ({value}?1, ?2, cast(?3 as text), ?4, datetime(?5, 'unixepoch'))",
            self.failed
        );
        let mut insert = self.connection.prepare_cached(&sql)?;
        let payload = &job.payload[..];
        match uuid {
            Some(uuid) => insert.execute(params![connection, queue, payload, why, now(), uuid])?,
            None => insert.execute(params![connection, queue, payload, why, now()])?,
        };
        Ok(())
    }

    fn is_buried(&self, uuid: &str) -> anyhow::Result<bool> {
        let sql = format!("select 1 from {} where uuid = ?", self.failed);
        let mut select = self.connection.prepare_cached(&sql)?;
        let found: Option<i64> = select.query_row([uuid], |row| row.get(0)).optional()?;
        Ok(found.is_some())
    }

    fn random_uuid(&self) -> anyhow::Result<String> {
        let sql = "select lower(hex(randomblob(16)))";
        let hex: String = self.connection.query_row(sql, [], |row| row.get(0))?;
        let (a, b, c, d, e) = (
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..],
        );
        Ok(format!("{a}-{b}-4{c}-a{d}-{e}"))
    }
}

/// The names of a table's columns; none if there is no such table.
fn columns(connection: &Connection, table: &str) -> anyhow::Result<Vec<String>> {
    if table.contains('\0') {
        bail!("a table's name has a NUL byte");
    }
    let mut select = connection.prepare("select name from pragma_table_info(?)")?;
    let names = select.query_map([table], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

fn quoted(table: &str) -> String {
    format!("\"{}\"", table.replace('"', "\"\""))
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

/// Seconds since 1970, as Laravel writes them.
pub(super) fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs() as i64)
}
