//! The table of failed jobs, for operators.

use bytes::Bytes;
use rusqlite::params;

use super::tables::OpenTables;
use crate::fronts::queue::job::{FailedJob, Failures, Job, Lease};

impl OpenTables {
    /// Lists the failed jobs of a queue, or retries or forgets one. Returns those concerned.
    pub fn failures(&mut self, queue: &str, asked: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        let Some(columns) = &self.failed_columns else {
            return Ok(Vec::new());
        };
        let has_uuid = columns.iter().any(|column| column == "uuid");
        let id = if has_uuid { "uuid" } else { "id" };
        self.in_transaction(|open| {
            let sql = format!(
                "select id, cast({id} as text), cast(payload as blob), cast(exception as text), \
                 cast(failed_at as text) from {} where queue = ?1 and (?2 is null or {id} = ?2) \
                 order by id",
                open.failed
            );
            let mut select = open.connection.prepare_cached(&sql)?;
            let rows = select.query_map(params![queue, asked.id()], |row| {
                let row_id: i64 = row.get(0)?;
                let payload: Vec<u8> = row.get(2)?;
                let (id, why, failed_at): (String, String, String) =
                    (row.get(1)?, row.get(3)?, row.get(4)?);
                let failed = FailedJob::new(id, queue, &payload, &why, failed_at);
                Ok((row_id, payload, failed))
            });
            let rows: Vec<_> = rows?.collect::<Result<_, _>>()?;
            for (row, payload, failed) in &rows {
                if let Failures::Retry(_) = asked {
                    open.insert(queue, &again(failed, payload), super::tables::now())?;
                }
                if asked.id().is_some() {
                    let sql = format!("delete from {} where id = ?", open.failed);
                    open.connection.execute(&sql, [row])?;
                }
            }
            Ok(rows.into_iter().map(|(_, _, failed)| failed).collect())
        })
    }
}

fn again(failed: &FailedJob, payload: &[u8]) -> Job {
    Job {
        lease: Lease {
            id: failed.id.clone(),
            token: Bytes::new(),
        },
        payload: Bytes::copy_from_slice(payload),
        attempts: 0,
    }
}
