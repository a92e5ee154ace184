//! Describes the sites of a changed configuration to the front end of a server that root has
//! started. It may not read the files that they are planned from.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use surus_sys::process::User;

use super::engine_setup::{self, PlannedPool, PoolConfig};
use super::next_configuration::NextConfiguration;
use super::site_plans::{Plans, SitePlan};
use super::warm_ups;
use crate::app::detect::DetectedApplication;
use crate::app::host::HostPattern;
use crate::config::Config;
use crate::config::sites::SiteConfig;
use crate::engines::external::roadrunner::Payloads;
use crate::engines::{self, Found, Learned, WorkerMode};

#[derive(Serialize, Deserialize)]
struct NextText {
    config: ConfigText,
    sites: Vec<SiteText>,
    pools: Vec<PoolText>,
    first_site: u32,
    first_pool: u32,
    changed: String,
    is_acme_changed: bool,
}

/// A configuration, with what is found out about the application and not configured.
#[derive(Serialize, Deserialize)]
struct ConfigText {
    toml: String,
    application: DetectedApplication,
    file: Option<PathBuf>,
    logs: Vec<PathBuf>,
    is_replaceable: bool,
    payloads: Payloads,
    mode: WorkerMode,
    slow_request: Option<Duration>,
}

#[derive(Serialize, Deserialize)]
struct SiteText {
    name: String,
    hosts: Vec<HostPattern>,
    is_default: bool,
    project: PathBuf,
    config: ConfigText,
    main: String,
    pools: Range<usize>,
    error: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct PoolText {
    name: String,
    engine: String,
    config: ConfigText,
    program: PathBuf,
    loader: Option<PathBuf>,
    workers: (usize, usize),
    busy_poll: Duration,
    user: Option<(String, u32, u32, PathBuf)>,
    /// Proposed to warm up the boot.
    pages: Vec<String>,
    otherwise: Option<usize>,
}

/// In the keeper.
pub(super) fn write(next: &NextConfiguration) -> anyhow::Result<Vec<u8>> {
    let plans = &next.plans;
    let text = NextText {
        config: ConfigText::new(&next.config)?,
        sites: plans
            .sites
            .iter()
            .map(SiteText::new)
            .collect::<anyhow::Result<_>>()?,
        pools: plans
            .pools
            .iter()
            .map(PoolText::new)
            .collect::<anyhow::Result<_>>()?,
        first_site: plans.first_site,
        first_pool: plans.first_pool,
        changed: next.changed.clone(),
        is_acme_changed: next.is_acme_changed,
    };
    Ok(serde_json::to_vec(&text)?)
}

/// In the front end.
pub(super) fn read(text: &[u8]) -> anyhow::Result<NextConfiguration> {
    let text: NextText = serde_json::from_slice(text)?;
    let mut config = text.config.read()?;
    let (mut sites, mut pools) = (Vec::new(), Vec::new());
    for site in text.sites {
        sites.push(site.read()?);
    }
    for (number, pool) in text.pools.into_iter().enumerate() {
        let has = |site: &&SitePlan| site.pools.contains(&number);
        let site = sites.iter().find(has).context("a pool of no site")?;
        pools.push(pool.read(site)?);
    }
    let of_sites = sites.iter().filter(|site| !site.name.is_empty());
    config.sites = of_sites.map(site_config).collect();
    let plans = Arc::new(Plans {
        sites,
        pools,
        first_site: text.first_site,
        first_pool: text.first_pool,
    });
    Ok(NextConfiguration {
        config,
        plans,
        changed: text.changed,
        is_acme_changed: text.is_acme_changed,
        origin: None,
    })
}

fn site_config(site: &SitePlan) -> SiteConfig {
    SiteConfig {
        name: site.name.to_owned(),
        hosts: site.hosts.clone(),
        is_default: site.is_default,
        project: Some(site.project.clone()),
        config: site.config.clone(),
    }
}

impl ConfigText {
    fn new(config: &Config) -> anyhow::Result<ConfigText> {
        // The front end does not need the rest, such as keys of queues.
        let config = Config {
            telemetry: Default::default(),
            lambda: Default::default(),
            work: Default::default(),
            queue: Vec::new(),
            schedule: Vec::new(),
            package: Default::default(),
            deploy: Default::default(),
            ..config.clone()
        };
        Ok(ConfigText {
            toml: toml::to_string(&config)?,
            application: config.application,
            file: config.site.configuration,
            logs: config.site.logs,
            is_replaceable: config.engine.is_replaceable,
            payloads: config.engine.roadrunner_payloads,
            mode: config.engine.roadrunner_mode,
            slow_request: config.engine.slow_request,
        })
    }

