//! Tests what `surus check` reports.

use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::{Said, get, is_root, project, run, says, surus};

#[test]
fn check_reports_the_engine_and_script_that_would_run() {
    let configuration = "[engine]\nworkers = 3\n[php]\npost_max_size = \"64M\"\n\
                         upload_max_filesize = \"60M\"\ndisplay_errors = false\n\
                         \"opcache.validate_timestamps\" = 0\n\
                         [[route]]\nprefix = \"/x\"\ndeny = true\n";
    let project = project(&[("public/index.php", ""), ("surus.toml", configuration)]);
    let said = check(project.path());
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let real = project.path().canonicalize().unwrap();
    let root = format!("✓ document root    {}/public\n", real.display());
    let script = format!("✓ front controller {}/public/index.php\n", real.display());
    says(
        &said.stdout,
        &[
            "✓ configuration    ",
            "/surus.toml\n",
            "✓ listens on       http://127.0.0.1:0\n",
            &root,
            &script,
            "✓ routes           1\n",
            "✓ engine           classic: ",
            "✓ workers          3 (engine.workers)\n",
            "✓ PHP              8.",
            "✓ php.ini          /",
            "✓ OPcache          on\n",
            "✓ extensions       ",
            "Zend OPcache",
            "✓ limits           http.request_timeout 1m, http.max_body_size 64M",
            "post_max_size 64M",
        ],
    );
    assert!(!said.stdout.contains("✗"), "{}", said.stdout);
    let notes: Vec<_> = said
        .stdout
        .lines()
        .filter(|line| line.starts_with('!'))
        .collect();
    assert!(notes.is_empty(), "{notes:#?}");
}

#[test]
fn check_and_serve_name_a_configuration_that_another_displaces() {
    let project = project(&[
        ("index.php", ""),
        ("surus.toml", "[engine]\nworkers = 3\n"),
        ("etc/app.toml", "[engine]\nworkers = 1\n"),
    ]);
    let directory = project.path().to_str().unwrap();
    let other = project.path().join("etc/app.toml");
    let other = other.to_str().unwrap();
    let own = format!("{directory}/surus.toml");
    let check = |file: &str| {
        let args = ["check", directory, "--listen", "0", "--config", file];
        surus(&args, &[])
    };
    let said = check(other);
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let note = format!("! {own} is not read, because --config names another file\n");
    says(
        &said.stdout,
        &["/etc/app.toml\n", &note, "✓ workers          1 "],
    );
    let said = check(&own);
    assert!(!said.stdout.contains("is not read"), "{}", said.stdout);

    let displaced = "the project's configuration is not read, because --config names another file";
    let server = Surus::serve(project.path(), &["--config", other]);
    server.wait_for_log(|log| log.contains(displaced));
    says(&server.log(), &[&own]);
    drop(server);
    let server = Surus::serve(project.path(), &["--config", &own]);
    assert!(!server.log().contains(displaced), "{}", server.log());
}

#[test]
fn check_reports_contradictions() {
    let composer = r#"{"require": {"ext-ctype": "*", "ext-of-nobody": "*"}}"#;
    let configuration = "[http]\nmax_body_size = \"1M\"\nrequest_timeout = \"2s\"\n\
                         [engine]\nwarmup = [\"/\"]\n[php]\ndisplay_errors = true\n\
                         memory_limt = \"1G\"\n\
                         [pool.unused]\nworkers = 1\n[pool.work]\nworkers = 1\n\
                         [[route]]\nprefix = \"/x\"\nredirect = \"/y\"\n\
                         [[route]]\nhost = \"a.example\"\nredirect = \"https://a.example{uri}\"\n";
    let project = project(&[
        ("composer.json", composer),
        ("surus.toml", configuration),
        ("about.php", ""),
        ("src/Kernel.php", ""),
        ("dumps/a.sql", ""),
        ("vendor/autoload.php", ""),
    ]);
    let said = check(project.path());
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    says(
        &said.stdout,
        &[
            "! no front controller",
            "! the document root has private files, which get 404: ",
            "dependency manifests (composer.json); ",
            "dumps and databases (dumps/a.sql); ",
            "libraries without their style sheets, browser scripts, fonts and media (vendor/); ",
            "! the document root is the project itself, and clients can read files in src/;",
            "! post_max_size is 8M, but bodies above 1M are rejected",
            "! display_errors is on",
            "! PHP has no setting memory_limt",
            "! http.request_timeout is 2s, below engine.queue_timeout (10s)",
            "! [pool.unused] is not started",
            "! the redirect of [[route]] number 2 leads to the same rule",
            "! engine.warmup has no effect: `classic`",
            "! composer.json requires ext-of-nobody",
        ],
    );
    for absent in ["ext-ctype", "[pool.work]"] {
        assert!(!said.stdout.contains(absent), "{}", said.stdout);
    }
}

