//! Looks up users and groups of this machine, and the user and rights of this process.

use std::io;
use std::os::fd::AsFd;

/// A user of this machine.
#[derive(Debug, Clone)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// The number of its main group, or of the requested group.
    pub gid: u32,
    /// Its home directory.
    pub home: std::path::PathBuf,
}

/// Looks up a user by name or number, and the group by name or number; `None` if either does not
/// exist.
pub fn find_user(user: &str, group: Option<&str>) -> io::Result<Option<User>> {
    let found = match user.parse::<u32>() {
        Ok(uid) => nix::unistd::User::from_uid(uid.into())?,
        Err(_) => nix::unistd::User::from_name(user)?,
    };
    let Some(found) = found else { return Ok(None) };
    let gid = match group {
        None => found.gid,
        Some(group) => {
            let found = match group.parse::<u32>() {
                Ok(gid) => nix::unistd::Group::from_gid(gid.into())?,
                Err(_) => nix::unistd::Group::from_name(group)?,
            };
            match found {
                Some(group) => group.gid,
                None => return Ok(None),
            }
        }
    };
    Ok(Some(User {
        name: found.name,
        uid: found.uid.as_raw(),
        gid: gid.as_raw(),
        home: found.dir,
    }))
}

/// The numbers of all groups of a user, including its main group.
pub fn groups(user: &User) -> io::Result<Vec<u32>> {
    let name = std::ffi::CString::new(user.name.as_str())?;
    let found = nix::unistd::getgrouplist(&name, user.gid.into())?;
    Ok(found.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

/// The user id of this process.
pub fn uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Whether this process is root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether the file access of this thread (setfsuid(2)) includes creating entries in a directory.
pub fn may_write(directory: impl AsFd) -> bool {
    use nix::fcntl::AtFlags;
    use nix::unistd::{AccessFlags, faccessat};
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    // AT_EACCESS keeps the kernel from using the real user instead.
    faccessat(directory, ".", access, AtFlags::AT_EACCESS).is_ok()
}

/// Whether this process is root and can start processes of other users. In a container without
/// subordinate ids, root is the only user of its namespace.
pub fn has_other_users() -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}"));
    // A line each: the first number inside, the first outside, how many.
    let counts = |map: String| -> u64 {
        let last = |line: &str| line.split_whitespace().last()?.parse::<u64>().ok();
        map.lines().filter_map(last).sum()
    };
    let has_many = |map| read(map).map_or(true, |map| counts(map) > 1);
    let is_denied = read("setgroups").is_ok_and(|word| word.trim() == "deny");
    is_root() && has_many("uid_map") && has_many("gid_map") && !is_denied
}
