//! Reports to `surus check` which queues `surus serve` would run.

use std::path::Path;
use std::sync::Arc;

use super::queues::{self, Group};
use super::{WorkPart, running};
use crate::cli::findings::Findings;
use crate::config::Config;
use crate::observe::metrics::Metrics;

impl WorkPart {
    /// Reports what would stop the start, and boots PHP as the queues do, with one worker. No
    /// broker is opened: some would create queues.
    pub async fn check(project: &Path, config: &Config, findings: &mut Findings) {
        let groups = match WorkPart::groups(project, config) {
            Ok(Some(groups)) => groups,
            Ok(None) => return,
            Err(error) => return findings.stop(&error),
        };
        let (settings, name) = running::find_work(project, config);
        let address = settings.address(&name);
        if !running::is_running(&address, project).await
            && let Err(error) = super::bind_admin(project, config)
        {
            findings.stop(&error);
        }
        for group in &groups {
            boot(project, config, group, findings).await;
        }
    }
}

async fn boot(project: &Path, config: &Config, group: &Group, findings: &Findings) {
    let jobs = group.names();
    let Some(php) = &group.php else {
        return findings.fine("queues", format_args!("{jobs}: commands"));
    };
    let metrics = Arc::new(Metrics::default());
    match queues::boot(project, config, php, 1, &metrics).await {
        Ok(runner) => {
            findings.fine("queues", format_args!("{jobs}: {php}"));
            runner.engine.drain().await;
        }
        Err(error) => findings.note(format_args!(
            "the queues ({jobs}) cannot boot, and Surus tries again until they can: {error:#}"
        )),
    }
}
