//! Tests the external engines.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use surus::engines::external::FpmAddress;
use surus::event::{Failure, RewrittenUrl};
use surus::units::Time;

use super::selection::on_engine;
use super::subject::{Subject, kill, lives, until};

#[test]
fn killed_php_fpm_is_restarted() {
    on_engine("fpm", |engine| async move {
        let pids = engine.pids().await;
        let master = engine.starter(&pids).unwrap();
        kill(master, "KILL");
        until("its children end", || pids.iter().all(|pid| !lives(*pid))).await;
        let before = engine.pool().await.status().generation;
        let pool = engine.pool().await;
        until("another boot takes over", || {
            pool.status().generation > before
        })
        .await;
        assert_eq!(engine.text("echo 'hello';").await, "hello");
    });
}

#[test]
fn running_php_fpm_is_used() {
    on_engine("fpm", |engine| async move {
        let socket = engine.dir.path().join("fpm.sock");
        let configuration = format!(
            "[global]\ndaemonize = no\nerror_log = /dev/null\n[www]\nlisten = {}\npm = \
                static\npm.max_children = 1\nuser = www-data\n",
            socket.display()
        );
        let configuration = engine.write("fpm.conf", &configuration);
        let minor = surus_php::EXECUTABLE.rsplit("surus-php").next().unwrap();
        let mut fpm = Command::new(format!("php-fpm{minor}"))
            .arg("--fpm-config")
            .arg(configuration)
            .spawn()
            .unwrap();
        until("it listens", || socket.exists()).await;
        let address = FpmAddress::try_from(format!("unix:{}", socket.display())).unwrap();
        let engine = engine.with(|settings| settings.php_fpm_address = Some(address));
        let parent = "echo posix_getppid();";
        for _ in 0..3 {
            assert_eq!(engine.text(parent).await, fpm.id().to_string());
        }
        // A process whose client has disconnected is not interrupted; its connection is closed.
        let late = engine.answer(
            engine
                .php("sleep(1); echo 1;")
                .timeout(Duration::from_millis(200)),
        );
        assert!(matches!(late.await, Err(Failure::TimedOut)));
        assert_eq!(engine.text(parent).await, fpm.id().to_string());
        kill(fpm.id(), "TERM");
        fpm.wait().unwrap();
    });
}

#[test]
fn rewritten_url_changes_neither_script_nor_path_info() {
    let engines = [
        ("fpm", ""),
        ("cgi", ""),
        ("cli", "/shop a"),
        ("builtin", "/shop a"),
        ("classic", "/shop a"),
    ];
    for (name, url) in engines {
        on_engine(name, |engine| async move {
            let code = "echo $_SERVER['PATH_INFO'], ' ', $_SERVER['REDIRECT_URL'] ?? '';";
            let mut ask = engine.php(code);
            ask.script.path_info = "/a".into();
            ask.script.rewritten = Some(Arc::new(RewrittenUrl {
                path: "/shop a".into(),
                query: None,
            }));
            let answer = engine.answer(ask).await.unwrap();
            assert_eq!(answer.text(), format!("/a {url}"), "{name}");
        });
    }
}

#[test]
fn just_replaced_process_is_killed_at_a_deadline() {
    on_engine("fpm", |engine| async move {
        let engine = engine.workers(1).with(|settings| settings.max_requests = 1);
        for _ in 0..3 {
            assert_eq!(engine.text("echo 'one';").await, "one");
            let late = engine
                .php("while (true) {}")
                .timeout(Duration::from_millis(300));
            assert!(matches!(engine.answer(late).await, Err(Failure::TimedOut)));
        }
        assert_eq!(engine.text("echo 'next';").await, "next");
    });
}

#[test]
fn process_that_inherits_a_connection_does_not_delay_the_response() {
    for name in ["builtin", "fpm"] {
        on_engine(name, |engine| async move {
            let engine = engine.workers(1);
            let code = "exec('setsid sleep 20 >/dev/null 2>&1 &'); while (true) {}";
            let late = engine.php(code).timeout(Duration::from_millis(500));
            assert!(matches!(engine.answer(late).await, Err(Failure::TimedOut)));
            assert_eq!(engine.text("echo 'next';").await, "next");
            for write in ["", "echo 'begun'; flush();"] {
                let crash = format!(
                    "exec('setsid sleep 20 >/dev/null 2>&1 &'); {write} posix_kill(posix_getpid(), \
                        9);"
                );
                let failed = engine.answer(engine.php(&crash)).await.unwrap_err();
                assert!(matches!(failed, Failure::WorkerCrashed(_)), "{failed:?}");
                assert_eq!(engine.text("echo 'next';").await, "next");
            }
        });
    }
}

