//! Finds the scripts of a document root that a booted front controller does not run, and plans the
//! pool that runs them.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::time::{Duration, Instant};

use tracing::warn;

use super::boot_script;
use super::engine_setup::{self, PoolConfig};
use super::root_walk::{self, WalkedEntry};
use crate::app::site::Site;
use crate::engines;

/// The engine, and the name of its pool.
const CLASSIC: &str = "classic";

/// The limits of examined files and of the time for them, because the start waits.
const MOST_ENTRIES: usize = 10_000;
const LONGEST: Duration = Duration::from_secs(5);

/// The limit of named scripts.
const NAMED: usize = 5;

/// Scripts of a document root besides the front controller.
pub(super) struct OtherScripts {
    /// As URLs name them, at most [`NAMED`].
    names: Vec<String>,
    /// Whether all files were examined.
    is_complete: bool,
}

/// The scripts that the main pool, which is the first, does not run. None if it runs every script,
/// or if there are no others.
pub(super) fn find(pools: &[PoolConfig], project: &Path) -> Option<OtherScripts> {
    let main = pools.first().filter(|main| runs_front_only(main))?;
    // The start reports a directory that cannot be opened.
    let site = engine_setup::open_site(&engine_setup::release(project), &main.config).ok()?;
    let found = OtherScripts::of(&site, MOST_ENTRIES, Some(Instant::now() + LONGEST));
    (!found.names.is_empty() || !found.is_complete).then_some(found)
}

/// Adds the pool that runs the scripts which the main one does not run, if there are any.
pub(super) fn with_pool(
    mut pools: Vec<PoolConfig>,
    project: &Path,
) -> anyhow::Result<Vec<PoolConfig>> {
    let is_planned = pools.iter().any(|pool| pool.name == CLASSIC);
    if !is_planned
        && find(&pools, project).is_some()
        && let Some(main) = pools.first()
    {
        let entry = engines::find(CLASSIC)?;
        let config = main.config.for_pool(CLASSIC).unwrap_or_else(|| {
            let mut config = main.config.clone();
            config.engine.begin_with_one();
            config
        });
        let pool = PoolConfig {
            name: entry.name,
            entry,
            config,
            ..main.clone()
        };
        pools.push(pool);
    }
    Ok(pools)
}

/// Warns of scripts that have appeared since the start, which has added no pool for them.
pub(super) fn warn_of_new(main: &PoolConfig, project: &Path) {
    if let Some(found) = find(std::slice::from_ref(main), project)
        && !found.names.is_empty()
    {
        warn!(
            engine = main.name,
            path = %found,
            "scripts that were added since the start do not run, and the booted application \
             answers for them; restart Surus to run them on `classic`"
        );
    }
}

/// The name of the pool that runs the scripts which the main one, the first, does not run. With
/// `[[site]]`, it begins with `prefix`.
pub(super) fn engine<'a>(
    pools: impl IntoIterator<Item = &'a PoolConfig>,
    prefix: &str,
) -> Option<&'static str> {
    let mut pools = pools.into_iter();
    pools.next().filter(|main| runs_front_only(main))?;
    let is_classic = |pool: &&PoolConfig| pool.name.strip_prefix(prefix) == Some(CLASSIC);
    pools.find(is_classic).map(|pool| pool.name)
}

/// Whether the pool's boot script answers for the front controller only.
pub(super) fn runs_front_only(pool: &PoolConfig) -> bool {
    let framework = pool.framework();
    framework.is_some_and(|framework| boot_script::runs_front_only(framework.kind))
}

