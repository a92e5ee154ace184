//! `surus trust`: puts the certificate of this machine's authority into the stores of the system
//! and of browsers, or takes it out.

mod browsers;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use self::browsers::BrowserStore;
use super::options::Project;
use crate::cli::stdout::say;
use crate::engines::external::command::resolved;
use crate::fronts::http::tls::acme::local::{self, LocalAuthority};
use crate::fronts::http::tls::acme::store::Store;

#[derive(Debug, clap::Args)]
pub struct Trust {
    #[command(flatten)]
    project: Project,
    /// Remove the authority's certificate from the stores
    #[arg(long)]
    remove: bool,
    /// Certificate of the authority of another user of this machine
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
}

/// Directories of the certificates that a system's administrator adds, and the command that
/// updates the store.
const SYSTEM: [(&str, &[&str]); 4] = [
    // Debian, Ubuntu, Alpine.
    (
        "/usr/local/share/ca-certificates",
        &["update-ca-certificates"],
    ),
    // Fedora, Red Hat.
    (
        "/etc/pki/ca-trust/source/anchors",
        &["update-ca-trust", "extract"],
    ),
    // Arch.
    (
        "/etc/ca-certificates/trust-source/anchors",
        &["trust", "extract-compat"],
    ),
    // SUSE.
    ("/usr/share/pki/trust/anchors", &["update-ca-certificates"]),
];

/// An authority and where its certificate is.
struct Authority {
    trusted: local::Trusted,
    certificate: PathBuf,
}

pub fn run(args: Trust) -> anyhow::Result<()> {
    let authority = args.authority()?;
    say!(
        "{} ({})",
        authority.trusted.name,
        authority.certificate.display()
    );
    let mut failed = 0;
    let mut report = |store: &str, done: anyhow::Result<&str>| match done {
        Ok(what) => say!("  {store}: {what}"),
        Err(error) => {
            failed += 1;
            say!("  {store}: {error:#}");
        }
    };
    let done = match args.remove {
        true => "not trusted any more",
        false => "trusted",
    };
    report("system", authority.system(args.remove).map(|()| done));
    let stores = browsers::stores();
    for BrowserStore { browser, directory } in &stores {
        let changed = authority.browser(directory, args.remove);
        let store = format!("{browser} ({})", directory.display());
        report(&store, changed.map(|()| done));
    }
    if stores.is_empty() {
        // Root rarely runs a browser, also by sudo.
        let hint = match args.remove || surus_sys::process::is_root() {
            true => "",
            false => "; a browser makes it at its first start",
        };
        say!("  browsers: this user has no store{hint}");
    }
    match failed {
        0 => Ok(()),
        1 => bail!("one store was not changed; the line above says why"),
        _ => bail!("{failed} stores were not changed; the lines above say why"),
    }
}

impl Trust {
    fn authority(&self) -> anyhow::Result<Authority> {
        let certificate = match &self.certificate {
            Some(file) => std::path::absolute(file)?,
            None => {
                let loaded = self.project.load_all()?;
                let project = self.project.directory()?;
                let store = Store::new(&loaded.config.acme, &project)?;
                let local = LocalAuthority::new(&store);
                match self.remove {
                    false => local.certificate()?,
                    true => local.known_certificate().context(
                        "this user has no local authority, so nothing trusts it; for another \
                         user's, name its certificate by --certificate",
                    )?,
                }
            }
        };
        // Once: another user may own the file and change it.
        let trusted = local::read(&certificate)?;
        Ok(Authority {
            trusted,
            certificate,
        })
    }
}

impl Authority {
    /// Changes the store of the system, which needs root.
    fn system(&self, remove: bool) -> anyhow::Result<()> {
        let mut stores = SYSTEM.iter().filter_map(|(directory, command)| {
            let directory = Path::new(directory);
            let program = resolved(Path::new(command[0])).filter(|_| directory.is_dir())?;
            Some((directory, program, &command[1..]))
        });
        let Some((directory, program, arguments)) = stores.next() else {
            bail!(
                "no store was found; install the package ca-certificates, or add {} by hand",
                self.certificate.display()
            );
        };
        let file = self.trusted.name.to_lowercase().replace(' ', "-");
        let file = directory.join(format!("{file}.crt"));
        if !surus_sys::process::is_root() {
            if remove && !file.exists() {
                return Ok(());
            }
            let remove = if remove { " --remove" } else { "" };
            bail!(
                "root is needed: sudo surus trust{remove} --certificate {}",
                self.certificate.display()
            );
        }
        match remove {
            false => {
                std::fs::write(&file, &self.trusted.pem)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            true => match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", file.display()));
                }
                _ => {}
            },
        }
        run_program(Command::new(program).args(arguments))
    }

    /// Changes the store of a browser.
    fn browser(&self, database: &Path, remove: bool) -> anyhow::Result<()> {
        ensure!(
            resolved(Path::new("certutil")).is_some(),
            "certutil is not installed (package libnss3-tools or nss-tools)"
        );
        let at = format!("sql:{}", database.display());
        // Adding a certificate twice is no error; removing a missing one is.
        let known = Command::new("certutil")
            .args(["-L", "-d", &at, "-n", &self.trusted.name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let mut command = Command::new("certutil");
        let mut file = tempfile::NamedTempFile::new()?;
        match remove {
            true if !known.success() => return Ok(()),
            true => command.args(["-D", "-d", &at, "-n", &self.trusted.name]),
            // An authority for servers.
            false => {
                file.write_all(self.trusted.pem.as_bytes())?;
                command
                    .args(["-A", "-d", &at, "-n", &self.trusted.name])
                    .args(["-t", "C,,", "-i"])
                    .arg(file.path())
            }
        };
        run_program(&mut command)
    }
}

fn run_program(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let message = stderr.lines().last().unwrap_or("no message");
    ensure!(
        output.status.success(),
        "{name} failed ({}): {message}",
        output.status
    );
    Ok(())
}
