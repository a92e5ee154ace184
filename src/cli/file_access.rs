//! Checks by permission bits whether PHP's user can read a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use surus_sys::process::User;

use super::findings::Findings;
use crate::app::site::Site;
use crate::config::Config;
use crate::engines;

/// The part of the path to `file` that keeps this user out by its permission bits. Access control
/// lists are not checked.
pub(super) fn obstacle(user: &User, file: &Path) -> Option<PathBuf> {
    let groups = groups(user);
    let may = |path: &Path, bits: u32| {
        std::fs::metadata(path).is_ok_and(|found| allowed(user, &groups, &found, bits))
    };
    let mut above: Vec<&Path> = file.ancestors().skip(1).collect();
    above.reverse();
    above
        .into_iter()
        .find(|directory| !may(directory, 0o1))
        .or_else(|| (!may(file, 0o4)).then_some(file))
        .map(Path::to_path_buf)
}

fn allowed(user: &User, groups: &[u32], found: &Metadata, bits: u32) -> bool {
    let shift = if user.uid == 0 {
        return true;
    } else if found.uid() == user.uid {
        6
    } else if groups.contains(&found.gid()) {
        3
    } else {
        0
    };
    found.mode() >> shift & bits == bits
}

/// The user's main group and the groups of /etc/group that list it.
fn groups(user: &User) -> Vec<u32> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let member = |line: &str| {
        let mut parts = line.split(':').skip(2);
        let gid = parts.next()?.parse().ok()?;
        parts
            .next()?
            .split(',')
            .any(|name| name == user.name)
            .then_some(gid)
    };
    std::iter::once(user.gid)
        .chain(text.lines().filter_map(member))
        .collect()
}

/// Reports the user that PHP runs as, and whether it can read the application.
pub(super) fn report(config: &Config, site: &Site, findings: &Findings) {
    // The engine has already reported the error.
    let Ok(Some(user)) = engines::user(&config.engine) else {
        return;
    };
    findings.fine(
        "user",
        format_args!(
            "{} (engine.user), because Surus was started as root",
            user.name
        ),
    );
    let needed = site
        .front_controller()
        .map_or(site.root(), |script| &script.filename);
    if let Some(obstacle) = obstacle(&user, needed) {
        findings.note(format_args!(
            "the permissions of {} keep {} out, so PHP cannot read {}; change them, or set \
             engine.user",
            obstacle.display(),
            user.name,
            needed.display()
        ));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn unreadable_directory_is_named() {
        let stranger = User {
            name: "no-user-of-this-name".into(),
            uid: 4_000_000,
            gid: 4_000_000,
            home: "/".into(),
        };
        let top = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let file = top.path().join("index.php");
        std::fs::write(&file, "").unwrap();
        set(&file, 0o644);
        set(top.path(), 0o700);
        assert_eq!(obstacle(&stranger, &file).as_deref(), Some(top.path()));
        set(top.path(), 0o711);
        assert_eq!(obstacle(&stranger, &file), None);
        set(&file, 0o640);
        assert_eq!(obstacle(&stranger, &file), Some(file));
    }
}
