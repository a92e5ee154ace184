//! Does the command line say what, where and what to do?
#![allow(clippy::unwrap_used)]

mod common;

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::Surus;

struct Said {
    status: i32,
    stdout: String,
    stderr: String,
}

fn surus(args: &[&str], env: &[(&str, &str)]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    run(command.args(args).envs(env.iter().copied()))
}

fn run(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Said {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A project with these files.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let project = tempfile::tempdir().unwrap();
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in files {
        let path = project.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    project
}

/// The error of `surus serve` with this configuration file.
fn refused(configuration: &str) -> String {
    let project = project(&[("surus.toml", configuration), ("index.php", "")]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    // The sanitizers' run sets it, and the environment comes before the file.
    command.env_remove("SURUS_ENGINE_PHP");
    command.arg("serve").arg(project.path());
    // Beside other tests nobody has the usual address for himself.
    if !configuration.contains("listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let said = run(&mut command);
    assert_eq!(said.status, 1, "{}", said.stderr);
    said.stderr
}

/// `text` has all of `parts`.
#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn every_subcommand_explains_itself() {
    let all = surus(&["--help"], &[]);
    for (command, option) in [
        ("serve", "--listen"),
        ("check", "--engine"),
        ("status", "--json"),
        ("reload", "--config"),
        ("engines", "Usage: surus engines"),
    ] {
        says(&all.stdout, &[command]);
        let said = surus(&[command, "--help"], &[]);
        assert_eq!(said.status, 0);
        says(&said.stdout, &[option]);
        // Every option has a sentence.
        for line in said.stdout.lines().map(str::trim) {
            let named = line.starts_with('-') || line.starts_with('[');
            assert!(
                !named || line.contains("  "),
                "{command}: nothing is said about {line}"
            );
        }
    }
}

#[test]
fn a_wrong_command_line_has_a_status_of_its_own() {
    let said = surus(&["serve", "--listen", "nowhere"], &[]);
    assert_eq!(said.status, 2);
    says(&said.stderr, &["`nowhere` is no address", "127.0.0.1:8080"]);
    assert_eq!(surus(&["dance"], &[]).status, 2);
}

#[test]
fn the_engines_are_listed_with_what_they_do() {
    let said = surus(&["engines"], &[]);
    says(
        &said.stdout,
        &["classic", "published as", "application boots", "survives"],
    );
}

#[test]
fn an_unknown_key_is_named_with_file_line_and_what_there_is() {
    let error = refused("[http]\nlisten = [\"127.0.0.1:0\"]\nmax_bodi = \"8M\"\n");
    says(&error, &["surus.toml:3: ", "`max_bodi`", "`max_body`"]);
    let error = refused("\n[htpp]\n");
    says(&error, &["surus.toml:2: ", "`htpp`", "`http`"]);
}

#[test]
fn a_wrong_value_is_named_with_the_words_that_are_allowed() {
    says(
        &refused("[log]\nformat = \"xml\"\n"),
        &["surus.toml:2: ", "`xml`", "`text`", "`json`"],
    );
    says(
        &refused("[http]\n\n\nmax_body = \"lots\"\n"),
        &["surus.toml:4: ", "`lots`", "`8M`"],
    );
    says(
        &refused("[http]\ntimeout = 30\n"),
        &["surus.toml:2: ", "\"30s\""],
    );
    says(
        &refused("[site]\nsymlinks = \"yes\"\n"),
        &["surus.toml:2: ", "`inside`", "`follow`"],
    );
    says(
        &refused("[log]\nlevel = \"surus=loud\"\n"),
        &["log.level `surus=loud`", "`debug`"],
    );
    says(
        &refused("[log]\nlevel = \"loud\"\n"),
        &["log.level `loud`", "`debug`"],
    );
    says(
        &refused("[engine]\nworkers = 0\n"),
        &["engine.workers is 0", "at least 1"],
    );
    says(&refused("[http]\nlisten = []\n"), &["http.listen is empty"]);
    says(&refused("[http\n"), &["surus.toml:1: "]);
}

#[test]
fn a_number_out_of_range_is_named_with_the_range() {
    for (section, key, value, range) in [
        ("http", "max_headers", "999999999999", "from 1 to 10000"),
        ("http", "max_headers", "0", "from 1 to 10000"),
        ("http", "max_headers", "-1", "from 1 to 10000"),
        ("http", "max_connections", "0", "from 1 to 10000000"),
        ("http", "max_head", "1024", "from 8K to 16M"),
        ("http", "max_uri", "0", "from 1 to 16M"),
        (
            "engine",
            "queue",
            "18446744073709551615",
            "from 0 to 10000000",
        ),
        ("engine", "queue", "\"many\"", "from 0 to 10000000"),
    ] {
        let error = refused(&format!("[{section}]\n{key} = {value}\n"));
        let name = format!("{section}.{key}");
        let value = value.trim_matches('"').replace("1024", "1K");
        says(&error, &["surus.toml:2: ", &name, &value, range]);
    }
    says(
        &refused("[engine]\nmax_events = 18446744073709551615\n"),
        &["surus.toml:2: "],
    );
    let project = project(&[]);
    let said = surus(
        &["serve", project.path().to_str().unwrap()],
        &[("SURUS_HTTP_MAX_HEADERS", "0")],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &["SURUS_HTTP_MAX_HEADERS=`0`", "from 1 to 10000"],
    );
}

#[test]
fn a_variable_that_no_environment_can_hold_is_named() {
    for section in ["env", "pool.other.env"] {
        let error = refused(&format!("[{section}]\nFINE = \"x\"\n\"A=B\" = \"x\"\n"));
        says(&error, &["surus.toml:", "\"A=B\"", "neither `=`"]);
        let error = refused(&format!("[{section}]\nSECRET = \"hush\\u0000\"\n"));
        says(&error, &["surus.toml:", "SECRET", "NUL byte"]);
        assert!(!error.contains("hush"), "{error}");
    }
    says(
        &refused("[php]\nprecision = \"1\\u0000\"\n"),
        &["\"precision\"", "NUL bytes"],
    );
}

#[test]
fn a_program_that_is_no_surus_php_is_named_with_how_it_ended() {
    for (program, how) in [
        ("/bin/true", "exit status 0"),
        ("/bin/false", "exit status 1"),
    ] {
        says(
            &refused(&format!("[engine]\nphp = \"{program}\"\n")),
            &["PHP did not start", program, how, "(engine.php)"],
        );
    }
}

#[test]
fn an_unknown_engine_is_answered_with_those_that_there_are() {
    says(
        &refused("[engine]\nname = \"clasic\"\n"),
        &["surus.toml:2: ", "`clasic`", "classic"],
    );
    let project = project(&[]);
    let said = surus(
        &["serve", project.path().to_str().unwrap(), "--engine", "x"],
        &[],
    );
    assert_eq!(said.status, 1);
    says(&said.stderr, &["--engine", "no engine `x`", "classic"]);
}

#[test]
fn a_wrong_environment_variable_is_named() {
    let project = project(&[]);
    let error = |name: &str, value: &str| {
        let said = surus(
            &["serve", project.path().to_str().unwrap()],
            &[(name, value)],
        );
        assert_eq!(said.status, 1);
        said.stderr
    };
    says(
        &error("SURUS_HTTP_MAX_BODY", "lots"),
        &["SURUS_HTTP_MAX_BODY=`lots`", "`8M`"],
    );
    says(
        &error("SURUS_HTTP_MAX_BODI", "1"),
        &["SURUS_HTTP_MAX_BODI", "`max_body`"],
    );
    says(
        &error("SURUS_ENGINE_NAME", "x"),
        &["SURUS_ENGINE_NAME=`x`", "classic"],
    );
}

#[test]
fn a_missing_directory_is_named() {
    for command in ["serve", "check", "status", "reload"] {
        let said = surus(&[command, "/does/not/exist"], &[]);
        assert_eq!(said.status, 1);
        says(
            &said.stderr,
            &["/does/not/exist is not a directory", "name the directory"],
        );
    }
    says(
        &refused("[site]\nroot = \"pubic\"\n"),
        &["pubic", "document root"],
    );
    says(
        &refused("[engine]\nphp = \"/no/php\"\n"),
        &["engine.php", "/no/php", "does not exist"],
    );
    let said = surus(&["serve", "/tmp", "--config", "/no/surus.toml"], &[]);
    says(&said.stderr, &["cannot read /no/surus.toml"]);
}

#[test]
fn a_proxy_protocol_without_proxies_stops_the_start() {
    let project = project(&[]);
    let said = surus(
        &["serve", project.path().to_str().unwrap(), "--listen", "0"],
        &[("SURUS_HTTP_PROXY_PROTOCOL", "true")],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &["http.proxy_protocol", "http.trusted_proxies"],
    );
}

#[test]
fn a_port_in_use_is_named_with_what_helps() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let project = project(&[]);
    let said = surus(
        &[
            "serve",
            project.path().to_str().unwrap(),
            "--listen",
            &address,
        ],
        &[],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[&address, "another process", "--listen", "http.listen"],
    );
}

#[test]
fn a_document_root_that_cannot_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    // Root may read everything, so another runs it, from where everybody may.
    let directory = project(&[("app/index.php", "")]);
    let program = directory.path().join("surus");
    std::fs::copy(env!("CARGO_BIN_EXE_surus"), &program).unwrap();
    let closed = directory.path().join("app");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = Command::new(&program);
    command
        .arg("serve")
        .arg(&closed)
        .args(["--listen", "127.0.0.1:0"]);
    command.current_dir("/").env_remove("XDG_RUNTIME_DIR");
    if is_root() {
        command.uid(65534).gid(65534);
    }
    let said = run(&mut command);
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[closed.to_str().unwrap(), "Permission denied"],
    );
}

