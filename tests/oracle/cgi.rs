//! Asks php-cgi the way a web server runs a CGI program: one process, variables as its environment, the body as its input.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::fastcgi::Reply;
use super::vars::Vars;

/// `ini` is the php.ini it reads instead of its own, `scan_dir` where it looks for more of it.
pub fn ask(
    program: &Path,
    ini: &Path,
    scan_dir: &str,
    vars: &Vars,
    body: &[u8],
) -> io::Result<Reply> {
    // The working directory is the script's, as RFC 3875, 7.2 asks for.
    let script = vars
        .iter()
        .find(|(name, _)| name == "SCRIPT_FILENAME")
        .map(|(_, value)| OsStr::from_bytes(value));
    let mut child = Command::new(program)
        .arg("-c")
        .arg(ini)
        .current_dir(
            script
                .and_then(|script| Path::new(script).parent())
                .unwrap_or(Path::new("/")),
        )
        .env_clear()
        .env("PHP_INI_SCAN_DIR", scan_dir)
        .envs(
            vars.iter()
                .map(|(name, value)| (name, OsStr::from_bytes(value))),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    let body = body.to_vec();
    // A script may end without reading its input; its answer counts all the same.
    let sending = std::thread::spawn(move || drop(stdin.write_all(&body)));
    let output = child.wait_with_output()?;
    let _ = sending.join();
    Ok(Reply {
        stdout: output.stdout,
        stderr: output.stderr,
    })
}
