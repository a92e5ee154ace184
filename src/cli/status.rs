//! `surus status`: shows the workers of a running surus.

use http::Method;

use super::options::Project;
use crate::cli::running;
use crate::cli::stdout::{self, say};
use crate::observe::status::EngineStatus;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: Project,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let mut engines: Vec<EngineStatus> = Vec::new();
    for (_, text) in running::ask(&args.project, &Method::GET, "/-/status")? {
        engines.extend(serde_json::from_str::<Vec<_>>(&text)?);
    }
    if args.json {
        say!("{}", serde_json::to_string(&engines)?);
        return Ok(());
    }
    for engine in engines {
        stdout::print(table(&engine));
    }
    Ok(())
}

pub fn table(engine: &EngineStatus) -> String {
    let instead = engine
        .instead
        .as_ref()
        .map(|instead| format!(" (the application cannot be booted, `{instead}` serves it)"));
    let mut text = format!(
        "{}{}: PHP {}, generation {}, {} waiting\n{:>8}  {:<10}{:>10}{:>10}{:>10}  {}\n",
        engine.engine,
        instead.unwrap_or_default(),
        engine.php,
        engine.generation,
        engine.queued,
        "PID",
        "STATE",
        "FOR",
        "SERVED",
        "MEMORY",
        "REQUEST"
    );
    for worker in &engine.workers {
        let state = format!("{:?}", worker.state).to_lowercase();
        let memory = if worker.memory == 0 {
            "-".into()
        } else {
            format!("{:.1}M", worker.memory as f64 / 1048576.0)
        };
        let row = format!(
            "{:>8}  {:<10}{:>10}{:>10}{:>10}  {}",
            worker.pid,
            state,
            duration(worker.for_ms),
            worker.served,
            memory,
            worker.request.as_deref().unwrap_or_default()
        );
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

pub fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => format!("{:.1}s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::status::{WorkerState, WorkerStatus};

    #[test]
    fn table_columns_are_aligned() {
        let status = EngineStatus {
            engine: "classic".into(),
            instead: None,
            php: "8.2.35".into(),
            generation: 1,
            queued: 3,
            workers: vec![
                WorkerStatus {
                    pid: 12,
                    state: WorkerState::Idle,
                    for_ms: 90_000,
                    served: 7,
                    memory: 0,
                    request: None,
                },
                WorkerStatus {
                    pid: 123456,
                    state: WorkerState::Busy,
                    for_ms: 1234,
                    served: 12345,
                    memory: 12 << 20,
                    request: Some("GET /slow".into()),
                },
            ],
        };
        assert_eq!(
            table(&status),
            "classic: PHP 8.2.35, generation 1, 3 waiting\n\
             \x20    PID  STATE            FOR    SERVED    MEMORY  REQUEST\n\
             \x20     12  idle           1m30s         7         -\n\
             \x20 123456  busy            1.2s     12345     12.0M  GET /slow\n"
        );
    }
}
