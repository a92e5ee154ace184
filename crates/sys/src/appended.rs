//! The record in this program that says what has been appended to its file.
//!
//! `surus build` changes the record in a copy of the program. So a program without anything
//! appended learns that without a system call, and a truncated copy still knows what is missing.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use nix::libc;
use nix::sys::statvfs::{FsFlags, fstatvfs};

/// The length of the record.
pub const LENGTH: usize = 64;

/// How the record begins. It must be nowhere else in the program, so callers take it from
/// [`record`].
pub const MARK_LENGTH: usize = 16;

#[used]
static RECORD: [u8; LENGTH] = {
    let mark: [u8; MARK_LENGTH] = *b"\x7fsurus appended\x01";
    let mut record = [0; LENGTH];
    let mut at = 0;
    while at < MARK_LENGTH {
        record[at] = mark[at];
        at += 1;
    }
    record
};

/// The record of this program, as its file has it.
pub fn record() -> [u8; LENGTH] {
    // SAFETY: a static is valid for reads. The read is volatile because the value may differ from
    // the one that was compiled.
    unsafe { std::ptr::read_volatile(&raw const RECORD) }
}

/// Opens this program's file. Where `/proc` is not mounted, it is the file of the name by which the
/// kernel has started the program.
pub fn open_program() -> io::Result<File> {
    match File::open("/proc/self/exe") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(started_as()?),
        opened => opened,
    }
}

/// The path by which the kernel has started this program.
fn started_as() -> io::Result<&'static OsStr> {
    // SAFETY: getauxval(3) only reads what the kernel has passed to this process.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    if name.is_null() {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: AT_EXECFN is the address of a NUL-terminated string above the stack. It stays as long
    // as the process, and nothing writes to it.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(OsStr::from_bytes(name.to_bytes()))
}

/// Whether programs on the file system of an open file or directory cannot be started (`noexec`).
pub fn is_noexec(file: impl AsFd) -> io::Result<bool> {
    Ok(fstatvfs(file)?.flags().contains(FsFlags::ST_NOEXEC))
}

/// Writes everything to disk that has been written to the file system of an open file.
pub fn sync(file: impl AsFd) -> io::Result<()> {
    Ok(nix::unistd::syncfs(file.as_fd())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_empty_and_once_in_the_program() {
        let record = record();
        assert_eq!(record[MARK_LENGTH..], [0; LENGTH - MARK_LENGTH]);
        let Ok(program) = std::env::current_exe().and_then(std::fs::read) else {
            panic!("cannot read the test program");
        };
        let found = program.windows(LENGTH).filter(|bytes| *bytes == record);
        assert_eq!(found.count(), 1);
    }

    #[test]
    fn program_is_found_without_proc() {
        let inode = |path: &OsStr| {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(path).ok().map(|file| file.ino())
        };
        let of_proc = inode(OsStr::new("/proc/self/exe"));
        assert!(of_proc.is_some());
        assert_eq!(started_as().ok().and_then(inode), of_proc);
        let opened = open_program().and_then(|file| is_noexec(&file));
        assert!(opened.is_ok_and(|is_noexec| !is_noexec));
    }
}
