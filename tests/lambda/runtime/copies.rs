//! Tests that copies of a snapshot differ. Two functions play the copies: their kernels return the
//! same random numbers up to the restore, then different ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::api::{Api, Event};
use super::function::{Dir, Function, get};

/// `entropy.c`, which replaces `getrandom()`.
static ENTROPY: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("entropy.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda/runtime/entropy.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
    assert!(cc.arg(&library).arg(source).status().unwrap().success());
    // The workers may run as another user.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), all).unwrap();
    (dir, library)
});

/// Draws once at its start, so that all generators are seeded, and for each event.
const CODE: &str = r#"<?php
$ffi = FFI::cdef('long random(void);');
$engines = [
    new Random\Engine\Mt19937,
    new Random\Engine\PcgOneseq128XslRr64,
    new Random\Engine\Xoshiro256StarStar,
];
$draw = function () use ($ffi, $engines) {
    $drawn = [
        'mt_rand' => mt_rand().' '.mt_rand(),
        'lcg_value' => lcg_value(),
        'random_bytes' => bin2hex(random_bytes(8)),
    ];
    if (extension_loaded('gmp')) {
        $drawn['gmp'] = gmp_strval(gmp_random_bits(64));
    }
    $drawn['random'] = $ffi->random().' '.$ffi->random();
    foreach ($engines as $engine) {
        $drawn[$engine::class] = bin2hex((new Random\Randomizer($engine))->getBytes(8));
    }
    return $drawn;
};
$draw();
$answer = fn () => print json_encode(['pid' => getmypid()] + $draw());
"#;

/// What a copy draws for its first two events, if its kernel returns `word` after the restore.
fn drawn(engine: &str, word: &str) -> Vec<BTreeMap<String, String>> {
    let serve = match engine {
        "classic" => "$answer();",
        _ => "surus_serve($answer);",
    };
    let dir = Dir::new(&[
        ("index.php", &format!("{CODE}{serve}")),
        ("entropy", "the snapshot"),
    ]);
    let (library, entropy) = (ENTROPY.1.to_str().unwrap(), dir.path("entropy"));
    let env = [
        ("LD_PRELOAD", library),
        ("ENTROPY", entropy.to_str().unwrap()),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
        ("SURUS_LAMBDA_BEFORE_SNAPSHOT", "/"),
        ("SURUS_ENGINE_NAME", engine),
        ("SURUS_ENGINE_WORKERS", "2"),
        ("SURUS_PHP_FFI__ENABLE", "1"),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    function.api.take("/runtime/restore/next");
    let before = function.descendants();
    function.dir.write("entropy", word);
    function.api.restore();
    let answers = (0..2).map(|n| {
        let answer = function.ask(Event::new(&format!("c-{n}"), &get("/")));
        let drawn: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(&answer.text()).unwrap();
        let pid = drawn["pid"].as_u64().unwrap() as u32;
        assert!(!before.contains(&pid), "{engine}: {pid} of {before:?}");
        let drawn = drawn.into_iter().filter(|(source, _)| source != "pid");
        drawn
            .map(|(source, value)| (source, value.to_string()))
            .collect()
    });
    let answers = answers.collect();
    assert!(
        !function.log().contains("worker crashed"),
        "{}",
        function.log()
    );
    answers
}

#[test]
fn snapshot_copies_have_different_random_numbers_and_processes() {
    for engine in ["rewind", "fork", "standby", "worker", "classic"] {
        let (one, same, other) = (
            drawn(engine, "copy 1"),
            drawn(engine, "copy 1"),
            drawn(engine, "copy 2"),
        );
        let is_forked = ["rewind", "fork"].contains(&engine);
        for (source, value) in &one[0] {
            // In other engines PHP keeps libc's initial state, which is the same in every process.
            if source == "random" && !is_forked {
                continue;
            }
            assert_ne!(&other[0][source], value, "{engine}: {source}");
            assert_ne!(&other[1][source], &one[1][source], "{engine}: {source}");
        }
        // Nothing else made them differ. PHP's own system calls are not replaced.
        if !is_forked {
            continue;
        }
        for source in ["random", r"Random\Engine\Xoshiro256StarStar"] {
            assert_eq!(same[0][source], one[0][source], "{engine}: {source}");
        }
    }
}
