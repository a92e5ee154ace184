//! Access control lists of files (acl(5)).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc;

/// Gives a group access to all files that are created in a directory from now on, within the mode
/// that each is created with. Others than the file's owner and that group have none. False: the
/// file system has no such lists.
pub fn share_new_files(directory: impl AsFd, group: u32) -> io::Result<bool> {
    const NO_ID: u32 = u32::MAX;
    // The tags of linux/posix_acl.h: the owner, the owning group, a group, the mask, others.
    let entries = [
        (0x01_u16, 7_u16, NO_ID),
        (0x04, 0, NO_ID),
        (0x08, 7, group),
        (0x10, 7, NO_ID),
        (0x20, 0, NO_ID),
    ];
    // The format of linux/posix_acl_xattr.h, with its version first.
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    // SAFETY: fsetxattr(2) reads the name up to its NUL byte and `list.len()` bytes of the list.
    let set = unsafe {
        libc::fsetxattr(
            directory.as_fd().as_raw_fd(),
            c"system.posix_acl_default".as_ptr(),
            list.as_ptr().cast(),
            list.len(),
            0,
        )
    };
    match Errno::result(set) {
        Err(Errno::EOPNOTSUPP) => Ok(false),
        set => Ok(set.map(|_| true)?),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    use super::*;

    #[test]
    fn new_file_has_the_mode_that_it_is_created_with() {
        let dir = tempfile::tempdir().unwrap();
        if !share_new_files(File::open(dir.path()).unwrap(), 33).unwrap() {
            return;
        }
        let path = dir.path().join("a");
        let create = || {
            File::options()
                .write(true)
                .create_new(true)
                .mode(0o660)
                .open(&path)
        };
        let mode = create().unwrap().metadata().unwrap().permissions().mode();
        // The umask does not count.
        assert_eq!(mode & 0o7777, 0o660);
    }
}