impl OtherScripts {
    /// Those that requests can name, whatever `.htaccess` files say.
    fn of(site: &Site, max: usize, deadline: Option<Instant>) -> OtherScripts {
        let mut names = Vec::new();
        let runs_some = site.may_run_scripts_below(site.root(), None);
        let mut enters = |entry: &WalkedEntry<'_>| {
            let path = entry.path;
            if names.len() == NAMED {
                return false;
            }
            if entry.is_directory {
                let real = match entry.is_linked {
                    true => path.canonicalize().ok(),
                    false => None,
                };
                return site.may_run_scripts_below(path, real.as_deref())
                    && (!entry.is_linked || site.enters(path));
            }
            if path.extension().is_some_and(|end| end == "php")
                && let Some(script) = site.script_of(path)
                && !site.is_front(&script)
            {
                names.push(script.name.to_string());
            }
            false
        };
        let is_complete = !runs_some || {
            let end = root_walk::walk_until(site.root(), max, deadline, &mut enters);
            // Directories without access may have some, too.
            let mut unread = end.unreadable.iter();
            end.stopped_by.is_none() && !unread.any(|path| site.may_run_scripts_below(path, None))
        };
        names.sort();
        OtherScripts { names, is_complete }
    }
}

impl Display for OtherScripts {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.names.join(", "))?;
        match (self.names.len(), self.is_complete) {
            (0, false) => out.write_str("none found, but not all was searched; any others"),
            (NAMED, _) | (_, false) => out.write_str(" and maybe more"),
            (_, true) => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;
    use crate::app::detect::{DetectedApplication, Framework, FrameworkKind};
    use crate::app::site::Settings;
    use crate::config::Config;

    fn write(directory: &TempDir, name: &str, text: &str) {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The pools of a project, of whose configuration the user has set these lines.
    fn pools(project: &TempDir, config: &str) -> Vec<PoolConfig> {
        let mut config: Config = toml::from_str(config).unwrap();
        engine_setup::look_at_application(project.path(), &mut config);
        let pools = engine_setup::pools(project.path(), &config, &[]).unwrap();
        with_pool(pools, project.path()).unwrap()
    }

    fn names(pools: &[PoolConfig]) -> Vec<&str> {
        pools.iter().map(|pool| pool.name).collect()
    }

    #[test]
    fn classic_runs_other_scripts_of_each_framework_and_is_planned_only_for_them() {
        let lock = r#"{"packages": [{"name": "slim/slim", "version": "4.14.0"}]}"#;
        let loader =
            r"<?php $_SERVER['APP_RUNTIME'] ?? 'Symfony\\Component\\Runtime\\SymfonyRuntime';";
        let runtime = "<?php require_once dirname(__DIR__).'/vendor/autoload_runtime.php';
            return fn (array $context) => new Kernel($context['APP_ENV'], false);";
        let symfony = "<?php $request = Request::createFromGlobals(); $kernel->handle($request);";
        let laravel = "<?php (require_once __DIR__.'/../bootstrap/app.php')
            ->handleRequest(Request::capture());";
        let slim = "<?php require __DIR__.'/../vendor/autoload.php'; $app->run();";
        for (kind, index) in [
            (FrameworkKind::SymfonyRuntime, runtime),
            (FrameworkKind::Symfony, symfony),
            (FrameworkKind::Laravel, laravel),
            (FrameworkKind::Slim, slim),
        ] {
            let project = tempfile::tempdir().unwrap();
            write(&project, "public/index.php", index);
            write(&project, "public/robots.txt", "");
            write(&project, "vendor/autoload.php", "<?php");
            match kind {
                FrameworkKind::SymfonyRuntime => {
                    write(&project, "vendor/autoload_runtime.php", loader);
                }
                FrameworkKind::Slim => write(&project, "composer.lock", lock),
                _ => {}
            }
            for other in [None, Some("public/sub/index.php")] {
                if let Some(other) = other {
                    write(&project, other, "<?php");
                }
                for name in ["rewind", "fork", "standby", "worker"] {
                    let config = format!("engine.name = '{name}'\nengine.workers = 3");
                    let pools = pools(&project, &config);
                    let found = pools[0].framework().map(|framework| framework.kind);
                    assert_eq!(found, Some(kind));
                    let runs_others = engine(&pools, "");
                    if other.is_none() {
                        assert_eq!((names(&pools), runs_others), (vec![name], None));
                        continue;
                    }
                    assert_eq!(names(&pools), [name, CLASSIC]);
                    assert_eq!(runs_others, Some(CLASSIC));
                    let range = engines::process_range(pools[1].entry, &pools[1].config.engine);
                    assert_eq!(range.unwrap(), 1..=3);
                }
            }
            // The user has decided.
            let of_user = "[engine]\nname = 'rewind'\nscript = 'public/index.php'";
            assert_eq!(names(&pools(&project, of_user)), ["rewind"]);
            let sized = "engine.name = 'rewind'\n[pool.classic]\nworkers = 2";
            let routed = format!("{sized}\n[[route]]\nprefix = '/sub/'\nengine = 'classic'");
            for config in [sized, &routed] {
                let sized = pools(&project, config);
                assert_eq!(sized[1].entry.name, CLASSIC);
                assert_eq!(sized[1].config.engine.workers, Some(2));
                assert_eq!(engine(&sized, ""), Some(CLASSIC));
            }
        }
    }

    #[test]
    fn boot_script_of_wordpress_runs_every_script() {
        let project = tempfile::tempdir().unwrap();
        write(&project, "index.php", "<?php");
        write(&project, "wp-login.php", "<?php");
        let framework = Framework {
            kind: FrameworkKind::WordPress,
            version: None,
            needs_isolation: None,
        };
        let mut config: Config = toml::from_str("engine.name = 'rewind'").unwrap();
        config.application = DetectedApplication::Known(framework);
        config.route = boot_script::routes(FrameworkKind::WordPress);
        let pools = engine_setup::pools(project.path(), &config, &[]).unwrap();
        let pools = with_pool(pools, project.path()).unwrap();
        assert_eq!(names(&pools), ["rewind", CLASSIC]);
        assert_eq!(engine(&pools, ""), None);
    }

    #[test]
    fn pool_of_a_site_is_found_by_its_whole_name() {
        let project = tempfile::tempdir().unwrap();
        let index = "<?php $request = Request::createFromGlobals(); $kernel->handle($request);";
        write(&project, "public/index.php", index);
        write(&project, "public/other.php", "<?php");
        write(&project, "vendor/autoload.php", "<?php");
        let mut pools = pools(&project, "engine.name = 'rewind'");
        pools[0].name = "shop/rewind";
        pools[1].name = "shop/classic";
        assert_eq!(engine(&pools, "shop/"), Some("shop/classic"));
        assert_eq!(engine(&pools, ""), None);
    }

    #[test]
    fn scripts_that_requests_cannot_name_do_not_count() {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "index.php",
            "other.php",
            "sub/index.php",
            "deep/er/tool.php",
            "page.html",
            ".hidden/x.php",
            ".y.php",
            "uploads/evil.php",
            "internal/x.php",
            "vendor/autoload.php",
            "vendor/a/b.php",
            "library.inc",
        ] {
            write(&root, name, "<?php");
        }
        symlink("sub", root.path().join("linked")).unwrap();
        symlink("nowhere.php", root.path().join("dangling.php")).unwrap();
        let mut settings = Settings {
            no_php: Some(vec!["/uploads".into()]),
            hidden: vec!["/internal/".into()],
            ..Settings::default()
        };
        let of = |settings: &Settings, max| {
            let site = Site::open(root.path(), settings, None).unwrap();
            OtherScripts::of(&site, max, None)
        };
        let found = of(&settings, MOST_ENTRIES);
        let all = "/deep/er/tool.php, /other.php, /sub/index.php";
        assert_eq!((found.to_string().as_str(), found.is_complete), (all, true));
        let found = of(&settings, 0);
        assert_eq!((found.names.is_empty(), found.is_complete), (true, false));
        let ended = "none found, but not all was searched; any others";
        assert_eq!(found.to_string(), ended);
        for number in 0..NAMED {
            write(&root, &format!("{number}.php"), "<?php");
        }
        let found = of(&settings, MOST_ENTRIES);
        assert_eq!(found.names.len(), NAMED);
        assert!(found.to_string().ends_with(" and maybe more"), "{found}");
        settings.files = false;
        let found = of(&settings, MOST_ENTRIES);
        assert_eq!((found.names.len(), found.is_complete), (0, true));
    }
}