    fn read(self) -> anyhow::Result<Config> {
        let mut config: Config = toml::from_str(&self.toml)?;
        config.application = self.application;
        config.site.configuration = self.file;
        config.site.logs = self.logs;
        config.engine.is_replaceable = self.is_replaceable;
        config.engine.roadrunner_payloads = self.payloads;
        config.engine.roadrunner_mode = self.mode;
        config.engine.slow_request = self.slow_request;
        Ok(config)
    }
}

impl SiteText {
    fn new(site: &SitePlan) -> anyhow::Result<SiteText> {
        Ok(SiteText {
            name: site.name.to_owned(),
            hosts: site.hosts.clone(),
            is_default: site.is_default,
            project: site.project.clone(),
            config: ConfigText::new(&site.config)?,
            main: site.main.to_owned(),
            pools: site.pools.clone(),
            error: site.error.clone(),
        })
    }

    fn read(self) -> anyhow::Result<SitePlan> {
        let config = self.config.read()?;
        Ok(SitePlan {
            prefix: SitePlan::prefix(&self.name),
            name: self.name.leak(),
            hosts: self.hosts,
            is_default: self.is_default,
            project: self.project,
            config,
            main: self.main.leak(),
            pools: self.pools,
            error: self.error,
        })
    }
}

impl PoolText {
    fn new(planned: &PlannedPool) -> anyhow::Result<PoolText> {
        let PoolConfig {
            name,
            entry,
            config,
            learned,
        } = &planned.pool_config;
        let found = planned.plan.found();
        let user = found.user;
        Ok(PoolText {
            name: (*name).to_owned(),
            engine: entry.name.to_owned(),
            config: ConfigText::new(config)?,
            program: found.program,
            loader: found.loader,
            workers: (*found.workers.start(), *found.workers.end()),
            busy_poll: found.busy_poll,
            user: user.map(|user| (user.name, user.uid, user.gid, user.home)),
            pages: learned.proposed(),
            otherwise: planned.otherwise,
        })
    }