#[test]
fn check_names_a_user_ini_that_a_booted_engine_does_not_read() {
    let files = [
        ("worker.php", "<?php surus_serve(fn () => print 'x');"),
        ("public/index.php", "<?php echo 'x';"),
        (
            "public/worker.php",
            "<?php surus_serve(fn () => print 'x');",
        ),
        ("public/.user.ini", "precision = 7"),
        ("public/admin/.user.ini", "precision = 9"),
    ];
    let project = project(&files);
    let check = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        run(command.arg("check").args(args).current_dir(project.path())).stdout
    };
    let unread = |said: &str| -> Vec<String> {
        says(said, &["✓ engine"]);
        let lines = said.lines().filter(|line| line.contains("is not read"));
        lines.map(str::to_string).collect()
    };
    let booted = unread(&check(&["--script", "worker.php"]));
    assert_eq!(booted.len(), 1, "{booted:?}");
    // The document root's applies to a script outside of it, too.
    let said = ["public/admin/.user.ini", "`rewind`", "worker.php"];
    says(&booted[0], &said);
    let public = unread(&check(&[
        "--engine",
        "worker",
        "--script",
        "public/worker.php",
    ]));
    assert_eq!(public.len(), 1, "{public:?}");
    says(&public[0], &["public/admin/.user.ini", "`worker`"]);
    let classic = unread(&check(&["--engine", "classic"]));
    assert!(classic.is_empty(), "{classic:?}");
    let none = unread(&check(&[
        "--script",
        "worker.php",
        "-d",
        "user_ini.filename=",
    ]));
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn serve_refuses_a_firewall_in_a_user_ini_that_a_booted_engine_does_not_read() {
    let firewall = "auto_prepend_file = '/srv/waf.php'\n";
    let project = project(&[
        ("index.php", "<?php surus_serve(fn () => print 'x');"),
        ("classic/.user.ini", firewall),
        ("plain/.user.ini", "precision = 9\n"),
        // Named last.
        ("protected/.user.ini", firewall),
        (
            "surus.toml",
            "[[route]]\nprefix = \"/classic/\"\nengine = \"classic\"\n",
        ),
    ]);
    let reason = "protected/.user.ini sets auto_prepend_file (/srv/waf.php), which would not run: ";
    for engine in ["rewind", "fork", "standby", "worker"] {
        let args = ["--engine", engine, "--workers", "1"];
        let log = Surus::spawn(project.path(), &args, &[]).err();
        let log = log.expect("the start is refused");
        says(&log, &[reason, "[[route]] with engine = \"classic\""]);
        for other in ["classic/.user.ini", "plain/.user.ini"] {
            assert!(!log.contains(other), "{engine}: {log}");
        }
    }
    let said = check(project.path());
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stdout, &["✗ engine `rewind`: ", reason]);
    let surus = Surus::serve(project.path(), &["--engine", "classic", "--workers", "1"]);
    assert_eq!(get(&surus, "/plain/.user.ini").0, 404);
    assert!(!surus.log().contains(reason), "{}", surus.log());
}

#[test]
fn reload_is_refused_if_a_new_user_ini_names_a_firewall_that_would_not_run() {
    let project = project(&[
        ("index.php", "<?php surus_serve(fn () => print 'x');"),
        ("protected/.user.ini", "auto_prepend_file = none\n"),
    ]);
    let serving = Surus::serve(project.path(), &["--workers", "1"]);
    let reload = || surus(&["reload", project.path().to_str().unwrap()], &[]);
    let write = |text: &str| {
        std::fs::write(project.path().join("protected/.user.ini"), text).unwrap();
    };
    write("auto_append_file = /srv/log.php\n");
    let said = reload();
    assert_eq!((said.status, said.stdout.as_str()), (1, ""));
    let reason = "protected/.user.ini sets auto_append_file (/srv/log.php), which would not run: ";
    says(&said.stderr, &["engine `rewind`: ", reason]);
    assert_eq!(get(&serving, "/"), (200, "x".to_owned()));
    write("");
    let said = reload();
    assert_eq!((said.status, said.stdout.as_str()), (0, "reloaded\n"));
    assert_eq!(get(&serving, "/"), (200, "x".to_owned()));
}

