//! Tests several sites with users of their own behind one front end.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::common::Surus;
use crate::server::{app, descendants, id_of, is_root, start};

pub fn sites_run_php_as_their_own_users_and_the_front_end_as_another() {
    if !is_root() {
        return;
    }
    let dir = app(&[(
        "surus.toml",
        "http.user = 'nobody'\n\
         [[site]]\nhost = 'a.example'\nname = 'a'\nproject = 'a'\nengine.name = 'classic'\n\
         [[site]]\nhost = 'b.example'\nname = 'b'\nproject = 'b'\nengine.user = 'daemon'\n\
         [[site]]\nhost = 'c.example'\nname = 'c'\nproject = 'a'\nengine.user = 'no-such-user'\n",
    )]);
    let (www, daemon) = (id_of("www-data"), id_of("daemon"));
    let user = "echo posix_getuid(), ' ', @file_get_contents(__DIR__.'/../b/secret.txt') ?: '-'";
    for (name, owner, php) in [
        ("a", www, format!("<?php {user};")),
        (
            "b",
            daemon,
            format!("<?php surus_serve(function () {{ {user}; }});"),
        ),
    ] {
        let project = dir.path().join(name);
        std::fs::create_dir(&project).unwrap();
        set_permissions(&project, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(project.join("index.php"), php).unwrap();
        let secret = project.join("secret.txt");
        std::fs::write(&secret, format!("of {name}")).unwrap();
        chown(&secret, Some(owner), None).unwrap();
        set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    }
    let surus = start(dir.path(), &[], &[]);
    let serves = |when: &str| {
        let got = get(&surus, "a.example", "/");
        assert_eq!(got, (200, format!("{www} -")), "{when}: {}", surus.log());
        let got = get(&surus, "b.example", "/");
        assert_eq!(
            got,
            (200, format!("{daemon} of b")),
            "{when}: {}",
            surus.log()
        );
        // Each site has an opener with the rights of its own user.
        for name in ["a", "b"] {
            let got = get(&surus, &format!("{name}.example"), "/secret.txt");
            assert_eq!(got, (200, format!("of {name}")), "{when}: {}", surus.log());
        }
        assert_eq!(get(&surus, "c.example", "/").0, 503, "{when}");
    };
    serves("first");
    let uids: Vec<_> = descendants(surus.pid()).into_iter().map(uid_of).collect();
    let has = |uid: u32| uids.contains(&uid);
    assert!(has(www) && has(daemon) && has(id_of("nobody")), "{uids:?}");
    assert!(
        surus.log().contains("a site cannot be served"),
        "{}",
        surus.log()
    );

    let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
    let reload = reload.arg("reload").arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&reload.stderr).into_owned();
    assert!(
        said.contains("1 of 3 sites") && said.contains("no-such-user"),
        "{said}"
    );
    serves("after a reload");
}

fn uid_of(pid: u32) -> u32 {
    crate::common::user_of(pid).0
}

fn get(surus: &Surus, host: &str, path: &str) -> (u16, String) {
    let agent = ureq::Agent::new_with_config(
        ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build(),
    );
    let request = agent
        .get(format!("{}{path}", surus.url))
        .header("host", host);
    let mut answer = request.call().unwrap();
    let body = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), body)
}

/// A script of another site could otherwise stop it while the keeper waits for its answer.
pub fn installed_php_is_asked_before_the_front_end_exists() {
    if !is_root() {
        return;
    }
    let log = app(&[("children", "")]);
    let children = log.path().join("children");
    set_permissions(&children, Permissions::from_mode(0o666)).unwrap();
    let asked = format!(
        "#!/bin/sh\n\
         [ \"$1\" = -i ] && cat /proc/$PPID/task/*/children >>{}\n\
         exec php \"$@\"\n",
        children.display()
    );
    let programs = app(&[("one", &asked), ("two", &asked)]);
    let sites = |name: &str, host: &str| {
        let program = programs.path().join(name);
        format!(
            "[[site]]\nhost = '{host}'\n[site.engine]\nname = 'cli'\nphp_cli = '{}'\n",
            program.display()
        )
    };
    for name in ["one", "two"] {
        let mode = Permissions::from_mode(0o755);
        set_permissions(programs.path().join(name), mode).unwrap();
    }
    let project = app(&[("index.php", "<?php echo 'hello';")]);
    let text = sites("one", "a.example") + &sites("two", "b.example");
    std::fs::write(project.path().join("surus.toml"), text).unwrap();
    let surus = start(project.path(), &[], &[]);
    for host in ["a.example", "b.example"] {
        assert_eq!(get(&surus, host, "/"), (200, "hello".into()));
    }
    let seen = std::fs::read_to_string(&children).unwrap();
    // The keeper's only child is the program that it asks.
    assert_eq!(seen.split_whitespace().count(), 2, "{seen:?}");
}