    fn read(self, site: &SitePlan) -> anyhow::Result<PlannedPool> {
        let config = self.config.read()?;
        let user = self.user.map(|(name, uid, gid, home)| User {
            name,
            uid,
            gid,
            home,
        });
        let found = Found {
            program: self.program,
            loader: self.loader,
            workers: self.workers.0..=self.workers.1,
            busy_poll: self.busy_poll,
            user,
        };
        let learned = Learned::of_hosts(warm_ups::named_hosts(&config, &site.hosts));
        learned.propose(self.pages);
        let pool_config = PoolConfig {
            name: self.name.leak(),
            entry: engines::find(&self.engine)?,
            config,
            learned: Arc::new(learned),
        };
        let planned = engine_setup::plan_with(pool_config, &site.project, found);
        Ok(PlannedPool {
            otherwise: self.otherwise,
            ..planned
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::super::config_trust::tests::setting_sources;
    use super::*;
    use crate::engines::PoolPlan;

    /// Settings that are written although no file has them: their field's file and name.
    const CARRIED: [(&str, &str); 6] = [
        ("src/app/site/settings.rs", "configuration"),
        ("src/app/site/settings.rs", "logs"),
        ("src/config/mod.rs", "application"),
        ("src/engines/mod.rs", "is_replaceable"),
        ("src/engines/mod.rs", "roadrunner_mode"),
        ("src/engines/mod.rs", "slow_request"),
    ];

    /// The others, and why the front end does not need them from here.
    const NOT_CARRIED: [(&str, &str, &str); 8] = [
        ("src/config/mod.rs", "sites", "`SiteText` has them"),
        ("src/engines/mod.rs", "learned", PLANNED),
        ("src/engines/mod.rs", "project", PLANNED),
        ("src/engines/mod.rs", "profile", OTHER_COMMAND),
        ("src/engines/mod.rs", "reports_leaks", OTHER_COMMAND),
        ("src/observe/traces/settings.rs", "addresses", ONCE),
        ("src/observe/traces/settings.rs", "limits", ONCE),
        ("src/observe/traces/settings.rs", "resource", ONCE),
    ];

    const PLANNED: &str = "`plan_with` sets it";
    const OTHER_COMMAND: &str = "`surus serve` does not set it";
    const ONCE: &str = "traces start once";

    const EVERY_FORM: &str = r#"
        site = { root = "public", index = "a.php", symlinks = "follow", hidden = ["*.x"] }
        access_log.format = '$remote_addr "$request"'
        admin.listen = "unix:/run/admin.sock"
        acme.domains = ["a.test", "b.example"]
        acme.email = "a@b.example"
        acme.authorities = [{ url = "https://ca.test/", key_id = "me", hmac_key = "c2VjcmV0" }]
        compress.enabled = false
        env = { A = "b" }
        error_pages.directory = "errors"
        log.level = "debug"
        php = { a = 1, b = 1.5, c = true, "d.e" = "f", extension = ["x", "y"] }
        x_sendfile.directories = ["/srv/files"]
        [engine]
        name = "fork"
        min_workers = 1
        max_workers = 4
        max_memory = "64M"
        warmup = ["/a"]
        php_fpm_address = "127.0.0.1:9000"
        [http]
        listen = ["8080", "unix:/run/a.sock"]
        socket_mode = "0660"
        trusted_proxies = ["10.0.0.0/8", "unix"]
        request_timeout = "1500ms"
        [tls]
        listen = ":443"
        certificate = "a.crt"
        key = "a.key"
        hsts = "max-age=1"
        min_version = "1.3"
        [pool.other]
        workers = 2
        env = { B = "c" }
        php = { memory_limit = "1G" }
        [[route]]
        host = "*.a.test"
        prefix = "/a"
        methods = ["GET"]
        engine = "other"
        [[route]]
        regex = "^/b"
        redirect = "/c{1}"
        status = 301
        headers = { X-A = "b", X-C = "" }
    "#;

    #[test]
    fn configuration_is_read_as_it_was_written() {
        for toml in ["", EVERY_FORM] {
            let mut config: Config = toml::from_str(toml).unwrap();
            // All of CARRIED.
            config.site.configuration = Some("/a.toml".into());
            config.site.logs = vec!["/a.log".into()];
            config.application = DetectedApplication::Own;
            config.engine.is_replaceable = true;
            config.engine.roadrunner_mode = WorkerMode::Jobs;
            config.engine.slow_request = Some(Duration::from_secs(3));
            let text = ConfigText::new(&config).unwrap();
            let json = serde_json::to_string(&text).unwrap();
            let text: ConfigText = serde_json::from_str(&json).unwrap();
            let read = text.read().unwrap();
            assert_eq!(format!("{read:?}"), format!("{config:?}"));
            // Debug leaves accounts out, and the front end gets none.
            assert!(!json.contains("c2VjcmV0"), "{json}");
            for authority in &mut config.acme.authorities {
                authority.account = None;
            }
            assert_eq!(read.acme, config.acme);
        }
    }

    #[test]
    fn every_setting_that_is_in_no_file_is_written_or_named_with_a_reason() {
        let others = NOT_CARRIED.iter().map(|(file, field, _)| (*file, *field));
        let named = CARRIED.into_iter().chain(others);
        let named: BTreeSet<_> = named
            .map(|(file, field)| (file.to_owned(), field.to_owned()))
            .collect();
        assert_eq!(
            named,
            skipped_settings(),
            "put a new one into `ConfigText`, into CARRIED and into the test of what is written, \
             or into NOT_CARRIED"
        );
    }

    /// File and name of each field of a setting that serde leaves out.
    fn skipped_settings() -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for (file, text) in setting_sources() {
            let mut is_skipped = false;
            for line in text.lines() {
                if line.trim() == "#[serde(skip)]" {
                    is_skipped = true;
                } else if let Some((field, _)) = line
                    .strip_prefix("    pub ")
                    .and_then(|field| field.split_once(": "))
                    && std::mem::take(&mut is_skipped)
                {
                    found.insert((file.clone(), field.to_owned()));
                }
            }
        }
        found
    }

    #[test]
    fn pool_is_run_as_the_keeper_has_planned_it() {
        let project = Path::new("/srv/app");
        let text = "engine.name = 'rewind'\nengine.script = 'a.php'\nengine.warmup = ['/b']\n";
        let mut config: Config = toml::from_str(text).unwrap();
        config.engine.slow_request = Some(Duration::from_secs(3));
        let mut pools = engine_setup::pools(project, &config, &[]).unwrap();
        let pool_config = pools.remove(0);
        let page = "http://localhost/learned";
        pool_config.learned.propose(vec![page.into()]);
        let found = Found {
            program: "/surus-php".into(),
            loader: Some("/ld.so".into()),
            workers: 2..=5,
            busy_poll: Duration::from_micros(100),
            user: None,
        };
        let planned = engine_setup::plan_with(pool_config, project, found);
        let json = serde_json::to_string(&PoolText::new(&planned).unwrap()).unwrap();
        let text: PoolText = serde_json::from_str(&json).unwrap();
        let site = SitePlan {
            name: "",
            prefix: "",
            hosts: Vec::new(),
            is_default: true,
            project: project.to_path_buf(),
            config,
            main: "rewind",
            pools: 0..1,
            error: None,
        };
        let read = text.read(&site).unwrap();
        let run = |planned: &PlannedPool| match &planned.plan {
            PoolPlan::SurusPhp {
                spec,
                limits,
                queue,
            } => {
                let workers = (spec.min_workers, spec.first_workers, spec.workers);
                let programs = (&spec.program, &spec.loader, &spec.env, &spec.warmup);
                let rest = (spec.traces_slow, spec.busy_poll, spec.script.is_some());
                format!("{limits:?} {queue:?} {workers:?} {programs:?} {rest:?}")
            }
            PoolPlan::External { .. } => panic!("not surus-php"),
        };
        assert_eq!(run(&read), run(&planned));
        let slow = "slow_request: Some(3s)";
        assert!(run(&read).contains(slow), "{}", run(&read));
        assert_eq!(read.pool_config.learned.proposed(), [page]);
    }
}
