//! `--compile`: lets the package's own PHP compile its files, in a directory laid out like the
//! function.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;

use crate::cli::stdout::say;
use crate::emulator::{EmulatedFunction, Emulator};
use crate::package::kind::PackageKind;
use crate::package::{self, PackageFiles, application, compiled, php, settings, symfony};

/// Compiles the listed files from an index on. It records its position, as a file may end PHP, and
/// the files it skips. It sets the status itself, because a caught compile error would make it 500.
const SCRIPT: &str = r#"<?php
$event = json_decode(file_get_contents('php://input'), true, 512, JSON_THROW_ON_ERROR);
if (isset($event['warm'])) {
    require '/compile/warm.php';

    return;
}
$files = json_decode(file_get_contents('/compile/files.json'), true, 512, JSON_THROW_ON_ERROR);
$from = $event['from'];
foreach (array_slice($files, $from, null, true) as $place => $file) {
    file_put_contents('/tmp/place', $place);
    try {
        $done = @opcache_compile_file($file);
    } catch (Throwable) {
        $done = false;
    }
    if (!$done) {
        file_put_contents('/tmp/skipped', "$file\n", FILE_APPEND);
    }
}
http_response_code(200);
echo '{}';
"#;

/// Does the same as `bin/console cache:warmup`, in the application's directory. Its output goes to
/// the log.
const WARM: &str = r#"<?php
ob_start();
try {
    chdir($event['warm']);
    require 'vendor/autoload.php';
    if (is_file('.env') && class_exists(Symfony\Component\Dotenv\Dotenv::class)) {
        (new Symfony\Component\Dotenv\Dotenv())->bootEnv($event['warm'].'/.env');
    }
    class_exists(App\Kernel::class) || throw new LogicException('there is no class App\Kernel');
    $environment = $_SERVER['APP_ENV'] ?? 'prod';
    $debug = (bool) ($_SERVER['APP_DEBUG'] ?? false);
    $kernel = new App\Kernel($environment, $debug);
    $kernel->boot();
    $warmer = $kernel->getContainer()->get('cache_warmer');
    $warmer->enableOptionalWarmers();
    $cache = $kernel->getCacheDir();
    $build = method_exists($kernel, 'getBuildDir') ? $kernel->getBuildDir() : $cache;
    $warmer->warmUp($cache, $build);
    ob_end_clean();
    echo '{}';
} catch (Throwable $thrown) {
    ob_end_clean();
    http_response_code(500);
    $place = $thrown->getFile().':'.$thrown->getLine();
    echo get_debug_type($thrown), ': ', $thrown->getMessage(), ' in ', $place;
}
"#;

/// Mounts only /proc and /dev of this machine.
const ENTER: &str = r#"PATH=$PATH:/usr/sbin:/sbin
mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" || exit 1
"#;

/// Runs as a user without a name, as on Lambda.
const AS_ROOT: &str = r#"exec chroot --userspec=1000:1000 "$0" /var/task/bootstrap /compile"#;

/// For other users: the first user namespace makes the user root, to mount. A mapped user cannot
/// change its id, so a second namespace makes it another user again.
const AS_USER: &str = r#"exec unshare --user --map-user=1000 --map-group=1000 --root="$0" --wd=/ \
    /var/task/bootstrap /compile"#;

