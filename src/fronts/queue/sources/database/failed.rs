//! The table of failed jobs, for operators.

use anyhow::{Context, ensure};
use bytes::Bytes;

use super::connection::{Row, Value};
use super::job_table::{in_transaction, now, number};
use super::tables::OpenTables;
use crate::fronts::queue::job::{FailedJob, Failures, Job, Lease};

impl OpenTables {
    /// Lists the failed jobs of a queue, or retries or forgets one. Returns those concerned.
    pub(super) fn failed_jobs(
        &mut self,
        queue: &str,
        requested: &Failures,
    ) -> anyhow::Result<Vec<FailedJob>> {
        let Some(columns) = &self.failed_columns else {
            return Ok(Vec::new());
        };
        let has_uuid = columns.iter().any(|column| column == "uuid");
        let id = if has_uuid { "uuid" } else { "id" };
        in_transaction(self, |open| {
            let text = open.connection.dialect().text;
            let (only, values) = match requested.id() {
                None => (String::new(), vec![Value::from(queue)]),
                Some(requested) => (
                    format!("and cast({id} as {text}) = ? "),
                    vec![Value::from(queue), Value::from(requested)],
                ),
            };
            let sql = format!(
                "select id, cast({id} as {text}), {}, exception, \
                 cast(failed_at as {text}) from {} where queue = ? {only}order by id",
                open.payload, open.failed
            );
            let rows = open.connection.query(&sql, &values)?;
            let mut found = Vec::new();
            for row in rows {
                let row_id = number(&row, 0).context("a failed job's id is not a number")?;
                let payload = row.get(2).cloned().flatten().unwrap_or_default();
                let [id, why, failed_at] = [1, 3, 4].map(|column| text_of(&row, column));
                let failed = FailedJob::new(id, queue, &payload, &why, failed_at);
                if let Failures::Retry(_) = requested {
                    ensure!(
                        row.get(2).is_some_and(Option::is_some),
                        "the job {} is longer than work.max_payload",
                        failed.id
                    );
                    open.insert(queue, &again(&failed, payload), now())?;
                }
                if requested.is_change() {
                    let sql = format!("delete from {} where id = ?", open.failed);
                    open.connection.execute(&sql, &[Value::Number(row_id)])?;
                }
                found.push(failed);
            }
            Ok(found)
        })
    }
}

pub fn text_of(row: &Row, column: usize) -> String {
    let cell = row.get(column).and_then(Option::as_deref);
    String::from_utf8_lossy(cell.unwrap_or_default()).into_owned()
}

fn again(failed: &FailedJob, payload: Vec<u8>) -> Job {
    Job {
        lease: Lease {
            id: failed.id.clone(),
            token: Bytes::new(),
        },
        unread: None,
        payload: payload.into(),
        attempts: 0,
    }
}
