//! Tests `.user.ini` of the document root if the booted script lies elsewhere: it applies as
//! php-fpm applies it to requests for `index.php`.

use crate::booted::boot_in;
use crate::common::Surus;
use crate::site::{PATIENT, Site, app};

const PAGE: &str = "if (isset($_GET['exit'])) exit('exit ');
    echo 'page ', ini_get('memory_limit'), ' ', $GLOBALS['checked'] ?? 'unchecked', ' ';";

const FIREWALL: &str =
    "if (isset($_GET['attack'])) { http_response_code(403); echo 'blocked'; exit; }
    $checked = 'checked'; echo 'before ';";

/// A project with `public/` and the settings of its `.user.ini`.
fn project(settings: &str) -> tempfile::TempDir {
    let dir = app();
    let public = dir.path().join("public");
    std::fs::create_dir(&public).unwrap();
    let write = |name: &str, text: &str| std::fs::write(public.join(name), text).unwrap();
    write("index.php", &format!("<?php {PAGE}"));
    write("waf.php", &format!("<?php {FIREWALL}"));
    write("after.php", "<?php echo 'after';");
    write(".user.ini", settings);
    dir
}

const GUARDED: &str =
    "auto_prepend_file = waf.php\nauto_append_file = ./after.php\nmemory_limit = 99M\n";

/// Status and body of each page.
fn answers(site: &Site) -> Vec<(u16, String)> {
    let pages = ["/", "/?attack", "/?exit", "/index.php", "/some/page"];
    let asked = pages.iter().chain(&pages).map(|page| site.get(page));
    asked.map(|answer| (answer.status, answer.body)).collect()
}

fn by_classic(settings: &str) -> Vec<(u16, String)> {
    let dir = project(settings);
    let env = [&PATIENT[..], &[("SURUS_ENGINE_NAME", "classic")]].concat();
    let surus = Surus::spawn(dir.path(), &["--workers", "1"], &env).unwrap();
    answers(&Site { surus, dir })
}

#[test]
fn user_ini_of_the_document_root_applies_to_a_script_outside_of_it() {
    let expected = by_classic(GUARDED);
    assert_eq!(expected[0].1, "before page 99M checked after");
    assert_eq!(expected[1], (403, "blocked".into()));
    for engine in ["rewind", "fork", "standby", "worker"] {
        let boot = format!("surus_serve(function () {{ {PAGE} }});");
        let site = boot_in(project(GUARDED), engine, &boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        assert_eq!(answers(&site), expected, "{engine}\n{}", site.surus.log());
    }
}

/// Its own directory counts, too; the document root's settings come last.
#[test]
fn user_ini_next_to_a_script_outside_of_the_document_root_applies_if_the_root_sets_nothing() {
    for engine in ["rewind", "fork", "standby", "worker"] {
        let dir = project("memory_limit = 99M\n");
        let own = "memory_limit = 88M\nauto_prepend_file = own.php\n";
        std::fs::write(dir.path().join(".user.ini"), own).unwrap();
        std::fs::write(dir.path().join("own.php"), "<?php echo 'own ';").unwrap();
        let boot = format!("surus_serve(function () {{ {PAGE} }});");
        let site = boot_in(dir, engine, &boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        assert_eq!(site.get("/").body, "own page 99M unchecked ", "{engine}");
    }
}

#[test]
fn path_section_of_php_ini_for_the_document_root_applies_to_a_script_outside_of_it() {
    for engine in ["rewind", "worker"] {
        let dir = project("");
        let (public, ini) = (dir.path().join("public"), dir.path().join("php.ini"));
        let text = format!("[PATH={}]\nauto_prepend_file = waf.php\n", public.display());
        std::fs::write(&ini, text).unwrap();
        let env = [("SURUS_ENGINE_INI_FILE", ini.to_str().unwrap())];
        let boot = format!("surus_serve(function () {{ {PAGE} }});");
        let site = boot_in(dir, engine, &boot, &["--workers", "1"], &env)
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        assert_eq!(site.get("/?attack").status, 403, "{engine}");
    }
}

#[test]
fn relative_auto_files_of_the_document_root_resolve_there_for_a_script_below_it() {
    let expected = by_classic(GUARDED);
    for engine in ["rewind", "worker"] {
        let dir = project(GUARDED);
        let below = dir.path().join("public/app");
        std::fs::create_dir(&below).unwrap();
        let script = below.join("worker.php");
        let boot = format!("<?php surus_serve(function () {{ {PAGE} }});");
        std::fs::write(&script, boot).unwrap();
        let own = [
            ("SURUS_ENGINE_NAME", engine),
            ("SURUS_ENGINE_SCRIPT", script.to_str().unwrap()),
        ];
        let env = [&PATIENT, &own[..]].concat();
        let surus = Surus::spawn(dir.path(), &["--workers", "1"], &env)
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        let site = Site { surus, dir };
        assert_eq!(answers(&site), expected, "{engine}\n{}", site.surus.log());
    }
}

#[test]
fn path_section_of_php_ini_for_the_directory_of_a_script_below_the_document_root_applies() {
    for engine in ["rewind", "worker"] {
        let dir = project("");
        let (public, ini) = (dir.path().join("public"), dir.path().join("php.ini"));
        let script = public.join("app/boot.php");
        std::fs::create_dir(public.join("app")).unwrap();
        let boot = format!("<?php surus_serve(function () {{ {PAGE} }});");
        std::fs::write(&script, boot).unwrap();
        let public = public.display();
        let section = format!("[PATH={public}/app]\nauto_prepend_file = {public}/waf.php\n");
        std::fs::write(&ini, section).unwrap();
        let own = [
            ("SURUS_ENGINE_NAME", engine),
            ("SURUS_ENGINE_SCRIPT", script.to_str().unwrap()),
            ("SURUS_ENGINE_INI_FILE", ini.to_str().unwrap()),
        ];
        let env = [&PATIENT, &own[..]].concat();
        let surus = Surus::spawn(dir.path(), &["--workers", "1"], &env)
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        let site = Site { surus, dir };
        assert_eq!(site.get("/?attack").status, 403, "{engine}");
    }
}
