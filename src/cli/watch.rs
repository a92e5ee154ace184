//! `surus serve --watch`: boots the application again when its files change, tells browsers, and
//! starts Surus again when its configuration changes.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Mutex, Notify};
use tracing::{error, info, warn};

use super::options::ServeArgs;
use super::served::{ReloadHook, Served, ServedSite};
use super::server_reload;
use crate::app::watch::{self, Change, Effect};
use crate::config::{Config, IniValue};
use crate::engine::Pending;
use crate::fronts::address::Address;
use crate::fronts::http::request::live_reload::LiveReload;

/// For how long no further file must change: an editor or a checkout changes one after the other.
const SETTLES: Duration = Duration::from_millis(100);

/// Files that still change after this time do not delay the boot.
const LONGEST: Duration = Duration::from_secs(2);

/// For how long after a boot a change that a worker has found may be one from before.
const RECENT: Duration = Duration::from_secs(2);

/// The longest pause between boots that change files themselves.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Fails where files are not watched: on servers.
pub fn check(config: &Config, is_kept: bool, has_inherited: bool) -> anyhow::Result<()> {
    let why = if is_kept {
        "Surus is started as root, as on a server; start it as the user who edits the application"
    } else if has_inherited || std::env::var_os("NOTIFY_SOCKET").is_some() {
        "systemd starts Surus, as on a server; remove --watch from ExecStart"
    } else if config.acme.domains.iter().any(|domain| !domain.is_local()) {
        "the site is public (--domain, acme.domains); develop with --https or --domain app.test"
    } else {
        if let Some(address) = public_address(config) {
            warn!(%address, "--watch is for development, and other machines may reach this \
                address; listen on 127.0.0.1");
        }
        return Ok(());
    };
    bail!(
        "--watch is for development, and {why}; servers see changes without it, or at once by \
         `surus reload`"
    );
}

/// An address that other machines may reach.
fn public_address(config: &Config) -> Option<&Address> {
    let is_public = |address: &&Address| match address {
        Address::Tcp(address) => !address.ip().to_canonical().is_loopback(),
        Address::Unix(_) => false,
    };
    let addresses = config.http.listen.iter().chain(&config.tls.listen);
    addresses.into_iter().find(is_public)
}

/// Shows PHP's errors, which the php.ini of distributions hides, unless `[php]` or `-d` decides.
pub fn show_errors(config: &mut Config) {
    let sites = config.sites.iter_mut().map(|site| &mut site.config.php);
    for php in sites.chain([&mut config.php]) {
        let shown = php.entry("display_errors".to_owned());
        shown.or_insert(IniValue::Bool(true));
    }
}

/// What happens when files change.
pub struct Watching {
    args: Arc<ServeArgs>,
    configuration: Option<PathBuf>,
    /// The address of the admin listener.
    admin: String,
    program: std::io::Result<PathBuf>,
    pub pages: Arc<LiveReload>,
    /// Locked while a change of a file makes the application boot. The end of the last such boot.
    booted: Mutex<Option<Instant>>,
    restarts: AtomicBool,
    asks_for_restart: Notify,
}

impl Watching {
    pub fn new(
        args: Arc<ServeArgs>,
        configuration: Option<PathBuf>,
        admin: &Address,
    ) -> Arc<Watching> {
        Arc::new(Watching {
            args,
            configuration,
            admin: admin.to_string().trim_start_matches("http://").to_owned(),
            // Another build may replace the file.
            program: std::env::current_exe(),
            pages: Arc::default(),
            booted: Mutex::new(None),
            restarts: AtomicBool::new(false),
            asks_for_restart: Notify::new(),
        })
    }

