//! The files, ports and sockets that the front end of a project reaches besides its listeners.

use std::path::PathBuf;

use anyhow::bail;
use surus_sys::confine::AccessRules;

use super::adopted_trees::Layout;
use super::engine_setup::PlannedPool;
use super::kept_versions::KeptVersion;
use super::site_plans::Plans;
use crate::config::Config;
use crate::config::reread::KEPT;
use crate::engines::{PoolPlan, external};
use crate::keeper;

/// The rights of the front end of a project.
pub fn reach(
    config: &Config,
    all: &[anyhow::Result<keeper::ServedDirectories>],
    plans: &[PlannedPool],
) -> anyhow::Result<AccessRules> {
    let mut reach = keeper::reach();
    for directories in all.iter().flatten() {
        let Layout { described, .. } = serde_json::from_slice(&directories.text)?;
        // The first descriptor is the socket to the opener.
        for (described, dir) in described.iter().zip(directories.fds.iter().skip(1)) {
            let path = PathBuf::from(&described.path);
            reach.trees.push((path, dir.try_clone()?));
        }
    }
    // A reload may find a project elsewhere. There, every file is opened by the opener.
    let spool = config.http.temp_dir.clone();
    reach.writes.push(spool.unwrap_or_else(std::env::temp_dir));
    reach.writes.push(std::env::temp_dir());
    reach.writes.dedup();
    (reach.connects, reach.listens, reach.has_unix_sockets) = sockets(config, plans);
    Ok(reach)
}

/// The ports to which the front end connects (None for all), whether it listens, and whether it
/// makes unix sockets.
fn sockets(config: &Config, plans: &[PlannedPool]) -> (Option<Vec<u16>>, bool, bool) {
    let mut ports = Some(Vec::new());
    for planned in plans {
        match &planned.plan {
            PoolPlan::External { spec, .. } if spec.way == external::ProgramKind::Builtin => {
                ports = None
            }
            PoolPlan::External { spec, .. } => {
                if let (Some(external::FpmAddress::Tcp(address)), Some(ports)) =
                    (&spec.address, &mut ports)
                {
                    ports.push(address.port());
                }
            }
            PoolPlan::SurusPhp { .. } => {}
        }
    }
    if let (Some(port), Some(ports)) = (config.telemetry.port(), &mut ports) {
        ports.push(port);
    }
    let listens = plans.iter().any(|planned| planned.plan.listens());
    let has_unix_sockets = plans.iter().any(|planned| planned.plan.has_unix_sockets());
    (ports, listens, has_unix_sockets)
}

/// An error if a front end that was forked with one configuration may not connect to what another
/// one names.
pub fn check(forked: &KeptVersion, config: &Config, plans: &Plans) -> anyhow::Result<()> {
    let (ports, listens, has_unix_sockets) = sockets(&forked.config, &forked.plans.pools);
    let (new_ports, new_listens, has_new_unix_sockets) = sockets(config, &plans.pools);
    let may_connect = match (&ports, &new_ports) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(ports), Some(new)) => new.iter().all(|port| ports.contains(port)),
    };
    let may_make = listens >= new_listens && has_unix_sockets >= has_new_unix_sockets;
    if !may_connect || !may_make {
        bail!(
            "{KEPT}: the process that reads requests may use only the sockets that the \
             configuration of its start needs, and an installed PHP needs others (engine.name, \
             engine.php_fpm_address, engine.relay); restart Surus"
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use surus_sys::process::KnownUsers;

    use super::*;
    use crate::cli::engine_setup;
    use crate::cli::kept_versions::KeptVersions;
    use crate::config::reread::ConfigOrigin;
    use crate::engines::Found;

    fn version(number: u32, text: &str) -> KeptVersion {
        let config: Config = toml::from_str(text).unwrap();
        let project = Path::new("/srv/app");
        let mut pools = engine_setup::pools(project, &config, &[]).unwrap();
        let found = Found {
            program: "/php".into(),
            loader: None,
            workers: 1..=1,
            busy_poll: Duration::ZERO,
            user: None,
        };
        let pool = engine_setup::plan_with(pools.remove(0), project, found);
        let plans = Plans {
            sites: Vec::new(),
            pools: vec![pool],
            first_site: number,
            first_pool: number,
        };
        KeptVersion {
            config,
            origin: ConfigOrigin::default(),
            plans: Arc::new(plans),
            php: Vec::new(),
            known_users: KnownUsers::default(),
        }
    }

    #[test]
    fn front_end_reaches_what_it_was_forked_with_and_no_more() {
        let fpm = "engine.name = 'fpm'\nengine.php_fpm_address = '127.0.0.1:9000'";
        let versions = KeptVersions::new(version(0, fpm));
        let mut versions = versions.borrow_mut();
        versions.offer(version(1, "engine.name = 'classic'"));
        versions.apply(1, Instant::now()).unwrap();
        let again = version(2, fpm);
        let check = |forked: &KeptVersion| check(forked, &again.config, &again.plans);
        assert!(check(&versions.forked()).is_ok());
        versions.fork();
        let error = check(&versions.forked()).unwrap_err().to_string();
        assert!(error.contains("restart Surus"), "{error}");
    }
}
