//! The code of a function: its zip or directory, handler, architecture and layers.

use std::path::Path;

use super::{findings, function};

/// A zip with these files and a `bootstrap` whose ELF header names this machine (`e_machine`).
pub fn zip(path: &Path, machine: u8, files: &[(&str, &str)]) {
    use std::io::Write;
    let mut header = [0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18] = machine;
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("bootstrap", options).unwrap();
    zip.write_all(&header).unwrap();
    for (name, text) in files {
        zip.start_file(*name, options).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap();
}

pub const X86_64: u8 = 62;
const ARM64: u8 = 183;

#[test]
fn architecture_mismatch_is_found() {
    let template = |architecture: &str| {
        let properties = format!(
            "      CodeUri: function.zip\n      Handler: bootstrap\n      Architectures: \
                [{architecture}]"
        );
        function(&properties, "")
    };
    for (wanted, machine, architecture) in [("arm64", X86_64, "x86_64"), ("x86_64", ARM64, "arm64")]
    {
        let made = |dir: &Path| zip(&dir.join("function.zip"), machine, &[]);
        let said = findings(&template(wanted), "", made);
        let expected = format!(
            "✗ :11: Shop has Architectures: [{wanted}], but the bootstrap of its zip is for \
                {architecture}"
        );
        assert!(said.contains(&expected), "{said}");
        assert!(
            said.contains(&format!("write Architectures: [{architecture}]")),
            "{said}"
        );
        let fitting = findings(&template(architecture), "", made);
        assert!(fitting.contains("no problems found"), "{fitting}");
    }
    // Without a zip, this machine's architecture counts.
    let here = if std::env::consts::ARCH == "aarch64" {
        "arm64"
    } else {
        "x86_64"
    };
    let other = if here == "arm64" { "x86_64" } else { "arm64" };
    let said = findings(&template(other), "", |_| {});
    assert!(
        said.contains(&format!(
            "! :11: Shop has Architectures: [{other}], but `surus lambda package` on this machine \
                makes zips for {here}"
        )),
        "{said}"
    );
    // x86_64 is Lambda's default.
    let silent = function("      CodeUri: function.zip\n      Handler: bootstrap", "");
    let said = findings(&silent, "", |dir| {
        zip(&dir.join("function.zip"), ARM64, &[])
    });
    assert!(
        said.contains("✗ :3: Shop has Architectures: [x86_64]"),
        "{said}"
    );
}

#[test]
fn missing_handler_is_found() {
    let template = |handler: &str| {
        function(
            &format!("      CodeUri: function.zip\n      Handler: {handler}"),
            "",
        )
    };
    let nothing = |_: &Path| {};
    let said = findings(&template("gone.php"), "", nothing);
    assert!(
        said.contains("✗ :10: the handler of Shop is gone.php, which the package does not contain"),
        "{said}"
    );
    for handler in ["events.php", "bootstrap", "word"] {
        let said = findings(&template(handler), "", nothing);
        assert!(said.contains("no problems found"), "{handler}: {said}");
    }
    // The zip counts if there is one, and surus.toml if it names a handler.
    let made = |dir: &Path| {
        zip(
            &dir.join("function.zip"),
            X86_64,
            &[("app/new.php", "<?php")],
        )
    };
    let said = findings(&template("events.php"), "", made);
    assert!(said.contains("the handler of Shop is events.php"), "{said}");
    let said = findings(&template("new.php"), "", made);
    assert!(said.contains("no problems found"), "{said}");
    let said = findings(
        &template("gone.php"),
        "[lambda]\nhandler = 'events.php'\n",
        nothing,
    );
    assert!(said.contains("no problems found"), "{said}");
}

#[test]
fn code_directory_without_bootstrap_is_found() {
    let template = function("      CodeUri: src/\n      Handler: bootstrap", "");
    let make = |dir: &Path| std::fs::create_dir_all(dir.join("src")).unwrap();
    let said = findings(&template, "", make);
    assert!(
        said.contains("✗ :9: the code of Shop is the directory src/, which has no bootstrap"),
        "{said}"
    );
    assert!(said.contains("write CodeUri: function.zip"), "{said}");
    let built = template.replace(
        "    Properties:",
        "    Metadata: {BuildMethod: makefile}\n    Properties:",
    );
    for (template, bootstrap) in [(&built, false), (&template, true)] {
        let said = findings(template, "", |dir| {
            make(dir);
            if bootstrap {
                std::fs::write(dir.join("src/bootstrap"), "").unwrap();
            }
        });
        assert!(said.contains("no problems found"), "{said}");
    }
}

#[test]
fn unused_bref_layer_is_found() {
    let layers = |layer: &str| {
        let properties = format!(
            "      CodeUri: function.zip\n      Handler: bootstrap\n      Layers:\n        - \
                {layer}"
        );
        findings(&function(&properties, ""), "", |_| {})
    };
    for layer in [
        "arn:aws:lambda:eu-west-1:873528684822:layer:arm-php-84-fpm:12",
        "!Sub 'arn:aws:lambda:${AWS::Region}:534081306603:layer:php-83:45'",
        "arn:aws:lambda:eu-west-1:1:layer:bref-extra-imagick:1",
    ] {
        let said = layers(layer);
        assert!(
            said.contains("! :12: Shop uses Bref's layer"),
            "{layer}: {said}"
        );
        assert!(said.contains("remove it from Layers"), "{said}");
    }
    for other in [
        "arn:aws:lambda:eu-west-1:1:layer:datadog-extension:1",
        "!Ref Mine",
    ] {
        assert!(layers(other).contains("no problems found"), "{other}");
    }
}