    /// Begins to watch the directories of all sites. A changed file boots the sites of its
    /// directory again. `reload` boots all, and reads the certificates.
    pub fn start(
        self: &Arc<Self>,
        settings: &watch::Settings,
        project: &Path,
        served: &Served,
        reload: &ReloadHook,
    ) -> anyhow::Result<()> {
        served.set_hooks(|site| {
            let (watching, reload) = (self.clone(), self.hook(served, vec![site], reload));
            Arc::new(move || watching.clone().revalidate(reload.clone()))
        });
        let made = project.join("surus.toml");
        let mut configuration = Some(self.configuration.clone().unwrap_or(made));
        for (directory, sites) in served.by_directory() {
            let reload = self.hook(served, sites, reload);
            match watch::start(settings, directory.clone(), configuration.clone()) {
                Ok(changes) => {
                    configuration = None;
                    tokio::spawn(self.clone().run(changes, reload));
                }
                Err(error) if served.sites.len() == 1 => return Err(error),
                Err(error) => warn!(
                    root = %directory.display(),
                    error = format!("{error:#}"),
                    "the files of a site are not watched"
                ),
            }
        }
        Ok(())
    }

    /// Boots these sites again. In a server with a single site, `reload` does.
    fn hook(
        &self,
        served: &Served,
        sites: Vec<Arc<ServedSite>>,
        reload: &ReloadHook,
    ) -> ReloadHook {
        if served.sites.len() == 1 {
            return reload.clone();
        }
        let pages = self.pages.clone();
        Arc::new(move || server_reload::of_sites(sites.clone(), pages.clone()))
    }

    async fn run(self: Arc<Self>, mut changes: Receiver<Change>, reload: ReloadHook) {
        let mut pace = WatchPace::default();
        while let Some(change) = settled(&mut changes).await {
            let changed = change.path.display();
            match change.effect {
                Effect::Page => self.pages.changed(),
                Effect::Boot => {
                    info!(%changed, "a file has changed; the application boots again");
                    let mut booted = self.booted.lock().await;
                    if let Err(error) = reload().await {
                        let error = format!("{error:#}");
                        error!(error, "the changed application cannot be booted");
                    }
                    *booted = Some(Instant::now());
                    drop(booted);
                    pace.wait(!changes.is_empty(), &change).await;
                }
                Effect::Configuration => match self.can_start().await {
                    Ok(()) => {
                        info!(%changed, "the configuration has changed; Surus starts again");
                        self.restarts.store(true, Ordering::Release);
                        self.asks_for_restart.notify_one();
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        error!(%changed, error, "the changed configuration is not used");
                    }
                },
            }
        }
    }

    /// Whether Surus could start now, as `surus check` finds out.
    async fn can_start(&self) -> anyhow::Result<()> {
        self.args.load()?;
        let mut words: Vec<_> = std::env::args_os().skip(1).collect();
        words.retain(|word| word != "--watch");
        // The subcommand is the first word.
        if let Some(subcommand) = words.first_mut() {
            *subcommand = "check".into();
        }
        let mut check = tokio::process::Command::new(self.program()?);
        check.args(words).stdin(Stdio::null()).kill_on_drop(true);
        // This server has its addresses.
        check.env("SURUS_ADMIN_LISTEN", &self.admin);
        let checked = check.output().await?;
        let text = String::from_utf8_lossy(&checked.stdout);
        let stops = text.lines().filter_map(|line| line.strip_prefix("✗ "));
        // An error that stops one of several sites makes its hosts answer 503.
        let (sites, stops): (Vec<_>, Vec<_>) = stops.partition(|stop| stop.starts_with("site "));
        match checked.status.success() || (stops.is_empty() && !sites.is_empty()) {
            true => Ok(()),
            false => bail!("{}", stops.join("\n")),
        }
    }

    fn program(&self) -> anyhow::Result<&Path> {
        let program = self.program.as_ref().ok();
        let program = program.context("the path of Surus's program is unknown")?;
        Ok(program)
    }

    /// Boots because workers have found a change, unless the change of a file has just done that.
    /// Workers find again what that boot has missed.
    pub fn revalidate(self: Arc<Self>, reload: ReloadHook) -> Pending<'static, anyhow::Result<()>> {
        Box::pin(async move {
            let booted = self.booted.lock().await;
            match booted.is_some_and(|booted| booted.elapsed() < RECENT) {
                true => Ok(()),
                false => reload().await,
            }
        })
    }

    /// Starts Surus again, after everything has ended, if the configuration has changed.
    pub fn restart(&self) -> anyhow::Result<()> {
        if !self.restarts.load(Ordering::Acquire) {
            return Ok(());
        }
        let program = self.program()?;
        let error = Command::new(program)
            .args(std::env::args_os().skip(1))
            .exec();
        Err(error).with_context(|| format!("cannot start {} again", program.display()))
    }
}

