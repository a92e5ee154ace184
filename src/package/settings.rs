//! The surus.toml of a package: the application's, with the places of the package.

use std::path::Path;

use anyhow::Context;

use super::php::Placed;
use super::{OURS, ROOT};

/// `project` is the application's table, empty when it has none. `script` is that of the library, where the package brings it along.
pub fn compose(
    mut project: toml::Table,
    php: &Placed,
    script: Option<&str>,
) -> anyhow::Result<String> {
    let absolute = |name: &str| {
        let path = Path::new(ROOT).join(name);
        toml::Value::from(path.display().to_string())
    };
    let engine = section(&mut project, "engine")?;
    // Lambda chooses the user.
    engine.remove("user");
    engine.remove("group");
    engine.insert("php".into(), absolute(&php.program));
    engine.insert("loader".into(), absolute(&php.loader));
    engine.insert("ini_file".into(), absolute(&php.ini_file));
    if let Some(script) = script {
        section(&mut project, "lambda")?.insert("script".into(), absolute(script));
    }
    let env = section(&mut project, "env")?;
    for (name, path) in [
        ("GCONV_PATH", "gconv"),
        ("OPENSSL_CONF", "openssl.cnf"),
        ("OPENSSL_MODULES", "ossl-modules"),
        ("SSL_CERT_FILE", "ca.pem"),
    ] {
        let value = absolute(&format!("{OURS}/{path}"));
        env.entry(name).or_insert(value);
    }
    let text = toml::to_string(&project)?;
    Ok(format!(
        "# Made by `surus lambda package` from the application's surus.toml.\n\n{text}"
    ))
}

fn section<'a>(table: &'a mut toml::Table, name: &str) -> anyhow::Result<&'a mut toml::Table> {
    let value = table
        .entry(name)
        .or_insert_with(|| toml::Table::new().into());
    value
        .as_table_mut()
        .with_context(|| format!("[{name}] of surus.toml is not a section"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::package::elf::Machine;

    #[test]
    fn what_the_application_says_stays_but_for_its_php() {
        let project = toml::from_str(
            "[engine]\nname = 'rewind'\nuser = 'app'\nphp = '/opt/surus-php8.4'\n[env]\nSSL_CERT_FILE = '/mine'\n",
        )
        .unwrap();
        let php = Placed {
            machine: Machine::X86_64,
            program: ".surus/surus-php8.2".into(),
            loader: ".surus/lib/ld-linux-x86-64.so.2".into(),
            ini_file: ".surus/php.ini".into(),
        };
        let text = compose(project, &php, Some(".surus/php/lambda/events.php")).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        let engine = &table["engine"];
        assert_eq!(engine["name"].as_str(), Some("rewind"));
        assert_eq!(
            engine["php"].as_str(),
            Some("/var/task/.surus/surus-php8.2")
        );
        assert_eq!(
            engine["loader"].as_str(),
            Some("/var/task/.surus/lib/ld-linux-x86-64.so.2")
        );
        assert!(engine.get("user").is_none());
        assert_eq!(
            table["lambda"]["script"].as_str(),
            Some("/var/task/.surus/php/lambda/events.php")
        );
        assert_eq!(table["env"]["SSL_CERT_FILE"].as_str(), Some("/mine"));
        assert_eq!(
            table["env"]["GCONV_PATH"].as_str(),
            Some("/var/task/.surus/gconv")
        );
    }
}
