//! Tests certificates, redirects and HSTS of single sites.

use std::path::Path;

use super::{admin, body, get, project, surus, with_admin};
use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::tls::{Secure, https_address};
use crate::wire::Wire;

const PAGE: (&str, &str) = ("index.php", "<?php echo 'page';");

fn start(dir: &Path, authority: Authority) -> Secure {
    let surus = Surus::spawn(dir, &["--workers", "1"], &[]);
    let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    let address = https_address(&surus);
    Secure {
        surus,
        address,
        authority,
    }
}

/// A site with a certificate of its own in the project's directory.
fn site(name: &str) -> String {
    format!(
        "[[site]]\nhost = '{name}.example'\nname = '{name}'\n\
         tls.certificate = '{name}.crt'\ntls.key = '{name}.key'\n"
    )
}

fn https(secure: &Secure, host: &str, target: &str) -> crate::wire::Answer {
    let client = secure.client_for(host, secure.config(rustls::DEFAULT_VERSIONS));
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    secure.connect_by(client).ask(&request).unwrap()
}

#[test]
fn hosts_of_a_site_select_its_certificate() {
    let [all, one, two] = ["All", "One", "Two"].map(Authority::new);
    let dir = project(&[PAGE]);
    let common = "tls.listen = '127.0.0.1:0'\ntls.certificate = 'all.crt'\ntls.key = 'all.key'\n";
    let none = "[[site]]\nhost = ['none.sites.example', '*.one.example']\ndefault = true\n";
    let toml = [common, &site("one"), &site("two"), none].concat();
    std::fs::write(dir.path().join("surus.toml"), toml).unwrap();
    all.issue(&["all.example", "*.sites.example"])
        .write(dir.path(), "all");
    // Also for a host of the other site, which must not get it.
    one.issue(&["one.example", "two.example", "deep.one.example"])
        .write(dir.path(), "one");
    two.issue(&["two.example"]).write(dir.path(), "two");
    let secure = start(dir.path(), Authority::new("Unused"));
    for (host, authority) in [
        ("one.example", &one),
        ("ONE.example", &one),
        ("two.example", &two),
        ("none.sites.example", &all),
        ("other.sites.example", &all),
        // Of a site without a certificate that is for it: any that is for the host.
        ("deep.one.example", &one),
    ] {
        assert!(
            secure.has(host, authority),
            "{host}: {}",
            secure.surus.log()
        );
    }
    assert!(!secure.has("two.example", &one));
    let log = secure.surus.log();
    assert!(log.contains("certificate read site=\"one\""), "{log}");
}

#[test]
fn reload_serves_a_new_site_with_its_certificate() {
    let [one, two] = ["One", "Two"].map(Authority::new);
    let dir = project(&[PAGE]);
    let toml = [
        "tls.listen = '127.0.0.1:0'\n",
        &site("one"),
        &site("two"),
        "[[site]]\nhost = 'bare.example'\nhttp.redirect_to_https = true\n",
    ];
    let write = |parts: &[&str]| {
        std::fs::write(dir.path().join("surus.toml"), parts.concat()).unwrap();
    };
    write(&toml[..2]);
    one.issue(&["one.example"]).write(dir.path(), "one");
    let secure = start(dir.path(), Authority::new("Unused"));
    assert!(secure.has("one.example", &one), "{}", secure.surus.log());
    write(&toml);
    // A site whose certificate is missing is not applied.
    let (is_fine, said) = surus("reload", dir.path());
    assert!(!is_fine && said.contains("site two"), "{said}");
    assert_eq!(get(&secure.surus, "two.example", "/").status, 421);
    two.issue(&["two.example"]).write(dir.path(), "two");
    let (is_fine, said) = surus("reload", dir.path());
    assert!(is_fine, "{said}");
    assert!(secure.has("two.example", &two) && secure.has("one.example", &one));
    let bare = "no certificate is for a host that is redirected to HTTPS";
    (secure.surus).wait_for_log(|log| log.contains(bare) && log.contains("host=\"bare.example\""));
    let log = secure.surus.log();
    assert_eq!(
        body(&get(&secure.surus, "two.example", "/")),
        "page",
        "{log}"
    );
    // Its files are read again from then on.
    let next = Authority::new("Next");
    next.issue(&["two.example"]).write(dir.path(), "two");
    assert!(surus("reload", dir.path()).0);
    assert!(secure.has("two.example", &next));
}

