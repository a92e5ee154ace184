//! Runs php-cgi as a web server does: one process per request, variables in the environment, the
//! body on stdin.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::fastcgi::Reply;
use super::vars::Vars;
use super::watch::{Watch, Watched};

pub struct Program<'a> {
    pub path: &'a str,
    /// The php.ini that it reads instead of its own.
    pub ini: &'a str,
    /// The directory with additional ini files.
    pub scan_dir: &'a str,
}

/// One request of one process.
pub fn ask(program: Program, vars: &Vars, body: &[u8], watch: Option<Watch>) -> io::Result<Reply> {
    // The script's directory is the working directory (RFC 3875, 7.2).
    let script = vars
        .iter()
        .find(|(name, _)| name == "SCRIPT_FILENAME")
        .and_then(|(_, value)| Path::new(OsStr::from_bytes(value)).parent());
    let mut child = Command::new(program.path)
        .args(["-c", program.ini])
        .current_dir(script.unwrap_or(Path::new("/")))
        .env_clear()
        .env("PHP_INI_SCAN_DIR", program.scan_dir)
        .envs(
            vars.iter()
                .map(|(name, value)| (name, OsStr::from_bytes(value))),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut reply = Reply::default();
    let (mut stdin, mut stderr) = (child.stdin.take().unwrap(), child.stderr.take().unwrap());
    let mut stdout = Watched::new(child.stdout.take().unwrap(), watch);
    std::thread::scope(|scope| {
        // A script may exit without reading its input; its answer is still valid.
        scope.spawn(move || drop(stdin.write_all(body)));
        scope.spawn(|| stderr.read_to_end(&mut reply.stderr));
        stdout.read_to_end(&mut reply.stdout)
    })?;
    child.wait()?;
    Ok(reply)
}