#[test]
fn user_ini_in_a_directory_without_scripts_is_no_obstacle() {
    for settings in ["no_php = [\"/uploads\"]", "files = false"] {
        let configuration = format!("[site]\n{settings}\n");
        let project = project(&[
            ("index.php", "<?php surus_serve(fn () => print 'x');"),
            ("uploads/a.txt", ""),
            ("surus.toml", configuration.as_str()),
        ]);
        let serving = Surus::serve(project.path(), &["--workers", "1"]);
        let file = project.path().join("uploads/.user.ini");
        std::fs::write(file, "auto_prepend_file = x\n").unwrap();
        let said = surus(&["reload", project.path().to_str().unwrap()], &[]);
        assert_eq!((said.status, said.stdout.as_str()), (0, "reloaded\n"));
        assert_eq!(get(&serving, "/"), (200, "x".to_owned()));
        drop(serving);
        let said = check(project.path());
        assert_eq!(said.status, 0, "{}", said.stdout);
        let is_refused = said.stdout.contains("auto_prepend_file");
        assert!(!is_refused, "{}", said.stdout);
        let serving = Surus::serve(project.path(), &["--workers", "1"]);
        assert_eq!(get(&serving, "/"), (200, "x".to_owned()));
    }
}

#[test]
fn script_that_symfony_does_not_serve_in_a_loop_runs_on_classic() {
    let loader = r"<?php // $_ENV['APP_RUNTIME'] ?? 'Symfony\\Component\\Runtime\\SymfonyRuntime'";
    let runner = "vendor/symfony/runtime/Runner/FrankenPhpWorkerRunner.php";
    let project = project(&[
        (
            "public/index.php",
            "<?php require_once dirname(__DIR__) . '/vendor/autoload_runtime.php'; echo 'page';",
        ),
        ("vendor/autoload_runtime.php", loader),
        (runner, "<?php"),
        ("surus.toml", "[engine]\nscript = \"public/index.php\"\n"),
    ]);
    let cannot = "! the application cannot be booted, and `classic` will serve it: ";
    says(&check(project.path()).stdout, &[cannot]);
    let surus = Surus::serve(project.path(), &["--workers", "1"]);
    surus.wait_for_log(|log| log.contains("`classic` serves it instead"));
    assert_eq!(get(&surus, "/"), (200, "page".to_owned()));
}

#[test]
fn check_names_private_files_behind_links_and_in_directories_of_routes() {
    let files = [
        ("app/public/index.php", "<?php echo 'x';"),
        ("app/storage/dump.sql", ""),
        ("assets/deep/a.pem", ""),
    ];
    let project = project(&files);
    let (app, assets) = (project.path().join("app"), project.path().join("assets"));
    std::os::unix::fs::symlink("../storage", app.join("public/storage")).unwrap();
    let root = assets.display();
    let route = |prefix: &str| format!("[[route]]\nprefix = '{prefix}'\nroot = '{root}'\n");
    let rules = ["/assets/", "/deep/"].map(route).concat();
    std::fs::write(app.join("surus.toml"), rules).unwrap();
    let said = check(&app).stdout;
    let of_route = format!(
        "! the directory {} of a [[route]] has private files, which get 404: private keys \
         (deep/a.pem); move them elsewhere, or publish them",
        assets.canonicalize().unwrap().display()
    );
    says(
        &said,
        &[
            "! the document root has private files, which get 404: dumps and databases \
             (storage/dump.sql); move them elsewhere, for example next to a public/ directory",
            &of_route,
        ],
    );
    assert_eq!(said.matches("of a [[route]] has").count(), 1, "{said}");
}

