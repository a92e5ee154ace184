//! Tests that a php-fpm that is root opens no file whose path PHP's user decides.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::server::{app, descendants, get, id_of, is_root, status};

/// The user of php-fpm's master process, and its directory.
fn master(surus: &Surus) -> (u32, String) {
    let title = |pid: &u32| {
        let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        title.starts_with(b"php-fpm: master")
    };
    let all = descendants(surus.pid());
    let pid = *all.iter().find(|pid| title(pid)).unwrap();
    let user = status(pid, "Uid");
    let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    let user = user.split_whitespace().next().unwrap().parse().unwrap();
    (user, directory.display().to_string())
}

fn serve(project: &Path, settings: &str) -> Surus {
    std::fs::write(project.join("surus.toml"), settings).unwrap();
    // Relative paths are relative to the project.
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.current_dir(project);
    let surus = Surus::spawn_by(
        command,
        project,
        &["--engine", "fpm", "--workers", "1"],
        &[],
    );
    let surus = surus.unwrap_or_else(|log| panic!("{settings} {log}"));
    assert_eq!(get(&surus, "/"), Some((200, "hello".into())), "{settings}");
    surus
}

/// Each start has a warning for the log.
const WARNING: &str = "'date.timezone' = 'Mars/Olympus'\n";

pub fn php_fpm_with_a_log_of_php_writes_no_file_of_root() {
    if !is_root() {
        return;
    }
    let php = id_of("www-data");
    let roots = app(&[]);
    set_permissions(roots.path(), Permissions::from_mode(0o700)).unwrap();
    for (setting, value) in [
        ("error_log", "PROJECT/var/php.log"),
        ("error_log", "var/php.log"),
        ("error_log", "PROJECT/root/../var/php.log"),
        ("error_log", "PROJECT/root/php.log"),
        ("opcache.error_log", "PROJECT/var/php.log"),
        ("opcache.lockfile_path", "PROJECT/var"),
        ("browscap", "PROJECT/var/browscap.ini"),
        ("opcache.blacklist_filename", "PROJECT/*/x"),
        ("some.list", "x:PROJECT/var:y"),
    ] {
        let project = app(&[("index.php", "<?php echo 'hello';")]);
        let var = project.path().join("var");
        let proof = roots.path().join("proof");
        std::fs::create_dir(&var).unwrap();
        std::fs::write(var.join("browscap.ini"), "").unwrap();
        symlink(&proof, var.join("php.log")).unwrap();
        chown(&var, Some(php), None).unwrap();
        // A link of root's that leads there.
        std::fs::create_dir(project.path().join("root")).unwrap();
        symlink("../var/php.log", project.path().join("root/php.log")).unwrap();
        let value = value.replace("PROJECT", project.path().to_str().unwrap());
        let text = format!("[php]\n{WARNING}'{setting}' = '{value}'\n");
        let surus = serve(project.path(), &text);
        let (user, directory) = master(&surus);
        assert!(!proof.exists(), "{text} {}", surus.log());
        match value.contains(project.path().to_str().unwrap()) {
            true => assert_eq!(user, php, "{text}"),
            false => assert_eq!((user, &*directory), (0, "/"), "{text}"),
        }
    }
}

pub fn php_fpm_with_paths_of_root_stays_root() {
    if !is_root() {
        return;
    }
    let php = id_of("www-data");
    for settings in [
        "'date.timezone' = 'Europe/Berlin'\nsendmail_path = '/usr/sbin/sendmail -t -i'\n",
        "error_log = '/dev/stderr'\n'session.save_path' = 'PROJECT/var'\n",
        "error_log = '/dev/null'\n'mail.log' = '/var/none/mail.log'\n",
        "open_basedir = 'PROJECT:/tmp'\nauto_prepend_file = 'PROJECT/var/a.php'\n",
    ] {
        let project = app(&[("index.php", "<?php echo 'hello';")]);
        let var = project.path().join("var");
        std::fs::create_dir(&var).unwrap();
        std::fs::write(var.join("a.php"), "").unwrap();
        chown(&var, Some(php), None).unwrap();
        let settings = settings.replace("PROJECT", project.path().to_str().unwrap());
        let surus = serve(project.path(), &format!("[php]\n{settings}"));
        assert_eq!(master(&surus), (0, "/".into()), "{settings}");
    }
}
