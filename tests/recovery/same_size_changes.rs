//! Tests changes of a request that keep sizes and numbers: they must not pass for unchanged.

use crate::booted::try_booted;
use crate::common::php::all_extensions;
use crate::site::Site;

fn booted(boot: &str, args: &[&str]) -> Site {
    let args = [&["--workers", "1"], args].concat();
    try_booted("rewind", boot, &args, &[all_extensions()]).unwrap_or_else(|log| panic!("{log}"))
}

fn ask(site: &Site, query: &str) -> String {
    let answer = site.get(&format!("/?{query}"));
    assert_eq!(
        answer.status,
        200,
        "{query}: {answer:?}\n{}",
        site.surus.log()
    );
    answer.body
}

/// libc loads a library per encoding and unloads those that were not used for some time; most have
/// the same size.
#[test]
fn library_mapped_in_place_of_another_is_restored() {
    let read = r#"
        $say = function (string $encoding) {
            return bin2hex((string) @iconv($encoding, 'UTF-8', "\xb1\xe6\xea"));
        };"#;
    let feed = r#"
        $say = function (string $encoding) {
            $document = new DOMDocument;
            @$document->loadXML("<?xml version=\"1.0\" encoding=\"$encoding\"?><t>\xe8\x9a</t>");
            return bin2hex((string) $document->documentElement?->textContent);
        };"#;
    for (say, of_boot, others) in [
        (read, "ISO-8859-2", ["ISO-8859-3", "ISO-8859-5"]),
        (feed, "windows-1250", ["windows-1251", "windows-1253"]),
    ] {
        let boot = format!(
            "{say}
            $say('{of_boot}');
            surus_serve(function () use ($say) {{
                foreach (explode(',', $_GET['in']) as $encoding) {{ $said = $say($encoding); }}
                echo $said;
            }});"
        );
        let site = booted(&boot, &[]);
        let ours = format!("in={of_boot}");
        let before = ask(&site, &ours);
        assert!(!before.is_empty());
        let four = |encoding: &str| [encoding; 4].join(",");
        let both = others.map(four).join(",");
        for left in [both, four(others[0]), four(others[1])] {
            ask(&site, &format!("in={left}"));
            assert_eq!(ask(&site, &ours), before, "after {left}");
        }
    }
}

/// Its stack is unmapped at its end, and another one's lies elsewhere.
#[test]
fn fiber_mapped_in_place_of_another_is_restored() {
    let boot = "
        function deep($n) { return $n ? array_map(fn ($x) => deep($n - 1), [1])[0] : \
        Fiber::suspend('boot'); }
        $fiber = new Fiber(fn () => deep(40));
        $fiber->start();
        surus_serve(function () use ($fiber) {
            if (isset($_GET['swap'])) {
                $fiber->resume('another');
                $GLOBALS['other'] = new Fiber(fn () => Fiber::suspend());
                $GLOBALS['other']->start();
                ini_set('memory_limit', '4M');
                str_repeat('x', 64 << 20);
            }
            $fiber->resume('value');
            echo $fiber->getReturn();
        });";
    let site = booted(boot, &["-d", "display_errors=0"]);
    for _ in 0..3 {
        assert_eq!(ask(&site, ""), "value");
        assert_eq!(site.get("/?swap").status, 500);
    }
    assert_eq!(ask(&site, ""), "value");
}

/// PHP stops its timer before it closes sessions and streams, whose handlers may set another one.
#[test]
fn time_limit_set_at_shutdown_does_not_reach_other_requests() {
    let boot = "
        class Slow {
            public $context;
            function stream_open() { return true; }
            function stream_close() { set_time_limit(1); }
            function stream_read() { return ''; }
            function stream_eof() { return true; }
            function stream_stat() { return []; }
        }
        stream_wrapper_register('slow', 'Slow');
        surus_serve(function () {
            if (isset($_GET['set'])) { $GLOBALS['stream'] = fopen('slow://x', 'r'); }
            if (isset($_GET['burn'])) { for ($end = microtime(true) + 2.5; microtime(true) < \
            $end;); }
            echo 'done';
        });";
    let site = booted(boot, &["-d", "max_execution_time=0"]);
    assert_eq!(ask(&site, "set"), "done");
    assert_eq!(ask(&site, "burn"), "done");
}

#[test]
fn socket_connected_elsewhere_does_not_reach_other_requests() {
    let boot = "
        socket_create_pair(AF_UNIX, SOCK_DGRAM, 0, $pair);
        surus_serve(function () use ($pair) {
            if (isset($_GET['connect'])) {
                $other = socket_create(AF_UNIX, SOCK_DGRAM, 0);
                socket_bind($other, $at = $_SERVER['DOCUMENT_ROOT'] . '/other');
                var_dump(socket_connect($pair[0], $at));
                unlink($at);
                return;
            }
            socket_write($pair[0], 'x', 1);
            socket_recv($pair[1], $got, 10, MSG_DONTWAIT);
            echo $got;
        });";
    let site = booted(boot, &[]);
    std::fs::set_permissions(
        site.dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    assert_eq!(ask(&site, ""), "x");
    assert!(ask(&site, "connect").contains("true"));
    assert_eq!(ask(&site, ""), "x");
}

/// Programs that a request starts share the worker's stderr and its flags.
#[test]
fn flags_changed_by_a_program_are_restored() {
    let boot = "surus_serve(function () {
            if (isset($_GET['change'])) {
                passthru('perl -MFcntl -e \"fcntl(STDERR, F_SETFL, fcntl(STDERR, F_GETFL, 0) | \
                O_NONBLOCK)\"');
            }
            echo file('/proc/self/fdinfo/2')[1];
        });";
    let site = booted(boot, &[]);
    let before = ask(&site, "");
    assert_ne!(ask(&site, "change"), before);
    assert_eq!(ask(&site, ""), before);
}

/// A page that must not be touched, as libc has after the stacks of threads.
#[test]
fn guard_page_is_not_read() {
    let boot = "
        $c = FFI::cdef('intptr_t mmap(intptr_t at, size_t size, int protection, int flags, int fd, \
        long offset);
            int madvise(intptr_t at, size_t size, int advice);');
        $at = $c->mmap(0, 65536, 3, 0x22, -1, 0);
        $c->madvise($at, 4096, 102);
        surus_serve(function () { echo 'served'; });";
    let site = booted(boot, &["-d", "ffi.enable=1"]);
    assert_eq!(ask(&site, ""), "served");
}

/// As in PHP: objects that only a global variable refers to go first, the last one first.
#[test]
fn destructors_run_in_the_order_of_php() {
    let script = "
        class D {
            function __construct(public $name, public $other = null) {}
            function __destruct() { echo $this->name, $this->other ? ' with ' . $this->other->name \
            : '', ', '; }
        }
        $a = new D('a'); $b = new D('b', $a); $c = new D('c'); $d = $c;";
    let site = booted(&format!("surus_checkpoint(); {script}"), &[]);
    std::fs::write(
        site.dir.path().join("classic.php"),
        format!("<?php {script}"),
    )
    .unwrap();
    let php = std::process::Command::new("php-cgi")
        .args(["-q", "-d", "cgi.force_redirect=0"])
        .arg(site.dir.path().join("classic.php"))
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .output()
        .unwrap();
    let expected = String::from_utf8(php.stdout).unwrap();
    assert!(expected.starts_with("b with a, a, c"), "{expected}");
    for _ in 0..2 {
        assert_eq!(ask(&site, ""), expected);
    }
}
