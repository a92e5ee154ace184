//! Tests memory that a request maps and leaves behind, if the kernel merges it with the mapping
//! next to it.

use crate::booted::try_booted;

/// Maps through FFI, which the boot has loaded. `$map_before($at, $protection)` maps 64 KiB ahead
/// of `$at`.
const BOOT: &str = r"
    const ANONYMOUS_PRIVATE_AND_WHERE_SAID = 0x22 | 0x100000, NOTHING = 0, READ_WRITE = 3;
    $c = FFI::cdef('
        intptr_t mmap(intptr_t at, size_t size, int protection, int flags, int fd, long offset);
        intptr_t memchr(void *data, int byte, size_t size);
    ');
    // Far from where the kernel puts mappings without an address.
    $reserved = $c->mmap(1 << 44, 1 << 20, NOTHING, ANONYMOUS_PRIVATE_AND_WHERE_SAID, -1, 0);
    $reserved === 1 << 44 or exit;
    $map_before = function ($at, $protection) use ($c) {
        [$start, $size] = [$at - (1 << 16), 1 << 16];
        $flags = ANONYMOUS_PRIVATE_AND_WHERE_SAID;
        return $c->mmap($start, $size, $protection, $flags, -1, 0) === $start;
    };
    // PHP's allocator takes 2 MiB at a time, usually below the previous chunk.
    $below_a_chunk = function () use ($c, $map_before) {
        $data = FFI::new('char[1000000]');
        $at = $c->memchr($data, 0, 1) & -(2 << 20);
        for ($chunks = 0; $chunks < 64; $chunks++) {
            if ($map_before($at - $chunks * (2 << 20), READ_WRITE)) {
                return true;
            }
        }
        return false;
    };
    surus_serve(function () use ($map_before, $below_a_chunk, $reserved) {
        $many = [];
        for ($i = 0; $i < 40000; $i++) {
            $many[] = str_repeat('x', 100) . $i;
        }
        echo getmypid(), ' ', match ($_GET['map'] ?? '') {
            'chunk' => json_encode($below_a_chunk()),
            'reserved' => json_encode($map_before($reserved, NOTHING)),
            default => 'nothing',
        };
    });
";

#[test]
fn mapping_next_to_kept_memory_is_removed_and_worker_stays() {
    let env = [
        ("SURUS_PHP_FFI__ENABLE", "true"),
        ("SURUS_ENGINE_VERIFY_RESTORE", "true"),
    ];
    let site =
        try_booted("rewind", BOOT, &["--workers", "1"], &env).unwrap_or_else(|log| panic!("{log}"));
    let ask = |path: &str| {
        let answer = site.get(path);
        assert_eq!(
            answer.status,
            200,
            "{path}: {answer:?}\n{}",
            site.surus.log()
        );
        let (pid, mapped) = answer.body.split_once(' ').unwrap();
        (pid.to_string(), mapped.to_string())
    };
    let (before, _) = ask("/?map=");
    for _ in 0..5 {
        for what in ["reserved", "chunk"] {
            let (pid, mapped) = ask(&format!("/?map={what}"));
            assert_eq!(
                (mapped.as_str(), &pid),
                ("true", &before),
                "{what}\n{}",
                site.surus.log()
            );
            let (pid, _) = ask("/?map=");
            assert_eq!(pid, before, "after {what}\n{}", site.surus.log());
        }
    }
    let log = site.surus.log();
    assert!(
        !log.contains("replaced") && !log.contains("differs"),
        "{log}"
    );
}
