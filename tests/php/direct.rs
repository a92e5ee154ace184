//! Tests direct binding of PHP's library, and that PHP works if it is not possible.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Surus;
use crate::common::executable::write_executable;
use tempfile::TempDir;

const PAGE: &str = "<?php
sort($_GET);
echo strtoupper(implode(' ', $_GET)), preg_match('/b+/', 'abb', $m), $m[0];";

/// Direct binding exists on x86-64 only, and not under sanitizers.
fn can() -> bool {
    cfg!(target_arch = "x86_64")
}

struct Site {
    dir: TempDir,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(dir.path().join("index.php"), PAGE).unwrap();
        Site { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A `surus-php` that finds this library before the system's.
    fn with_library(&self, bytes: &[u8]) -> String {
        std::fs::write(self.path().join(&library().0), bytes).unwrap();
        self.program_with(&format!("LD_LIBRARY_PATH='{}'", self.path().display()))
    }

    /// A `surus-php` with this variable in its environment.
    fn program_with(&self, variable: &str) -> String {
        let program = self.path().join("surus-php8.x");
        let text = format!(
            "#!/bin/sh\n{variable} exec '{}' \"$@\"\n",
            surus_php::EXECUTABLE
        );
        write_executable(&program, &text);
        program.display().to_string()
    }

    /// The output of `surus check` about it, and that every engine serves pages.
    fn look(&self, env: &[(&str, &str)]) -> String {
        let check = Command::new(env!("CARGO_BIN_EXE_surus"))
            .arg("check")
            .arg(self.path())
            .envs(env.iter().copied())
            .output()
            .unwrap();
        let surus = Surus::spawn(self.path(), &["-d", "pcre.jit=0"], env).unwrap();
        for _ in 0..3 {
            let url = format!("{}/?a=y&b=x", surus.url);
            let answer = Command::new("curl").args(["-s", &url]).output().unwrap();
            assert_eq!(String::from_utf8(answer.stdout).unwrap(), "X Y1bb");
        }
        String::from_utf8(check.stdout).unwrap()
    }
}

/// The name by which `surus-php` loads PHP's library, and the file that it finds.
fn library() -> (String, PathBuf) {
    let list = Command::new("ldd")
        .arg(surus_php::EXECUTABLE)
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let line = list.lines().find(|line| line.contains("libphp")).unwrap();
    // "libphp.so => /usr/lib/libphp.so (0x…)"
    let fields: Vec<_> = line.split_whitespace().collect();
    (fields[0].to_string(), fields[2].into())
}

/// The files that a process executes code of.
fn executed(pid: u32) -> String {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines()
        .filter(|line| line.contains("r-xp"))
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|name| name.starts_with('/'))
        .collect()
}

