//! Tests regular expressions that the prototype process compiles in advance.

use crate::booted::{BOOT, try_booted};
use crate::site::until;

/// php-fpm keeps them, too. How an expression fails shows whether it was compiled before this
/// request: `pcre.jit` counts only at compilation.
#[test]
fn recurring_regular_expressions_are_compiled_in_advance() {
    const BY_THE_JIT: &str = "JIT stack limit exhausted";
    for engine in ["rewind", "fork"] {
        let boot =
            format!("set_error_handler(fn ($n, $said) => throw new Exception($said)); {BOOT}");
        let site = try_booted(
            engine,
            &boot,
            &["--workers", "2"],
            &[("SURUS_ENGINE_VERIFY_RESTORE", "true")],
        )
        .unwrap_or_else(|log| panic!("{log}"));
        std::fs::write(
            site.dir.path().join("match.php"),
            "<?php
            ini_set('pcre.jit', $_GET['jit']);
            preg_match('/^(foo)+$/', str_repeat('foo', 100000));
            echo preg_last_error_msg();",
        )
        .unwrap();
        // Under a locale the same expression is another one, and is not compiled in advance.
        std::fs::write(
            site.dir.path().join("locale.php"),
            "<?php
            setlocale(LC_CTYPE, 'C.UTF-8');
            echo preg_match('/^here$/', 'here');
            setlocale(LC_CTYPE, 'C');",
        )
        .unwrap();
        assert_eq!(
            site.get("/match.php?jit=0").body,
            "Recursion limit exhausted"
        );
        for _ in 0..3 {
            assert_eq!(site.get("/match.php?jit=1").body, BY_THE_JIT);
        }
        // Both workers, which exit after their request.
        until("the expression is compiled ahead", || {
            (0..20).all(|_| {
                assert_eq!(site.get("/hello.php").body, "hello");
                assert_eq!(site.get("/locale.php").body, "1");
                site.get("/match.php?jit=0").body == BY_THE_JIT
            })
        });
        let log = site.surus.log();
        assert!(
            !["replaced", "differs", "Warning"]
                .iter()
                .any(|word| log.contains(word)),
            "{log}"
        );
    }
}
