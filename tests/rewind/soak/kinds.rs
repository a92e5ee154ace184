//! Scripts that leave every kind of state behind. Each responds with its event's number, which is 1
//! only if nothing was left.

use std::os::unix::fs::PermissionsExt;

use super::{Body, Client, Question, soak};
use crate::common::Surus;

const BOOT: &str = r#"<?php
class Counter { public static $count = 0; public $log = []; }
$counter = new Counter;
$table = range(1, 20000);
surus_serve(function () use ($counter, &$table) {
    // Anything that an event leaves behind would change the next number.
    $number = ++Counter::$count + count($counter->log) + count($table) - 20000;
    $counter->log[] = str_repeat('x', 100);
    $table[] = $number;
    $n = (int) $_GET['n'];
    switch ($_GET['do']) {
        case 'hello':
            break;
        case 'string':
            $string = str_repeat(chr(65 + $n % 26), 6 << 20);
            $number += strlen($string) - (6 << 20) + (md5($string) === md5($string) ? 0 : 1);
            break;
        case 'class':
            require __DIR__."/classes/C{$n}.php";
            $class = "C$n";
            $number += (new $class)->value() - $n + $class::$count++;
            break;
        case 'session':
            session_id("soak$n");
            session_start();
            $_SESSION['n'] ??= $n;
            $number += $_SESSION['n'] - $n;
            session_write_close();
            break;
        case 'throw':
            throw new RuntimeException("n $n");
        case 'exit':
            echo "$number $n";
            exit;
        case 'fatal':
            no_such_function();
        case 'array':
            $array = [];
            for ($i = 0; $i < 20000; $i++) {
                $array["k$i"] = [$i];
            }
            $number += count($array) - 20000;
            break;
        case 'ini':
            ini_set('precision', 3);
            setlocale(LC_ALL, 'C.UTF-8');
            mb_internal_encoding('ISO-8859-1');
            $f = fopen('php://temp', 'w');
            $g = fopen(__FILE__, 'r');
            ob_start();
            break;
    }
    echo "$number $n";
});
"#;

const CLASSES: u64 = 2000;

/// The action, its share in percent, and the expected status.
const MIX: [(&str, u64, u16); 9] = [
    ("hello", 48, 200),
    ("class", 20, 200),
    ("session", 8, 200),
    ("exit", 6, 200),
    ("throw", 5, 500),
    ("ini", 5, 200),
    ("array", 4, 200),
    ("fatal", 2, 500),
    ("string", 2, 200),
];

#[test]
#[ignore = "long; SOAK_REQUESTS says how long"]
fn every_kind_of_script_answers_like_the_first_time() {
    let dir = app();
    let sessions = format!(
        "session.save_path={}",
        dir.path().join("sessions").display()
    );
    let off = ["-d", "display_errors=0", "-d", "log_errors=0"];
    let args = [&["--workers", "2", "-d", &sessions], &off[..]].concat();
    let env = [
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_ENGINE_NAME", "rewind"),
        ("SURUS_COMPRESS_ENABLED", "false"),
    ];
    let surus = Surus::spawn(dir.path(), &args, &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    soak(&surus, || ask);
}

fn ask(client: &mut Client) -> Question {
    let mut left = client.below(100);
    let (what, _, status) = MIX
        .into_iter()
        .find(|(_, share, _)| {
            let found = left < *share;
            left = left.saturating_sub(*share);
            found
        })
        .unwrap();
    let n = client.below(CLASSES);
    let body = if status == 200 {
        format!("1 {n}")
    } else {
        String::new()
    };
    Question::get(&format!("/?do={what}&n={n}"), status, Body::Is(body))
}

fn app() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(dir.path().join("index.php"), BOOT).unwrap();
    std::fs::create_dir(dir.path().join("classes")).unwrap();
    let sessions = dir.path().join("sessions");
    std::fs::create_dir(&sessions).unwrap();
    std::fs::set_permissions(&sessions, PermissionsExt::from_mode(0o777)).unwrap();
    for n in 0..CLASSES {
        let code = format!(
            "<?php
            class C{n} {{
                public static $count = 0;
                private const N = {n};
                function value() {{
                    static $calls = 0;
                    return self::N + $calls++;
                }}
            }}"
        );
        std::fs::write(dir.path().join(format!("classes/C{n}.php")), code).unwrap();
    }
    dir
}
