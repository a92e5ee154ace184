//! Tests that modules import only what ARCHITECTURE.md allows.

mod circles;
mod exit_status;
mod first_lines;
mod layers;
mod sapi;
mod type_names;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use self::circles::Modules;

/// The other modules that each module may use. `cli` may use all of them. `layers.rs` compares this
/// with the order in ARCHITECTURE.md.
const MAY_USE: &[(&str, &[&str])] = &[
    ("aws", &["connect"]),
    ("budget", &[]),
    ("busy_poll", &[]),
    ("connect", &[]),
    ("private_files", &[]),
    ("units", &[]),
    ("warmer", &[]),
    ("spool", &["budget"]),
    ("event", &["spool"]),
    ("observe", &["budget", "connect", "units"]),
    ("engine", &["event", "observe"]),
    ("launcher", &["engine"]),
    ("keeper", &["engine", "launcher", "observe"]),
    (
        "engines",
        &[
            "budget",
            "busy_poll",
            "engine",
            "event",
            "launcher",
            "observe",
            "spool",
            "units",
        ],
    ),
    (
        "app",
        &[
            "budget",
            "engine",
            "event",
            "observe",
            "private_files",
            "units",
        ],
    ),
    (
        "fronts",
        &[
            "app", "aws", "budget", "connect", "engine", "event", "observe", "spool", "units",
            "warmer",
        ],
    ),
    ("emulator", &["units"]),
    ("package", &["private_files", "units"]),
    ("deploy", &["private_files", "units", "warmer"]),
    ("profile", &[]),
    (
        "config",
        &[
            "app", "deploy", "engines", "fronts", "observe", "package", "units",
        ],
    ),
];

