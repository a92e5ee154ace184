//! Compiles `sapi/` against the PHP that `php-config` names and puts `surus-php8.x` next to the
//! other binaries.
#![allow(clippy::unwrap_used)] // a build script's panic is its error message

mod direct;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let sapi = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../../sapi")
        .canonicalize()
        .unwrap();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    println!("cargo:rerun-if-changed={}", sapi.display());
    println!("cargo:rerun-if-env-changed=PHP_CONFIG");
    println!("cargo:rerun-if-env-changed=SURUS_SANITIZE");

    let php = PhpConfig::find();
    println!("cargo:rerun-if-changed={}", php.program);
    let version = php.ask("--version");
    let minor = version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");

    let mut sources = Vec::new();
    find_sources(&sapi, &mut sources);
    let sanitizers = env::var("SURUS_SANITIZE")
        .ok()
        .map(|s| format!("-fsanitize={s}"));
    let library = php.library(&minor);
    let sites = match sanitizers {
        None => direct::find(&library.file),
        // They look at calls in ways of their own.
        Some(_) => None,
    };
    let generated = out.join("direct_sites.c");
    std::fs::write(&generated, direct::Sites::to_c(sites.as_ref())).unwrap();
    sources.push(generated);
    let mut build = cc::Build::new();
    build
        .cargo_metadata(false)
        .std("gnu11")
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag("-Wno-unused-parameter") // PHP's own headers and macros have them
        .flag("-Wno-sign-compare")
        .flag("-fno-common")
        .define("_GNU_SOURCE", None)
        .define(
            "SURUS_VERSION",
            format!("\"{}\"", env!("CARGO_PKG_VERSION")).as_str(),
        )
        .define("SURUS_PHP_MINOR", format!("\"{minor}\"").as_str())
        .include(&sapi)
        .pic(true);
    for include in php.ask("--includes").split_whitespace() {
        // As system headers, so that only our own code is held to our warnings.
        build
            .flag("-isystem")
            .flag(include.trim_start_matches("-I"));
    }
    if let Some(flag) = &sanitizers {
        // A finding ends the worker, so that a test fails for it.
        build
            .flag(flag)
            .flag("-fno-sanitize-recover=all")
            .flag("-fno-omit-frame-pointer");
    }
    let objects: Vec<PathBuf> = build.files(&sources).compile_intermediates();

    let executable = out.join(format!("surus-php{minor}"));
    let mut link = build.get_compiler().to_command();
    link.args(&objects).arg("-o").arg(&executable);
    link.args(php.ask("--ldflags").split_whitespace());
    link.arg(format!("-L{}", library.directory.display()))
        .arg(format!("-l{}", library.name))
        .arg(format!("-Wl,-rpath,{}", library.directory.display()));
    // The math library has the floating-point environment.
    link.args(["-lm", "-Wl,-z,relro,-z,now", "-pie"]);
    let status = link.status().expect("the C compiler could not be started");
    assert!(status.success(), "linking surus-php failed: {link:?}");

    // target/<profile>/build/<package>/out -> target/<profile>
    let installed = out
        .ancestors()
        .nth(3)
        .unwrap()
        .join(executable.file_name().unwrap());
    let fresh = installed.with_extension("new");
    std::fs::copy(&executable, &fresh).unwrap();
    std::fs::rename(&fresh, &installed).unwrap(); // a running one keeps its file
    put_library(&sapi.join("../php"), &installed.with_file_name("php"));
    println!(
        "cargo:rustc-env=SURUS_PHP_EXECUTABLE={}",
        installed.display()
    );
    println!(
        "cargo:rustc-env=SURUS_PHP_LIBRARY={}",
        library.file.display()
    );
}

/// Finds the C files in `directory` and below it.
fn find_sources(directory: &Path, sources: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_sources(&path, sources);
        } else if path.extension().is_some_and(|e| e == "c") {
            sources.push(path);
        }
    }
}

/// Puts the PHP library where `surus lambda` looks for what hands events to handlers.
fn put_library(from: &Path, to: &Path) {
    for part in ["lambda", "src"] {
        println!("cargo:rerun-if-changed={}", from.join(part).display());
        copy(&from.join(part), &to.join(part));
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

struct PhpConfig {
    program: String,
}

struct Library {
    directory: PathBuf,
    name: String,
    file: PathBuf,
}

impl PhpConfig {
    fn find() -> PhpConfig {
        let program = env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
        let path = if program.contains('/') {
            Some(PathBuf::from(&program))
        } else {
            env::split_paths(&env::var_os("PATH").unwrap_or_default())
                .map(|dir| dir.join(&program))
                .find(|path| path.is_file())
        };
        match path {
            Some(path) if path.is_file() => PhpConfig {
                program: path.display().to_string(),
            },
            _ => panic!(
                "{program} not found. Install PHP's headers and library (Debian: apt-get install \
                 php-dev libphp-embed), name php-config in PHP_CONFIG, or build surus alone: cargo \
                 build -p surus"
            ),
        }
    }

    fn ask(&self, flag: &str) -> String {
        let output = Command::new(&self.program).arg(flag).output().unwrap();
        assert!(output.status.success(), "{} {flag} failed", self.program);
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }

    /// Debian names the library after the minor version, PHP's own build does not.
    fn library(&self, minor: &str) -> Library {
        let prefix = self.ask("--prefix");
        let mut directories = vec![
            PathBuf::from(&prefix).join("lib"),
            PathBuf::from("/usr/lib"),
        ];
        if let Ok(triplet) = Command::new("gcc").arg("-print-multiarch").output() {
            let triplet = String::from_utf8_lossy(&triplet.stdout).trim().to_string();
            directories.push(Path::new("/usr/lib").join(triplet));
        }
        for directory in &directories {
            for name in [format!("php{minor}"), "php".to_string()] {
                let file = directory.join(format!("lib{name}.so"));
                if file.exists() {
                    println!("cargo:rerun-if-changed={}", file.display());
                    return Library {
                        directory: directory.clone(),
                        name,
                        file,
                    };
                }
            }
        }
        panic!(
            "libphp{minor}.so not found in {directories:?}. Install PHP's embed library (Debian: \
             apt-get install libphp{minor}-embed; from source: configure --enable-embed)"
        );
    }
}
