//! Tests of console commands as events, with the Composer package's library.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Api, Call, Event};
use super::function::{Dir, Function};
use crate::common::php::cli;

/// A `bin/console` without a framework. The first word selects what it does.
const SCRIPT: &str = r#"#!/usr/bin/env php
<?php
echo "begun $argv[1]\n";
switch ($argv[1]) {
    case 'wait':
        while (!is_file(__DIR__.'/go')) {
            usleep(5000);
        }
        fwrite(STDERR, "gone on\n");
        break;
    case 'hang':
        echo 'half a line';
        file_put_contents(__DIR__.'/pid', getmypid());
        sleep(60);
        break;
    case 'large':
        for ($i = 0; $i < 4_000; $i++) {
            echo str_repeat("\e[0m", 500), "\n";
        }
        echo "the end\n";
        break;
    case 'crash':
        echo 'row 17 ';
        posix_kill(getmypid(), 11);
        sleep(9);
        break;
    case 'type':
        echo 'row 18 ';
        strlen([]);
        break;
    case 'leave':
        echo "left\n";
        exit;
    case 'exit':
    case 'print':
    case 'fail':
        echo "no such order\n";
        exit(4);
}
"#;

/// The same as a Symfony application, whose commands run in the worker.
const APPLICATION: &str = r#"<?php
require '/usr/share/php/Symfony/Component/Console/autoload.php';
$app = new Symfony\Component\Console\Application();
$names = ['wait', 'hang', 'large', 'crash', 'type', 'memory', 'leave', 'exit', 'print', 'fail'];
foreach ($names as $name) {
    $app->register($name)->setCode(function ($input, $output) use ($name) {
        $output->writeln("begun $name");
        switch ($name) {
            case 'wait':
                while (!is_file(__DIR__.'/go')) {
                    usleep(5000);
                    clearstatcache();
                }
                $output->write("gone ");
                $output->write("on\n");
                break;
            case 'hang':
                $output->write('half a line');
                sleep(60);
                break;
            case 'large':
                $line = str_repeat("\e[0m", 500)."\n";
                for ($i = 0; $i < 4_000; $i++) {
                    $output->write($line, false, $output::OUTPUT_RAW);
                }
                $output->writeln('the end');
                break;
            case 'crash':
                $output->write('row 17 ');
                posix_kill(getmypid(), 9);
                sleep(9);
            case 'type':
                echo 'row 18 ';
                strlen([]);
                break;
            case 'memory':
                echo 'row 19 ';
                ini_set('memory_limit', '64M');
                str_repeat('x', 1 << 30);
                break;
            case 'leave':
                echo "left\n";
                exit;
            case 'exit':
                echo "no such order\n";
                exit(4);
            case 'print':
                ob_start();
                echo "no such order\n";
                return 4;
            case 'fail':
                $output->writeln('no such order');
                return 4;
        }
        return 0;
    });
}
return $app;
"#;

const LIBRARY: &str = "vendor/surus/surus/lambda/events.php";

