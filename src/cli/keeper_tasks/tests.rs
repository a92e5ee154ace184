//! Tests that directories are served as the configuration says, by whichever process opens them,
//! and which changed configurations are rejected.

use http::{HeaderMap, Method};
use surus_sys::process::User;

use super::*;
use crate::app::DocumentTree;
use crate::app::site::routes::{Action, RequestFacts};
use crate::cli::adopted_trees::adopt;
use crate::cli::served::open_tree;

/// Panics unless the limits of the site's `.htaccess` files hold for all its document trees.
fn assert_shared_limits(tree: &DocumentTree) {
    let choice = tree.routes.choose(&RequestFacts {
        method: &Method::GET,
        path: "/files/a",
        headers: &HeaderMap::new(),
        query: None,
    });
    let Some(Action::Files(files)) = choice.action else {
        panic!("{:?}", choice.action);
    };
    assert!(files.shares_limits_with(&tree.site));
    assert!(tree.pool_sites["second"].shares_limits_with(&tree.site));
}

#[tokio::test]
async fn limits_of_htaccess_files_are_those_of_the_whole_site() {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path();
    std::fs::create_dir_all(project.join("other/files")).unwrap();
    for script in ["index.php", "second.php"] {
        std::fs::write(project.join(script), "<?php").unwrap();
    }
    let root = project.join("other");
    let config: Config = toml::from_str(&format!(
        "pool.second.script = 'second.php'
        [[route]]
        prefix = '/files/'
        root = '{}'
        [[route]]
        prefix = '/second'
        engine = 'second'",
        root.display()
    ))
    .unwrap();
    assert_shared_limits(&open_tree(project, &config).unwrap());

    let (found, pool_sites) = directories(project, &config).unwrap();
    let (described, dirs): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let (ours, _theirs) = Seqpacket::blocking_pair().unwrap();
    let layout = Layout {
        described,
        pool_sites,
    };
    let served = keeper::ServedDirectories {
        number: 0,
        text: serde_json::to_vec(&layout).unwrap(),
        fds: std::iter::once(ours).chain(dirs).collect(),
    };
    let (tree, _opener) = adopt(&config, served).unwrap();
    assert_shared_limits(&tree);
}

#[test]
fn user_of_the_front_end_is_rejected_unless_a_site_has_it_already() {
    let php = |uids: &[u32]| -> Vec<Option<Identity>> {
        let of = |uid: &u32| Identity {
            uid: *uid,
            gid: *uid,
            groups: vec![*uid],
        };
        uids.iter().map(of).map(Some).chain([None]).collect()
    };
    for (used, next, is_rejected) in [
        (&[33][..], &[33, 34][..], false),
        (&[33], &[33, 70], true),
        (&[33, 70], &[70, 34], false),
        (&[], &[70], true),
    ] {
        let found = has_new_user(70, &php(used), &php(next));
        assert_eq!(found, is_rejected, "{used:?} {next:?}");
    }
}

#[test]
fn installed_php_that_the_start_has_not_asked_needs_a_restart() {
    let project = Path::new("/srv/app");
    let config: Config = toml::from_str("engine.name = 'cgi'").unwrap();
    let pool = |uid: u32| {
        let mut pools = engine_setup::pools(project, &config, &[]).unwrap();
        let found = engines::Found {
            program: "/nowhere/new-php-cgi".into(),
            loader: None,
            workers: 1..=1,
            busy_poll: Duration::ZERO,
            user: Some(User {
                name: "somebody".into(),
                uid,
                gid: uid,
                home: "/".into(),
            }),
        };
        engine_setup::plan_with(pools.remove(0), project, found)
    };
    // Root's PHP reads the files as root.
    assert!(check_learned(&[pool(0)]).is_ok());
    let pools = [pool(1234)];
    let error = check_learned(&pools).unwrap_err().to_string();
    assert!(error.contains("/nowhere/new-php-cgi"), "{error}");
    keeper_tasks::learn(&pools[0].plan, &[]);
    assert!(check_learned(&pools).is_ok());
}