#[test]
fn asking_a_surus_that_does_not_run_says_so() {
    let project = project(&[]);
    for command in ["status", "reload"] {
        let said = surus(&[command, project.path().to_str().unwrap()], &[]);
        assert_eq!(said.status, 1);
        says(
            &said.stderr,
            &["no running surus answers at unix:", "this directory"],
        );
    }
}

#[test]
fn a_running_surus_answers() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let directory = project.path().to_str().unwrap();
    let _serving = Surus::serve(project.path(), &["--workers", "2"]);
    let said = surus(&["status", directory], &[]);
    says(&said.stdout, &["classic: PHP 8.", "generation 1", "idle"]);
    let said = surus(&["status", "--json", directory], &[]);
    assert!(said.stdout.starts_with("[{"), "{}", said.stdout);
    let said = surus(&["reload", directory], &[]);
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (0, "reloaded\n"),
        "{}",
        said.stderr
    );
    says(
        &surus(&["status", directory], &[]).stdout,
        &["generation 2"],
    );
    let said = surus(&["check", directory], &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    says(&said.stdout, &["! a surus runs for this project already"]);
}

#[test]
fn another_project_is_never_reloaded() {
    let both = project(&[
        ("a/b/index.php", "<?php echo 'one';"),
        ("a-b/index.php", "<?php echo 'other';"),
    ]);
    let (one, other) = (both.path().join("a/b"), both.path().join("a-b"));
    let _serving = Surus::serve(&one, &["--workers", "1"]);
    let said = surus(&["reload", other.to_str().unwrap()], &[]);
    assert_eq!(said.status, 1);
    says(&said.stderr, &["no running surus answers"]);
    let _other = Surus::serve(&other, &["--workers", "1"]);
    let said = surus(&["reload", other.to_str().unwrap()], &[]);
    assert_eq!(said.status, 0, "{}", said.stderr);

    let socket = format!("unix:{}", both.path().join("admin.sock").display());
    let env = [("SURUS_ADMIN_LISTEN", socket.as_str())];
    let third = project(&[("index.php", "")]);
    let _third = Surus::spawn(third.path(), &["--workers", "1"], &env).unwrap();
    for command in ["reload", "status"] {
        let said = surus(&[command, one.to_str().unwrap()], &env);
        assert_eq!(said.status, 1);
        let serves = format!("serves {}, not {}", third.path().display(), one.display());
        says(&said.stderr, &[&socket, &serves, "admin.listen"]);
        let link = both.path().join(command);
        std::os::unix::fs::symlink(third.path(), &link).unwrap();
        let said = surus(&[command, link.to_str().unwrap()], &env);
        assert_eq!(said.status, 0, "{}", said.stderr);
    }
}