#[test]
fn check_names_lines_of_htaccess_files_that_cannot_be_evaluated() {
    let project = project(&[
        ("index.php", "<?php echo 'x';"),
        (".htaccess", "Options -Indexes\n"),
        ("admin/.htaccess", "AuthType Basic\nRequire valid-user\n"),
    ]);
    let said = check(project.path()).stdout;
    let line = "admin/.htaccess:2: valid-user requires a password";
    says(&said, &[line, "prefix = \"/admin/\"", "deny = true"]);
    says(
        &said,
        &["! a URL without a file gets 404: no .htaccess rule"],
    );
    let rules = "RewriteEngine On\nRewriteRule ^ loader.php [L]\n";
    std::fs::write(project.path().join(".htaccess"), rules).unwrap();
    std::fs::write(project.path().join("loader.php"), "").unwrap();
    let said = check(project.path()).stdout;
    let found = said.lines().find(|line| line.contains("front controller"));
    assert!(found.unwrap().ends_with("loader.php"), "{said}");
}

#[test]
fn check_names_prepended_and_appended_files() {
    let ini = "[php]\nauto_append_file = \"/nowhere/after.php\"\n";
    let project = project(&[
        ("index.php", "<?php surus_serve(fn () => print 'x');"),
        (".user.ini", "auto_prepend_file = 'waf.php'\n"),
        ("waf.php", "<?php function waf() {}"),
        ("surus.toml", ini),
    ]);
    let said = check(project.path());
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    says(
        &said.stdout,
        &[
            "✓ prepended file   waf.php, runs before every request, and not in the boot",
            "✓ appended file    /nowhere/after.php, runs after every request, and not in the boot",
        ],
    );
    let worker = "[engine]\nname = \"worker\"\n";
    std::fs::write(project.path().join("surus.toml"), worker).unwrap();
    let said = check(project.path());
    assert_ne!(said.status, 0, "{}{}", said.stdout, said.stderr);
    let reason = "auto_prepend_file cannot run for every request on the engine `worker`";
    assert!(said.stdout.contains(reason), "{}", said.stdout);
}

#[test]
fn check_reports_everything_that_would_stop_the_start() {
    let configuration = "[site]\nroot = \"pubic\"\n[engine]\nsurus_php = \"/no/php\"\n";
    let project = project(&[("surus.toml", configuration)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.env_remove("SURUS_ENGINE_SURUS_PHP");
    let said = run(command
        .arg("check")
        .arg(project.path())
        .args(["--listen", "127.0.0.1:0"]));
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(&said.stdout, &["✗ `root` is the document root", "pubic"]);
    says(
        &said.stdout,
        &["✗ engine `classic`: engine.surus_php names /no/php"],
    );
    says(&said.stderr, &["2 problems would stop `surus serve`"]);
}

#[test]
fn check_names_a_log_file_that_cannot_be_opened_and_makes_none() {
    let files = [
        ("index.php", "<?php"),
        (
            "surus.toml",
            "log.file = 'none/a.log'\naccess_log.file = 'b.log'\n",
        ),
    ];
    let project = project(&files);
    let said = check(project.path());
    assert_eq!(said.status, 1);
    says(
        &said.stdout,
        &["✗ cannot open the file ", "/none/a.log (log.file)"],
    );
    assert!(!said.stdout.contains("b.log") && !project.path().join("b.log").exists());
}

#[test]
fn check_names_a_directory_that_keeps_php_out() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        return; // PHP then runs as the user of the tests
    }
    let project = project(&[("index.php", "")]);
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let said = check(project.path());
    says(
        &said.stdout,
        &["! the permissions of ", "keep www-data out"],
    );
}

fn check(project: &Path) -> Said {
    surus(
        &[
            "check",
            project.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ],
        &[],
    )
}

#[test]
fn suspicious_values_are_named() {
    let project = project(&[
        ("htdocs/index.php", "<?php echo 'hello';"),
        ("html/index.php", "<?php echo 'hello';"),
        (
            "surus.toml",
            "[http]\nlisten = \"127.0.0.1:0\"\ntrusted_proxies = [\"0.0.0.0/0\"]\n\
             [php]\nmemory_limit = \"256MB\"\nerror_reporting = \"E_EVERYTHING\"\n",
        ),
    ]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    let said = run(command.arg("check").arg(project.path()));
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    says(
        &said.stdout,
        &[
            "! html/ has an index.php, too, but ",
            "! memory_limit is \"256MB\"",
            "! error_reporting has \"E_EVERYTHING\"",
            "! http.trusted_proxies has 0.0.0.0/0",
        ],
    );
}