/// Returns when the configuration has changed.
pub async fn asks_for_restart(watching: &Option<Arc<Watching>>) {
    match watching {
        Some(watching) => watching.asks_for_restart.notified().await,
        None => std::future::pending().await,
    }
}

/// The change with the greatest effect of those that happen together.
async fn settled(changes: &mut Receiver<Change>) -> Option<Change> {
    let mut change = changes.recv().await?;
    let began = Instant::now();
    while began.elapsed() < LONGEST
        && let Ok(Some(next)) = tokio::time::timeout(SETTLES, changes.recv()).await
    {
        if next.effect > change.effect {
            change = next;
        }
    }
    Some(change)
}

/// The pauses between boots during which files change, so that an application that writes files
/// among its sources when it boots cannot keep the machine busy.
#[derive(Default)]
struct WatchPace {
    /// Boots in a row during which files have changed.
    changing: u32,
}

impl WatchPace {
    async fn wait(&mut self, has_changed: bool, change: &Change) {
        if let Some(pause) = self.next(has_changed) {
            warn!(
                changed = %change.path.display(),
                "files change whenever the application boots; [watch] ignore lists paths that do \
                 not count"
            );
            tokio::time::sleep(pause).await;
        }
    }

    fn next(&mut self, has_changed: bool) -> Option<Duration> {
        self.changing = match has_changed {
            true => self.changing.saturating_add(1),
            false => 0,
        };
        // Once or twice, it is a person who is faster than the boot.
        let more = self.changing.checked_sub(3)?;
        Some(Duration::from_secs(1 << more.min(10)).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn boots_that_change_files_pause_longer_and_longer() {
        let mut pace = WatchPace::default();
        let pauses: Vec<_> = (0..5).map(|_| pace.next(true)).collect();
        let seconds = |pause: &Option<Duration>| pause.map_or(0, |pause| pause.as_secs());
        assert_eq!(
            pauses.iter().map(seconds).collect::<Vec<_>>(),
            [0, 0, 1, 2, 4]
        );
        for _ in 0..100 {
            assert!(pace.next(true).unwrap() <= LONGEST_PAUSE);
        }
        assert_eq!(pace.next(false), None);
        assert_eq!(pace.next(true), None);
    }

    #[test]
    fn addresses_that_others_may_reach_are_named() {
        let mut config = Config::default();
        for own in ["127.0.0.1:8080", "[::1]:8080", "unix:/run/app.sock"] {
            config.http.listen = vec![own.parse().unwrap()];
            assert_eq!(public_address(&config), None);
        }
        config.tls.listen = vec!["[::]:8443".parse().unwrap()];
        assert_eq!(public_address(&config), Some(&config.tls.listen[0]));
        config.http.listen = vec![":8080".parse().unwrap()];
        assert_eq!(public_address(&config), Some(&config.http.listen[0]));
    }

    #[test]
    fn errors_are_shown_unless_the_configuration_decides() {
        let mut config: Config = toml::from_str("php.display_errors = false").unwrap();
        show_errors(&mut config);
        assert_eq!(config.php["display_errors"].entries(), ["0"]);
        let mut config = Config::default();
        show_errors(&mut config);
        assert_eq!(config.php["display_errors"].entries(), ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_happen_together_are_one() {
        let (sender, mut changes) = tokio::sync::mpsc::channel(8);
        for (effect, path) in [
            (Effect::Page, "a"),
            (Effect::Boot, "b"),
            (Effect::Page, "c"),
        ] {
            let path = path.into();
            sender.send(Change { effect, path }).await.unwrap();
        }
        let change = settled(&mut changes).await.unwrap();
        assert_eq!(change.path, PathBuf::from("b"));
        assert!(changes.is_empty());
    }
}