/// The master process: the child that runs `surus-php`.
fn master_of(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let mut children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    children
        .find(|child: &u32| {
            let program = std::fs::read_link(format!("/proc/{child}/exe"));
            program.is_ok_and(|program| program.ends_with(name_of(surus_php::EXECUTABLE)))
        })
        .unwrap()
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

#[test]
fn direct_binding_replaces_the_library_code() {
    let site = Site::new();
    let state = if can() { "on\n" } else { "impossible: " };
    assert!(
        site.look(&[])
            .contains(&format!("direct binding   {state}"))
    );
    let off = [("SURUS_ENGINE_DIRECT_BINDING", "false")];
    assert!(site.look(&off).contains("direct binding   off\n"));

    for (env, is_replaced) in [(&[][..], can()), (&off[..], false)] {
        let surus = Surus::spawn(site.path(), &[], env).unwrap();
        let executed = executed(master_of(surus.pid()));
        assert_eq!(!executed.contains("libphp"), is_replaced, "{executed}");
    }
}

/// Memory that all workers share does not count for `max_memory`.
#[test]
fn replaced_code_does_not_count_as_worker_memory() {
    let site = Site::new();
    let own = |direct: &str| {
        let socket = site.path().join("admin.sock");
        let listen = format!("unix:{}", socket.display());
        let env = [
            ("SURUS_ADMIN_LISTEN", listen.as_str()),
            ("SURUS_ENGINE_WORKERS", "1"),
            ("SURUS_ENGINE_DIRECT_BINDING", direct),
        ];
        let surus = Surus::spawn(site.path(), &[], &env).unwrap();
        let get = |args: &[&str]| {
            let answer = Command::new("curl").arg("-s").args(args).output().unwrap();
            String::from_utf8(answer.stdout).unwrap()
        };
        // It is measured now and then.
        for _ in 0..20 {
            get(&[&surus.url]);
        }
        let socket = socket.to_str().unwrap();
        let status = get(&["--unix-socket", socket, "http://surus/-/status"]);
        let (_, memory) = status.split_once("\"memory\":").unwrap();
        let digits: String = memory.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    };
    let (with, without) = (own("true"), own("false"));
    assert!(with > 0 && without > 0);
    assert!(with < without + (1 << 20), "{with} instead of {without}");
}

/// After an update of PHP.
#[test]
fn other_library_than_at_the_build_stays_unchanged() {
    if !can() {
        return;
    }
    let site = Site::new();
    let mut bytes = std::fs::read(library().1).unwrap();
    // The end of an ELF note's head: NT_GNU_BUILD_ID, by GNU. The ID follows.
    let head = b"\x03\0\0\0GNU\0";
    let at = bytes.windows(head.len()).position(|window| window == head);
    bytes[at.unwrap() + head.len()] ^= 1;
    let said = site.look(&[("SURUS_ENGINE_SURUS_PHP", &site.with_library(&bytes))]);
    assert!(
        said.contains("differs from the one that surus-php was built with"),
        "{said}"
    );
}

/// A library that was changed but kept its ID.
#[test]
fn code_that_differs_from_the_build_stays_unchanged() {
    if !can() {
        return;
    }
    let site = Site::new();
    let library = library().1;
    let listing = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(&library)
        .output()
        .unwrap();
    let listing = String::from_utf8_lossy(&listing.stdout);
    // Not run here: the tables of phpinfo().
    let call = listing
        .lines()
        .find(|line| {
            line.contains("<php_info_print_table_colspan_header@plt>") && line.contains("call")
        })
        .unwrap();
    let at = usize::from_str_radix(call.trim_start().split(':').next().unwrap(), 16).unwrap();
    let mut bytes = std::fs::read(library).unwrap();
    // The code has the same offset in the file and in memory.
    assert_eq!(bytes[at], 0xe8);
    bytes[at..at + 5].copy_from_slice(b"\x0f\x1f\x44\0\0"); // nop
    let said = site.look(&[("SURUS_ENGINE_SURUS_PHP", &site.with_library(&bytes))]);
    assert!(
        said.contains("failed: its code differs from the build's\n"),
        "{said}"
    );
}

/// As the kernel does at the start of a process when a tracer watches the library with uprobes.
const BREAKPOINT: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <unistd.h>

    __attribute__((constructor)) static void set(void)
    {
        unsigned char *code = dlsym(RTLD_DEFAULT, "php_info_print_table_colspan_header");
        uintptr_t page = code ? (uintptr_t)code & -(uintptr_t)getpagesize() : 0;
        int all = PROT_READ | PROT_WRITE | PROT_EXEC;

        if (page && mprotect((void *)page, getpagesize(), all) == 0) {
            *code = 0xcc;
        }
    }
"#;

/// A worker that reaches a breakpoint without its file crashes.
#[test]
fn traced_code_stays_unchanged() {
    if !can() {
        return;
    }
    let site = Site::new();
    let source = site.path().join("breakpoint.c");
    std::fs::write(&source, BREAKPOINT).unwrap();
    let preloaded = site.path().join("breakpoint.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&preloaded, &source])
        .status();
    assert!(compiled.unwrap().success());
    let program = site.program_with(&format!("LD_PRELOAD='{}'", preloaded.display()));
    let said = site.look(&[("SURUS_ENGINE_SURUS_PHP", &program)]);
    assert!(
        said.contains("failed: its code differs from its file"),
        "{said}"
    );
}

/// systemd's `MemoryDenyWriteExecute`, by the kernel's prctl.
#[test]
fn code_stays_unchanged_if_executable_memory_is_forbidden() {
    let site = Site::new();
    let program = site.path().join("surus-php8.x");
    let text = format!(
        "#!/usr/bin/env python3\nimport ctypes, os, sys\n\
         PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1\n\
         prctl = ctypes.CDLL(None).prctl\n\
         if prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0: open('{}', 'w')\n\
         os.execv('{}', sys.argv)\n",
        site.path().join("old-kernel").display(),
        surus_php::EXECUTABLE
    );
    write_executable(&program, &text);
    let said = site.look(&[("SURUS_ENGINE_SURUS_PHP", &program.display().to_string())]);
    let is_refused = said.contains("failed: the system forbids new executable memory\n");
    let can_refuse = can() && !site.path().join("old-kernel").exists(); // Linux 6.3
    assert_eq!(is_refused, can_refuse, "{said}");
}