#[test]
fn endless_log_output_does_not_block_requests() {
    for name in ["cgi", "cli"] {
        on_engine(name, |engine| async move {
            let engine = engine.workers(1);
            let pid = engine.writable().join("pid");
            let chatty = format!("echo $$ >'{}'; exec yes >&2", pid.display());
            let chatty = engine.write("chatty", &chatty);
            let code = format!("exec('sh {} >/dev/null &'); echo 'ok';", chatty.display());
            assert_eq!(engine.text(&code).await, "ok");
            let next = engine.text("echo 'next';");
            let next = tokio::time::timeout(Duration::from_secs(30), next).await;
            until("it has begun", || {
                std::fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n'))
            })
            .await;
            let pid = std::fs::read_to_string(&pid).unwrap();
            kill(pid.trim().parse().unwrap(), "KILL");
            assert_eq!(next.expect("an answer"), "next");
        });
    }
}

#[test]
fn builtin_server_that_does_not_restart_fails_its_requests() {
    on_engine("builtin", |engine| async move {
        let hangs = engine.writable().join("hangs");
        let minor = surus_php::EXECUTABLE.rsplit("surus-php").next().unwrap();
        let program = format!(
            "#!/bin/sh\n[ -e '{}' ] && exec sleep 600\nexec php{minor} \"$@\"\n",
            hangs.display()
        );
        let program = engine.write("php", &program);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut engine = engine
            .workers(1)
            .with(|settings| settings.php_cli = Some(program));
        for seconds in [2, 8, 30] {
            engine.settings.boot_timeout = Time::seconds(seconds);
            if fails_requests_while_it_hangs(&engine, &hangs).await {
                return;
            }
            engine.forget();
        }
        panic!("it does not start in time");
    });
}

/// False if a start took longer than engine.boot_timeout, as on a busy machine.
async fn fails_requests_while_it_hangs(engine: &Subject, hangs: &Path) -> bool {
    if !engine.is_booted().await {
        return false;
    }
    assert_eq!(engine.text("echo 'first';").await, "first");
    std::fs::write(hangs, "").unwrap();
    let crash = engine.php("posix_kill(posix_getpid(), 9);");
    assert!(engine.answer(crash).await.is_err());
    assert!(engine.answer(engine.php("")).await.is_err());
    std::fs::remove_file(hangs).unwrap();
    let next = engine.answer(engine.php("echo 'next';")).await;
    next.is_ok_and(|next| next.text() == "next")
}

#[test]
fn request_variables_do_not_reach_other_requests() {
    on_engine("builtin", |engine| async move {
        let engine = engine.workers(2);
        let victim = engine.php("echo 'mine';").header("x-secret", "s3cret");
        engine.answer(victim).await.unwrap();
        for slot in ["0", "1"] {
            let name = http::HeaderName::from_static("surus_variables");
            let mut ask = engine
                .php("echo $_SERVER['HTTP_X_SECRET'] ?? 'none';")
                .header("surus-variables", "7");
            ask.request
                .headers_mut()
                .insert(name, slot.parse().unwrap());
            assert_eq!(engine.answer(ask).await.unwrap().text(), "none");
        }
    });
}

#[test]
fn settings_apply_with_special_characters_and_open_basedir() {
    for name in ["fpm", "builtin", "cgi", "cli"] {
        on_engine(name, |engine| async move {
            let root = engine.dir.path().to_str().unwrap().to_string();
            let engine = engine
                .ini("arg_separator.output", "&")
                .ini("user_agent", "Mozilla (compatible)")
                .ini("open_basedir", &root)
                .ini("disable_functions", "putenv,phpinfo");
            let state = "echo json_encode([ini_get('arg_separator.output'), ini_get('user_agent'), \
                function_exists('phpinfo'), @file_exists('/etc/passwd')]);";
            assert_eq!(
                engine.text(state).await,
                r#"["&","Mozilla (compatible)",false,false]"#
            );
        });
    }
}

#[test]
fn auto_prepend_and_append_files_run() {
    for name in ["fpm", "builtin", "cgi", "cli"] {
        on_engine(name, |engine| async move {
            let before = engine.write("before.php", "<?php echo 'before ';");
            let behind = engine.write("behind.php", "<?php echo ' behind';");
            let engine = engine
                .ini("auto_prepend_file", before.to_str().unwrap())
                .ini("auto_append_file", behind.to_str().unwrap());
            assert_eq!(engine.text("echo 'script';").await, "before script behind");
        });
    }
}