/// Adds the compiled files to the package. The caller keeps the returned directory until the
/// package is written.
pub fn add(files: &mut PackageFiles, project: &Path) -> anyhow::Result<tempfile::TempDir> {
    let place = PackageKind::Function.place(project);
    let directory = tempfile::Builder::new()
        .prefix("surus-compile")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()?;
    let root = &directory.path().canonicalize()?;
    compiled::unpack(files, root)?;
    let settings_name = application::inside_of(place, "surus.toml");
    let composed = files
        .text_of(&settings_name)
        .context("the package has no surus.toml")?
        .to_vec();
    let sources = compiled::sources(files);
    for name in ["proc", "dev", "tmp/opcache", "compile"] {
        fs::create_dir_all(root.join(name))?;
    }
    for name in ["tmp", "tmp/opcache"] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o777))?;
    }
    let write = |name: &str, text: String| fs::write(root.join("compile").join(name), text);
    write("files.json", json!(sources).to_string())?;
    write("compile.php", SCRIPT.into())?;
    write("warm.php", WARM.into())?;
    let application = Path::new(package::ROOT).join(place);
    let warms = symfony::is_there(project)?.then_some(application);
    write(
        "surus.toml",
        settings::to_compile(&composed, "/compile/compile.php", "/tmp/opcache")?,
    )?;
    let skipped = crate::cli::block_on(compile(root, warms.as_deref()))?;
    let count = compiled::add(&root.join("tmp/opcache"), files)?;
    say!("compiled: {count} of {} PHP files", sources.len());
    if !skipped.is_empty() {
        say!(
            "! not compiled, because PHP reports errors or refuses them: {}",
            skipped.join(", ")
        );
    }
    let mut composed = settings::with_compiled(&composed)?;
    let warmed = symfony::add(root, files)?;
    if warmed > 0 {
        say!("Symfony's cache: {warmed} files");
        composed = settings::with_cache(composed.as_bytes())?;
    }
    files.set_text(&settings_name, composed);
    Ok(directory)
}

/// Returns the files that could not be compiled.
async fn compile(root: &Path, warms: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let mut arguments = vec!["--mount", "--propagation", "private"];
    let run_as = if surus_sys::process::is_root() {
        AS_ROOT
    } else {
        arguments.extend(["--user", "--map-root-user"]);
        AS_USER
    };
    let enter = format!("{ENTER}{run_as}");
    let root_text = root
        .to_str()
        .context("the temporary directory is not UTF-8")?;
    arguments.extend(["sh", "-ec", &enter, root_text]);
    let mut function = EmulatedFunction::command("unshare", arguments);
    function.timeout = Duration::from_secs(900);
    function.handler = "compile".into();
    function.keeps_log = false;
    let log = Arc::new(Mutex::new(Vec::new()));
    let kept = log.clone();
    function.sink = Some(Arc::new(move |line: &str| {
        let mut log = kept.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(line.to_string());
    }));
    let emulator = Emulator::start(function).await.context(
        "cannot start the package's PHP to compile its files (--compile); it needs unshare of \
         util-linux",
    )?;
    let list = root.join("compile/files.json");
    let mut sources: Vec<String> = serde_json::from_slice(&fs::read(&list)?)?;
    if let Some(application) = warms {
        let invocation = emulator
            .invoke(json!({"warm": application}).to_string())
            .await;
        if let Err(error) = invocation.result {
            let error = String::from_utf8_lossy(&error.body);
            say!("! cannot warm up Symfony's cache, so the first event will take longer: {error}");
        }
        sources.extend(warmed_sources(root)?);
        fs::write(&list, json!(sources).to_string())?;
    }
    let mut ended_php = Vec::new();
    let mut from = 0;
    while from < sources.len() {
        let invocation = emulator.invoke(json!({"from": from}).to_string()).await;
        let Err(error) = invocation.result else {
            break;
        };
        let place = fs::read_to_string(root.join("tmp/place")).unwrap_or_default();
        let place = place.parse::<usize>().ok();
        let Some(place) = place.filter(|place| (from..sources.len()).contains(place)) else {
            emulator.stop().await;
            let log = log.lock().unwrap_or_else(PoisonError::into_inner);
            bail!(
                "cannot run the package's PHP here to compile its files (--compile): {}; it needs \
                 root, or a system that lets users unshare:\n{}",
                error.kind,
                log.join("\n")
            );
        };
        ended_php.push(sources[place].clone());
        from = place + 1;
    }
    emulator.stop().await;
    let skipped = fs::read_to_string(root.join("tmp/skipped")).unwrap_or_default();
    Ok(skipped
        .lines()
        .map(str::to_string)
        .chain(ended_php)
        .collect())
}

/// The PHP files of the cache, with their paths in the function.
fn warmed_sources(root: &Path) -> anyhow::Result<Vec<String>> {
    let cache = root.join(symfony::CACHE.trim_start_matches('/'));
    if !cache.is_dir() {
        return Ok(Vec::new());
    }
    let files = php::below(&cache, &[])?.into_iter().map(|(name, _)| name);
    let scripts = files.filter(|name| name.ends_with(".php"));
    Ok(scripts
        .map(|name| format!("{}/{name}", symfony::CACHE))
        .collect())
}
