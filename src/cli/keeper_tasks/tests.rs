//! Tests that directories are served as the configuration says, by whichever process opens them.

use http::{HeaderMap, Method};

use super::*;
use crate::app::site::routes::{Action, RequestFacts};
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