#[test]
fn default_site_has_the_certificate_of_clients_without_a_name() {
    let authority = Authority::new("Test");
    let dir = project(&[PAGE]);
    let toml = [
        "tls.listen = '127.0.0.1:0'\n",
        &site("one"),
        &site("two"),
        "default = true\n",
    ];
    std::fs::write(dir.path().join("surus.toml"), toml.concat()).unwrap();
    for name in ["one", "two"] {
        let issued = authority.issue(&[&format!("{name}.example")]);
        issued.write(dir.path(), name);
    }
    let secure = start(dir.path(), authority);
    let accepts = |host: &str| {
        let mut config = secure.config(rustls::DEFAULT_VERSIONS);
        config.enable_sni = false;
        let mut client = secure.client_for(host, config);
        client.complete_io(&mut secure.socket()).is_ok()
    };
    assert!(accepts("two.example") && !accepts("one.example"));
}

#[test]
fn bad_certificate_of_a_site_leaves_the_others_served() {
    let [good, bad, next] = ["Good", "Bad", "Next"].map(Authority::new);
    let dir = project(&[PAGE]);
    let toml = ["tls.listen = '127.0.0.1:0'\n", &site("good"), &site("bad")];
    with_admin(&dir, &toml.concat());
    good.issue(&["good.example"]).write(dir.path(), "good");
    let issued = bad.issue(&["bad.example"]);
    issued.write(dir.path(), "bad");
    let foreign = good.issue(&["bad.example"]).key;
    std::fs::write(dir.path().join("bad.key"), foreign).unwrap();
    let secure = start(dir.path(), Authority::new("Unused"));
    let server = &secure.surus;

    let why = "does not belong to the certificate";
    assert!(secure.has("good.example", &good), "{}", server.log());
    assert!(!secure.has("bad.example", &bad));
    for host in ["good.example", "bad.example"] {
        assert_eq!(body(&get(server, host, "/")), "page", "{host}");
    }
    let log = server.log();
    let line = log
        .lines()
        .find(|line| line.contains("certificates of a site cannot be used"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(
        line.contains("site=\"bad\"") && line.contains(why),
        "{line}"
    );
    let (_, status) = surus("status", dir.path());
    assert!(
        status.contains("site bad is served for bad.example"),
        "{status}"
    );
    assert!(
        status.contains("certificates of site bad cannot be used: "),
        "{status}"
    );
    assert!(!status.contains("certificates of site good"), "{status}");
    assert!(admin(dir.path(), "sites").contains("\"certificate_error\""));
    let (is_fine, checked) = surus("check", dir.path());
    assert!(!is_fine && checked.contains("✗ site bad: "), "{checked}");
    assert!(
        checked.contains(why) && !checked.contains("✗ site good"),
        "{checked}"
    );
    let (is_fine, reloaded) = surus("reload", dir.path());
    assert!(
        !is_fine && reloaded.contains("bad: ") && reloaded.contains(why),
        "{reloaded}"
    );

    // A reload takes the mended one, and another that is bad now keeps its old one.
    issued.write(dir.path(), "bad");
    let (is_fine, reloaded) = surus("reload", dir.path());
    assert!(is_fine, "{reloaded}");
    assert!(secure.has("bad.example", &bad) && secure.has("good.example", &good));
    let (_, status) = surus("status", dir.path());
    assert!(!status.contains("cannot be used"), "{status}");
    std::fs::write(dir.path().join("good.crt"), "nothing").unwrap();
    next.issue(&["bad.example"]).write(dir.path(), "bad");
    let (is_fine, reloaded) = surus("reload", dir.path());
    assert!(!is_fine && reloaded.contains("good: "), "{reloaded}");
    assert!(secure.has("bad.example", &next) && secure.has("good.example", &good));
    let (_, status) = surus("status", dir.path());
    assert!(
        status.contains("certificates of site good cannot be used: "),
        "{status}"
    );
}

#[test]
fn changed_configuration_is_applied_although_a_certificate_stays_bad() {
    let [good, bad] = ["Good", "Bad"].map(Authority::new);
    let dir = project(&[PAGE]);
    let toml = ["tls.listen = '127.0.0.1:0'\n", &site("good"), &site("bad")].concat();
    with_admin(&dir, &toml);
    good.issue(&["good.example"]).write(dir.path(), "good");
    bad.issue(&["bad.example"]).write(dir.path(), "bad");
    let foreign = good.issue(&["bad.example"]).key;
    std::fs::write(dir.path().join("bad.key"), foreign).unwrap();
    let secure = start(dir.path(), Authority::new("Unused"));
    let route = "[[route]]\nprefix = '/moved'\nredirect = '/'\n";
    with_admin(&dir, &format!("{toml}{route}"));
    let (is_fine, said) = surus("reload", dir.path());
    assert!(is_fine, "{said}");
    assert_eq!(get(&secure.surus, "good.example", "/moved").status, 302);
    let line = "certificates need attention after the reload";
    let is_named = |log: &str| {
        let line = log.lines().find(|text| text.contains(line));
        line.is_some_and(|line| line.contains("bad: "))
    };
    secure.surus.wait_for_log(is_named);
}

#[test]
fn changed_certificate_of_a_site_is_noticed() {
    let [old, new, other] = ["Old", "New", "Other"].map(Authority::new);
    let dir = project(&[PAGE]);
    let toml = ["tls.listen = '127.0.0.1:0'\n", &site("one"), &site("two")];
    std::fs::write(dir.path().join("surus.toml"), toml.concat()).unwrap();
    old.issue(&["one.example"]).write(dir.path(), "one");
    other.issue(&["two.example"]).write(dir.path(), "two");
    let secure = start(dir.path(), Authority::new("Unused"));
    std::fs::remove_file(dir.path().join("two.key")).unwrap();
    new.issue(&["one.example"]).write(dir.path(), "one");
    // While no client connects, the files are read every five minutes.
    assert!(secure.has("two.example", &other));
    secure.surus.wait_for_log_within(120, |log| {
        log.contains("cannot reload the certificates; the current ones stay in use")
            && log.contains("two: cannot read")
    });
    assert!(secure.has("one.example", &new) && secure.has("two.example", &other));
}

#[test]
fn redirect_and_hsts_are_those_of_the_site() {
    let authority = Authority::new("Test");
    let dir = project(&[PAGE]);
    let toml = [
        "tls.listen = '127.0.0.1:0'\ntls.hsts = 'max-age=1'\nhttp.redirect_to_https = true\n",
        &site("one"),
        "http.redirect_to_https = false\n",
        &site("two"),
        "tls.hsts = 'max-age=2'\n",
    ];
    std::fs::write(dir.path().join("surus.toml"), toml.concat()).unwrap();
    for name in ["one", "two"] {
        let issued = authority.issue(&[&format!("{name}.example")]);
        issued.write(dir.path(), name);
    }
    let secure = start(dir.path(), authority);
    assert_eq!(get(&secure.surus, "one.example", "/").status, 200);
    let redirected = get(&secure.surus, "two.example", "/a");
    assert_eq!(redirected.status, 301);
    let to = redirected.header("location").unwrap();
    assert!(
        to.starts_with("https://two.example") && to.ends_with("/a"),
        "{to}"
    );
    for (host, age) in [("one.example", "max-age=1"), ("two.example", "max-age=2")] {
        let answer = https(&secure, host, "/");
        assert_eq!(
            answer.header("strict-transport-security"),
            Some(age),
            "{host}"
        );
    }
}

#[test]
fn site_that_has_not_booted_redirects_to_https() {
    let authority = Authority::new("Test");
    let fails = "<?php throw new Exception('at the boot'); surus_serve(1);";
    let dir = project(&[PAGE, ("bad/index.php", fails)]);
    let toml = [
        "tls.listen = '127.0.0.1:0'\n",
        &site("good"),
        "[[site]]\nhost = 'bad.example'\nproject = 'bad'\nhttp.redirect_to_https = true\n",
    ];
    std::fs::write(dir.path().join("surus.toml"), toml.concat()).unwrap();
    let issued = authority.issue(&["good.example", "bad.example"]);
    issued.write(dir.path(), "good");
    let secure = start(dir.path(), authority);
    assert_eq!(get(&secure.surus, "bad.example", "/").status, 301);
    assert_eq!(https(&secure, "bad.example", "/").status, 503);
}

#[test]
fn domain_of_a_site_gets_a_certificate_and_redirects_that_site_alone() {
    let dir = project(&[PAGE]);
    with_admin(
        &dir,
        "acme.directory = 'authority'\ntls.listen = '127.0.0.1:0'\n\
         [[site]]\nhost = 'shop.test'\nacme.domains = 'shop.test'\n\
         [[site]]\nhost = 'plain.example'\n",
    );
    let server = Surus::spawn(dir.path(), &["--workers", "1"], &[]).unwrap();
    let port = https_address(&server);
    let port = port.rsplit(':').next().unwrap();
    let root = dir.path().join("authority/local/root.crt");
    let output = std::process::Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60", "--cacert"])
        .arg(root)
        .args(["--resolve", &format!("shop.test:{port}:127.0.0.1")])
        .arg(format!("https://shop.test:{port}/"))
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"page", "{output:?}\n{}", server.log());
    assert_eq!(get(&server, "shop.test", "/").status, 301);
    assert_eq!(get(&server, "plain.example", "/").status, 200);
}

#[test]
fn domain_that_no_site_has_is_rejected_unless_the_command_line_replaces_it() {
    let dir = project(&[PAGE]);
    with_admin(
        &dir,
        "acme.directory = 'authority'\nacme.domains = 'gone.test'\n\
         tls.listen = '127.0.0.1:0'\n\
         [[site]]\nhost = 'shop.test'\n",
    );
    let start = |options: &[&str]| {
        let args = [&["--workers", "1"][..], options].concat();
        Surus::spawn(dir.path(), &args, &[])
    };
    for (options, setting) in [
        (&["--domain", "other.test"][..], "other.test (--domain)"),
        (&[], "gone.test (acme.domains)"),
    ] {
        let log = start(options).err().unwrap();
        let why = format!("no [[site]] has the host {setting}");
        assert!(log.contains(&why), "{log}");
    }
    // It replaces the other one.
    let started = start(&["--domain", "shop.test"]);
    assert!(started.is_ok(), "{:?}", started.err());
}

#[test]
fn certificate_of_a_site_without_a_port_or_with_another_host_is_named() {
    let dir = project(&[PAGE]);
    Authority::new("Test")
        .issue(&["other.example"])
        .write(dir.path(), "one");
    let file = dir.path().join("surus.toml");
    std::fs::write(dir.path().join("ca.pem"), Authority::new("Clients").pem).unwrap();
    let client_ca = "tls.client_ca = 'ca.pem'\n";
    std::fs::write(&file, [client_ca, &site("one")].concat()).unwrap();
    let (is_fine, checked) = surus("check", dir.path());
    assert!(
        !is_fine && checked.contains("site one has tls.certificate"),
        "{checked}"
    );
    assert!(checked.contains("gives pages of site one"), "{checked}");
    let log = Surus::spawn(dir.path(), &[], &[]).err().unwrap();
    assert!(log.contains("tls.listen is empty"), "{log}");
    std::fs::write(
        &file,
        format!("tls.listen = '127.0.0.1:0'\n{}", site("one")),
    )
    .unwrap();
    let (_, checked) = surus("check", dir.path());
    assert!(
        checked.contains("no certificate is for one.example, a host of site one"),
        "{checked}"
    );
}

#[test]
fn wildcard_of_a_site_is_for_its_hosts_on_one_connection_with_others() {
    let [one, two] = ["One", "Two"].map(Authority::new);
    let dir = project(&[
        ("one/index.php", "<?php echo 'one';"),
        ("two/index.php", "<?php echo 'two';"),
        (
            "surus.toml",
            "tls.listen = '127.0.0.1:0'\n\
             [[site]]\nhost = '*.one.example'\nproject = 'one'\n\
             tls.certificate = '../one.crt'\ntls.key = '../one.key'\n\
             [[site]]\nhost = 'x.one.example'\nproject = 'two'\n\
             tls.certificate = '../two.crt'\ntls.key = '../two.key'\n",
        ),
    ]);
    one.issue(&["*.one.example"]).write(dir.path(), "one");
    two.issue(&["x.one.example"]).write(dir.path(), "two");
    let secure = start(dir.path(), one);
    assert!(secure.has("y.one.example", &secure.authority));
    assert!(secure.has("x.one.example", &two));
    // A request may be for another site than the handshake.
    let client = secure.client_for("y.one.example", secure.config(rustls::DEFAULT_VERSIONS));
    let mut wire: Wire = secure.connect_by(client);
    for (host, said) in [("y.one.example", "one"), ("x.one.example", "two")] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(body(&wire.ask(&request).unwrap()), said);
    }
}