#[test]
fn modules_import_only_allowed_modules() {
    let wrong = forbidden_imports(&sources(&["src"]));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn forbidden_imports_are_found_in_every_form() {
    let forms = [
        "use crate::fronts::http::Server;",
        "use crate::{\n    engines::queue::Queue,\n    fronts::http::Server,\n};",
        "use crate::{engines::{queue}, fronts};",
        "use super::fronts::http as front;",
        "pub use crate::fronts::http;",
        "fn f() -> crate::fronts::http::Server {}",
        "#[cfg(test)]\nmod tests {\n    use crate::fronts::http::Server;\n}\n",
    ];
    let file = |name: &str, text: &str| (format!("src/{name}.rs"), text.to_string());
    for form in forms {
        let files = [
            file("engines/mod", form),
            file("engines/queue", ""),
            file("fronts/http", ""),
            file("fronts/mod", ""),
            file("lib", ""),
        ];
        assert_eq!(forbidden_imports(&files).len(), 1, "{form}");
    }
    let allowed = "// crate::fronts\nuse crate::{\n    engine::Engine,\n    event::{Event},\n};";
    let files = [
        file("engine", ""),
        file("engines", allowed),
        file("event", ""),
    ];
    let wrong = forbidden_imports(&files);
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The imports of these files that MAY_USE forbids, in tests too.
fn forbidden_imports(files: &[(String, String)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, uses) in Modules::with_tests(files, "src").tops() {
        let Some(module) = path.first().filter(|module| *module != "cli") else {
            continue;
        };
        let Some((_, may_use)) = MAY_USE.iter().find(|(name, _)| name == module) else {
            panic!("say in MAY_USE of tests/repo/architecture.rs what `{module}` may use");
        };
        for used in uses {
            if used != *module && !may_use.contains(&&*used) {
                let path = path.join("::");
                wrong.push(format!(
                    "`{path}` uses `{used}`; `{module}` may use only {may_use:?}"
                ));
            }
        }
    }
    wrong
}

#[test]
fn allowed_imports_are_used() {
    let unused = unused_entries(MAY_USE, &sources(&["src"]));
    assert!(
        unused.is_empty(),
        "MAY_USE allows what the program does not do, or only its tests: {unused:#?}"
    );
}

#[test]
fn imports_of_tests_keep_no_entry() {
    let file = |name: &str, text: &str| (format!("src/{name}.rs"), text.to_string());
    let others = ["b", "c", "d", "e", "f"];
    let code = "use crate::b::B;\n\n#[cfg(test)]\nuse crate::d::D;\n\n#[cfg(test)]\n\
                mod tests {\n    use crate::c::C;\n}\n";
    let mut files: Vec<_> = others.iter().map(|name| file(name, "")).collect();
    files.push(file("a/mod", code));
    files.push(file("a/tests", "use crate::e::E;"));
    files.push(file("a/x/tests/y", "use crate::f::F;"));
    let unused = unused_entries(&[("a", &others)], &files);
    let expected = ["c", "d", "e", "f"].map(|used| ("a".to_string(), used.to_string()));
    assert_eq!(unused, expected);
    let missing = unused_entries(&[("z", &[])], &files);
    assert_eq!(missing, [("z".to_string(), "z".to_string())]);
}

/// The entries that no import of the program needs: the module, and what it may use. A module that
/// does not exist is an entry with itself.
fn unused_entries(
    may_use: &[(&str, &[&str])],
    files: &[(String, String)],
) -> Vec<(String, String)> {
    let mut uses = BTreeSet::new();
    for (path, used) in Modules::of(files, "src").tops() {
        let Some(module) = path.first() else {
            continue;
        };
        uses.extend(used.into_iter().map(|used| (module.clone(), used)));
        // Also of a module that uses none.
        uses.insert((module.clone(), module.clone()));
    }
    let allowed = may_use.iter().flat_map(|(module, may_use)| {
        let others = may_use.iter().chain([module]);
        others.map(|other| (module.to_string(), other.to_string()))
    });
    allowed.filter(|entry| !uses.contains(entry)).collect()
}

/// The other modules of `src/fronts` that each may use.
const FRONTS: [(&str, &[&str]); 6] = [
    ("address", &[]),
    ("records", &[]),
    ("http", &["address"]),
    ("lambda", &["records"]),
    ("queue", &["address", "records"]),
    ("admin", &["address", "http", "queue"]),
];

#[test]
fn front_ends_import_only_allowed_front_ends() {
    let mut used = BTreeSet::new();
    for (module, uses) in Modules::of(&sources(&["src"]), "src").uses() {
        let [front, name, ..] = &module[..] else {
            continue;
        };
        if front != "fronts" {
            continue;
        }
        let others = uses.iter().filter(|other| other[0] == "fronts");
        let others = others.map(|other| other.get(1).map_or("", String::as_str));
        let others = others.filter(|other| other != name);
        used.extend(others.map(|other| (name.clone(), other.to_string())));
        // Also of a module that uses none.
        used.insert((name.clone(), name.clone()));
    }
    let allowed = FRONTS.iter().flat_map(|(name, may_use)| {
        let others = may_use.iter().chain([name]);
        others.map(move |other| (name.to_string(), other.to_string()))
    });
    let allowed: BTreeSet<_> = allowed.collect();
    assert_eq!(used, allowed, "FRONTS and the imports differ");
}

/// The crates of the workspace that each crate uses.
const CRATES: [(&str, &[&str]); 4] = [
    ("sys", &[]),
    ("measure", &[]),
    ("load", &["surus-measure", "surus-sys"]),
    ("php", &[]),
];

#[test]
fn crates_use_only_crates_of_lower_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let folders = std::fs::read_dir(&root).unwrap();
    let folders = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let listed = CRATES.iter().map(|(name, _)| name.to_string());
    let (folders, listed): (BTreeSet<_>, BTreeSet<_>) = (folders.collect(), listed.collect());
    assert_eq!(folders, listed, "crates/ and CRATES differ");
    for (name, may_use) in CRATES {
        let text = std::fs::read_to_string(root.join(name).join("Cargo.toml")).unwrap();
        let inside = text.lines().filter(|line| line.contains("path = \"../"));
        let used: BTreeSet<_> = inside.map(|line| line.split(' ').next().unwrap()).collect();
        let listed: BTreeSet<_> = may_use.iter().copied().collect();
        assert_eq!(used, listed, "crates/{name}");
    }
}

#[test]
fn load_generator_is_used_by_the_command_line_only() {
    for (file, text) in sources(&["src"]) {
        for (number, line) in code(&text) {
            let uses = ["surus_load", "surus_measure"]
                .iter()
                .any(|name| line.contains(name));
            assert!(
                !uses || file.starts_with("src/cli/"),
                "{file}:{number}: {line}"
            );
        }
    }
}

#[test]
fn unsafe_code_is_in_crates_sys_only() {
    let mut wrong = Vec::new();
    for (file, text) in sources(&["src", "crates", "tests", "fuzz", "lab"]) {
        if file.starts_with("crates/sys/") {
            continue;
        }
        for (number, line) in code(&text) {
            // A policy for browsers has 'unsafe-inline'.
            let mut words = line.split(|c: char| !c.is_alphanumeric() && !"_-".contains(c));
            if words.any(|word| word == UNSAFE) {
                wrong.push(format!("{file}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "belongs into crates/sys:\n{}\n",
        wrong.join("\n")
    );
}

/// Runtime threads record when they park (`src/engines/workers/ipc/response_poller.rs`); a thread
/// that leaves the runtime would never record it.
#[test]
fn runtime_threads_stay_in_the_runtime() {
    for (file, text) in sources(&["src"]) {
        for (number, line) in code(&text) {
            assert!(!line.contains("block_in_place("), "{file}:{number}");
        }
    }
}

/// Split, so that this file may be searched too.
const UNSAFE: &str = concat!("un", "safe");

/// The lines of code, each with its number.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Every Rust file below these directories, by its path from the repository's root.
pub fn sources(directories: &[&str]) -> Vec<(String, String)> {
    files(directories, |path| {
        path.extension().is_some_and(|end| end == "rs")
    })
}

/// The text files below these directories, by their paths from the repository's root.
pub fn files(directories: &[&str], is_wanted: impl Fn(&Path) -> bool) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = directories.iter().map(|name| root.join(name)).collect();
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                waiting.push(path);
            } else if is_wanted(&path) {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.extend(std::fs::read_to_string(&path).map(|text| (name, text)));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no files in {directories:?}");
    found
}
