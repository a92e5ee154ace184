//! Looks up users and groups of this machine, and the user and rights of this process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;

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
    let key = (user.to_owned(), group.map(str::to_owned));
    let found = once(|known| &mut known.users, key, || ask_for_user(user, group));
    found.map_err(io::Error::from)
}

fn ask_for_user(user: &str, group: Option<&str>) -> nix::Result<Option<User>> {
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
    let key = (user.name.clone(), user.gid);
    let found = once(|known| &mut known.groups, key, || ask_for_groups(user));
    found.map_err(io::Error::from)
}

fn ask_for_groups(user: &User) -> nix::Result<Vec<u32>> {
    let name = std::ffi::CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
    let found = nix::unistd::getgrouplist(&name, user.gid.into())?;
    Ok(found.into_iter().map(nix::unistd::Gid::as_raw).collect())
}

/// Users and groups that were looked up. Each look-up may wait for the network (nsswitch.conf(5)).
#[derive(Debug, Clone, Default)]
pub struct KnownUsers {
    /// By the names of user and group.
    users: UserAnswers<(String, Option<String>), Option<User>>,
    /// By the user's name and its main group.
    groups: UserAnswers<(String, u32), Vec<u32>>,
}

type UserAnswers<K, V> = BTreeMap<K, nix::Result<V>>;

#[derive(Default)]
struct Lookups {
    before: KnownUsers,
    now: KnownUsers,
}

thread_local! {
    /// The look-ups of [`look_up_once`].
    static LOOKUPS: RefCell<Option<Lookups>> = const { RefCell::new(None) };
}

/// Calls `run`. On this thread, it looks up each user and its groups once at most, and those among
/// `known` not at all. Returns those that it has found.
pub fn look_up_once<T>(known: KnownUsers, run: impl FnOnce() -> T) -> (T, KnownUsers) {
    LOOKUPS.set(Some(Lookups {
        before: known,
        now: KnownUsers::default(),
    }));
    let result = run();
    let mut found = LOOKUPS.take().unwrap_or_default().now;
    found.users.retain(|_, user| matches!(user, Ok(Some(_))));
    found.groups.retain(|_, groups| groups.is_ok());
    (result, found)
}

/// The known answer to a question, or that of `ask`.
fn once<K: Ord, V: Clone>(
    answers: impl Fn(&mut KnownUsers) -> &mut UserAnswers<K, V>,
    key: K,
    ask: impl FnOnce() -> nix::Result<V>,
) -> nix::Result<V> {
    LOOKUPS.with_borrow_mut(|lookups| {
        let Some(Lookups { before, now }) = lookups else {
            return ask();
        };
        if let Some(answer) = answers(now).get(&key) {
            return answer.clone();
        }
        let answer = answers(before).remove(&key).unwrap_or_else(ask);
        answers(now).insert(key, answer.clone());
        answer
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_user_is_not_looked_up_and_another_one_once() {
        let asked = std::cell::Cell::new(0);
        let groups = |name: &str, answer: nix::Result<Vec<u32>>| {
            let key = (name.to_owned(), 0);
            let ask = || {
                asked.set(asked.get() + 1);
                answer
            };
            once(|known| &mut known.groups, key, ask)
        };
        let ((), known) = look_up_once(KnownUsers::default(), || {
            assert_eq!(groups("a", Ok(vec![1])), Ok(vec![1]));
            assert_eq!(groups("a", Ok(vec![2])), Ok(vec![1]));
            assert_eq!(groups("b", Err(Errno::EIO)), Err(Errno::EIO));
            assert_eq!(groups("b", Ok(vec![2])), Err(Errno::EIO));
        });
        assert_eq!(asked.get(), 2);
        let ((), known) = look_up_once(known, || {
            assert_eq!(groups("a", Ok(vec![3])), Ok(vec![1]));
            // A failure is no answer for the next time.
            assert_eq!(groups("b", Ok(vec![4])), Ok(vec![4]));
        });
        let ((), known) = look_up_once(known, || {
            assert_eq!(groups("b", Ok(vec![5])), Ok(vec![4]));
        });
        // A user that is no longer needed is forgotten.
        look_up_once(known, || {
            assert_eq!(groups("a", Ok(vec![6])), Ok(vec![6]));
        });
        assert_eq!(groups("b", Ok(vec![7])), Ok(vec![7]));
        assert_eq!(asked.get(), 5);
    }
}