#[test]
fn an_admin_socket_is_not_made_where_another_user_could_replace_it() {
    if !is_root() {
        return; // Nobody else is there who could have made the directory
    }
    let directory = project(&[("app/index.php", ""), ("tmp/surus-65534/x", "")]);
    let program = directory.path().join("surus");
    std::fs::copy(env!("CARGO_BIN_EXE_surus"), &program).unwrap();
    let mut command = Command::new(&program);
    command
        .arg("serve")
        .arg(directory.path().join("app"))
        .args(["--listen", "127.0.0.1:0"])
        .env("TMPDIR", directory.path().join("tmp"))
        .current_dir("/")
        .env_remove("XDG_RUNTIME_DIR")
        .uid(65534)
        .gid(65534);
    let said = run(&mut command);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "tmp/surus-65534 ",
            "belongs to another user (0)",
            "admin.listen",
        ],
    );
}

#[test]
fn check_says_what_would_run() {
    let configuration = "[engine]\nworkers = 3\n[php]\npost_max_size = \"64M\"\nupload_max_filesize = \"60M\"\n\
                         display_errors = false\n\"opcache.validate_timestamps\" = 0\n[[route]]\nprefix = \"/x\"\ndeny = true\n";
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
            "✓ listens at       http://127.0.0.1:0\n",
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
            "✓ limits           http.timeout 1m, http.max_body 64M",
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
fn check_says_what_contradicts() {
    let composer = r#"{"require": {"ext-ctype": "*", "ext-of-nobody": "*"}}"#;
    let configuration = "[http]\nmax_body = \"1M\"\n[php]\ndisplay_errors = true\n";
    let project = project(&[
        ("composer.json", composer),
        ("surus.toml", configuration),
        ("about.php", ""),
    ]);
    let said = check(project.path());
    assert_eq!(said.status, 0, "{}{}", said.stdout, said.stderr);
    says(
        &said.stdout,
        &[
            "! there is no front controller",
            "! the document root is the project itself, which holds composer.json:",
            "! post_max_size is 8M, but bodies above 1M are refused",
            "! display_errors is on",
            "! composer.json requires ext-of-nobody",
        ],
    );
    assert!(!said.stdout.contains("ext-ctype"), "{}", said.stdout);
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
    assert_eq!(booted.len(), 2, "{booted:?}");
    says(&booted[0], &["public/.user.ini", "`rewind`", "worker.php"]);
    // The way to this script leads through the one, but not through the other.
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
fn check_finds_all_that_would_stop_the_start() {
    let configuration =
        "[site]\nroot = \"pubic\"\n[engine]\nphp = \"/no/php\"\n[log]\nlevel = \"surus=loud\"\n";
    let project = project(&[("surus.toml", configuration)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.env_remove("SURUS_ENGINE_PHP");
    let said = run(command
        .arg("check")
        .arg(project.path())
        .args(["--listen", "127.0.0.1:0"]));
    assert_eq!(said.status, 1, "{}", said.stdout);
    says(
        &said.stdout,
        &["✗ `root` is the document root", "pubic", "✗ log.level"],
    );
    says(
        &said.stdout,
        &["✗ engine `classic`: engine.php names /no/php"],
    );
    says(&said.stderr, &["3 things would stop `surus serve`"]);
}

#[test]
fn check_names_a_directory_that_keeps_php_out() {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        return; // PHP then runs as whoever runs the tests
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

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}