#[test]
fn user_ini_of_document_root_applies() {
    for name in ["fpm", "builtin", "cgi", "cli"] {
        on_engine(name, |engine| async move {
            engine.write("before.php", "<?php echo 'before ';");
            engine.write("behind.php", "<?php echo ' behind';");
            let text = "auto_prepend_file = before.php\nauto_append_file = \"behind.php\"\n\
                        user_agent = Ours\n";
            engine.write(".user.ini", text);
            let code = "echo ini_get('user_agent');";
            assert_eq!(engine.text(code).await, "before Ours behind", "{name}");
        });
    }
}

/// PHP takes the settings as it reads them.
#[test]
fn user_ini_with_a_syntax_error_applies_up_to_the_error() {
    for name in ["fpm", "builtin", "cgi", "cli"] {
        for wrong in ["user_agent = (", "user_agent = \"x", "[a"] {
            on_engine(name, move |engine| async move {
                engine.write("before.php", "<?php echo 'before ';");
                let text =
                    format!("auto_prepend_file = before.php\n; so\n{wrong}\nuser_agent = Late\n");
                engine.write(".user.ini", &text);
                let code = "echo ini_get('user_agent') ?: 'none';";
                assert_eq!(engine.text(code).await, "before none", "{name} {wrong}");
            });
        }
    }
}

#[test]
fn user_ini_overrides_auto_files_of_php_ini() {
    for name in ["fpm", "builtin", "cgi", "cli"] {
        on_engine(name, |engine| async move {
            let before = engine.write("before.php", "<?php echo 'before ';");
            engine.write("own.php", "<?php echo 'own ';");
            engine.write(".user.ini", "auto_prepend_file = own.php\n");
            let engine = engine.ini("auto_prepend_file", before.to_str().unwrap());
            let text = engine.text("echo 'script';").await;
            // From PHP 8.4 on, `php -S` includes the file of php.ini before any code can prevent
            // it.
            let text = match name {
                "builtin" => text.strip_prefix("before ").unwrap_or(&text),
                _ => &text,
            };
            assert_eq!(text, "own script", "{name}");
        });
    }
}

#[test]
fn php_started_by_a_script_works() {
    on_engine("cli", |engine| async move {
        let code = "echo shell_exec(PHP_BINARY.' -r \"header(1); echo 6 * 7;\"');";
        assert_eq!(engine.text(code).await.trim(), "42");
    });
}

#[test]
fn missing_php_fpm_is_reported() {
    on_engine("fpm", |engine| async move {
        let address = FpmAddress::try_from("unix:/nowhere/fpm.sock".to_string()).unwrap();
        let engine = engine.with(|settings| settings.php_fpm_address = Some(address));
        let error = format!("{:#}", engine.try_boot().await.err().unwrap());
        assert!(
            error.contains("unix:/nowhere/fpm.sock") && error.contains("engine.php_fpm_address"),
            "{error}"
        );
    });
}

#[test]
fn builtin_server_rejects_requests_of_other_processes() {
    on_engine("builtin", |engine| async move {
        let secret = engine.file("echo 'secret';");
        // The address as PHP sees it.
        let pid = engine.text("echo getmypid();").await;
        let port = listens(&pid);
        for header in ["", "surus-key: guessed\r\nsurus-variables: 0\r\n"] {
            let request = format!(
                "GET /{} HTTP/1.0\r\n{header}\r\n",
                secret.file_name().unwrap().to_str().unwrap()
            );
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.0 403"), "{answer}");
            assert!(!answer.contains("secret"), "{answer}");
        }
        assert_eq!(engine.text("echo 'fine';").await, "fine");
    });
}

/// The port at which a process listens.
fn listens(pid: &str) -> u16 {
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?.strip_prefix("socket:[")?.to_string();
            Some(link.trim_end_matches(']').to_string())
        })
        .collect();
    // "sl local_address rem_address st … inode …", with 0A for a socket that listens (proc_net_tcp
    // in the kernel's documentation).
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_its = *fields.get(3)? == "0A" && inodes.iter().any(|inode| inode == fields[9]);
        let port = fields[1].rsplit(':').next()?;
        is_its.then(|| u16::from_str_radix(port, 16).unwrap())
    });
    port.unwrap()
}