fn function(engine: &str, console: &str) -> Function {
    let dir = Dir::new(&[("console", console)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "console"),
        ("SURUS_LAMBDA_SCRIPT", LIBRARY),
        ("SURUS_ENGINE_NAME", engine),
        ("PHP_BINARY", &cli()),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    function.api.until_waiting(1);
    function
}

/// Every type of console on every type of engine.
fn each(test: impl Fn(&Function, &str)) {
    for engine in ["classic", "worker", "rewind"] {
        for console in [SCRIPT, APPLICATION] {
            let kind = if console == SCRIPT {
                "script"
            } else {
                "application"
            };
            test(&function(engine, console), kind);
        }
    }
}

fn command(id: &str, command: &str) -> Event {
    Event::new(id, &json!({ "command": command }))
}

fn error(call: &Call) -> (Value, String) {
    assert!(call.path.ends_with("/error"), "{}", call.path);
    let error = call.json();
    let message = error["errorMessage"].as_str().unwrap().to_string();
    (error, message)
}

#[test]
fn console_output_is_logged_while_the_command_runs() {
    each(|function, kind| {
        function.api.send(command("w", "wait"));
        function.wait_for_log("begun wait");
        function.dir.write("go", "now");
        let answer = function.api.answer("w").json();
        let output = "begun wait\ngone on\n";
        assert_eq!(answer, json!({"exitCode": 0, "output": output}), "{kind}");
        function.wait_for_log("gone on");
    });
}

#[test]
fn console_output_is_logged_after_a_timeout() {
    each(|function, kind| {
        let hang = |id: &str| command(id, "hang");
        let call = function.ask_in_time(hang, |_| function.soon_logs("half a line", 0));
        assert_eq!(error(&call).0["errorType"], "Function.Timeout", "{kind}");
        function.wait_for_log("begun hang");
        function.wait_for_log("half a line");
        if kind == "script" {
            // The command does not continue during the next event.
            let pid = function.dir.read("pid");
            let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            for _ in 0..2000 {
                if has_ended(&stat()) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(has_ended(&stat()), "{}", stat());
        }
        let next = function.ask(command("n", "fail"));
        assert_eq!(error(&next).0["exitCode"], 4, "{kind}");
    });
}

/// Whether a process, by its line in /proc/PID/stat, runs no more. It has exited, is a zombie, or
/// on its way there (PF_EXITING, which may take long on a busy machine).
fn has_ended(stat: &str) -> bool {
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return true;
    };
    let fields: Vec<&str> = fields.split(' ').collect();
    let flags: u32 = fields[6].parse().unwrap();
    fields[0] == "Z" || flags & 4 != 0
}

#[test]
fn console_output_is_logged_after_a_crash() {
    each(|function, kind| {
        let (error, message) = error(&function.ask(command("c", "crash")));
        function.wait_for_log("begun crash");
        function.wait_for_log("row 17");
        if kind == "script" {
            assert_eq!(error["errorType"], "CommandFailed");
            assert!(message.contains("signal 11"), "{message}");
        } else {
            assert_eq!(error["errorType"], "Runtime.ExitError");
        }
    });
}

#[test]
fn console_output_above_the_limit_is_shortened() {
    each(|function, kind| {
        let call = function.ask(command("l", "large").within(Duration::from_secs(600)));
        assert!(call.path.ends_with("/response"), "{kind}: {}", call.path);
        let answer = call.json();
        assert_eq!(answer["exitCode"], 0);
        let output = answer["output"].as_str().unwrap();
        assert!(output.ends_with("the end\n"), "{kind}");
        // 4,000 lines of 2,001 bytes, one of 12 and one of 8.
        let (first, rest) = output.split_once('\n').unwrap();
        let left_out = 4_000 * 2_001 + 12 + 8 - rest.len();
        assert!(
            first.contains(&format!("{left_out} bytes")),
            "{kind}: {first}"
        );
        function.wait_for_log("begun large");
    });
}

/// A command of an application may print past its output, and end its process.
#[test]
fn failed_command_reports_exit_code_and_output() {
    each(|function, kind| {
        for name in ["fail", "print", "exit"] {
            let (error, message) = error(&function.ask(command(name, name)));
            assert_eq!(error["errorType"], "CommandFailed", "{kind} {name}");
            assert_eq!(error["exitCode"], 4, "{kind} {name}");
            let output = format!("begun {name}\nno such order\n");
            assert_eq!(error["output"], output.as_str(), "{kind} {name}");
            assert!(message.contains("exit code 4"), "{message}");
            assert!(message.ends_with(output.trim_end()), "{message}");
        }
    });
}

#[test]
fn command_that_calls_exit_without_a_status_succeeds() {
    each(|function, kind| {
        let answer = function.ask(command("l", "leave")).json();
        let output = "begun leave\nleft\n";
        assert_eq!(answer, json!({"exitCode": 0, "output": output}), "{kind}");
    });
}

/// Symfony turns some errors into a status, depending on its version.
#[test]
fn command_that_ends_in_an_error_reports_exit_code_and_output() {
    each(|function, kind| {
        let (body, _) = error(&function.ask(command("t", "type")));
        assert!(body["exitCode"].as_i64().is_some_and(|code| code > 0));
        let output = body["output"].as_str().unwrap();
        assert!(output.starts_with("begun type\nrow 18 "), "{kind}: {body}");
        function.wait_for_log("row 18");
        if kind == "application" {
            let (body, message) = error(&function.ask(command("m", "memory")));
            assert_eq!(body["errorType"], "FatalError", "{message}");
            assert_eq!(body["exitCode"], 255);
            assert_eq!(body["output"], "begun memory\nrow 19 ");
        }
    });
}
