//! The Dockerfile of a function that is deployed as a container image.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};

use crate::private_files;

/// For the PHP of this `surus-php`, on the Debian that has it; `extensions` go by the names of their files.
pub fn of(program: &Path, extensions: &BTreeSet<String>) -> anyhow::Result<String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let minor = name.strip_prefix("surus-php").with_context(|| {
        format!(
            "{} is not named after PHP's version, as in surus-php8.2",
            program.display()
        )
    })?;
    let debian = match minor {
        "8.2" => 12,
        "8.4" => 13,
        other => bail!(
            "no Debian has PHP {other}; build surus-php for PHP 8.2 (Debian 12) or 8.4 (Debian 13), whose images this is made for"
        ),
    };
    Ok(template(minor, debian, extensions))
}

/// The `.dockerignore` beside it.
pub fn ignore() -> String {
    format!(
        "# Made by Surus: private files, which stay out of the image. A line with ! brings one along, such as\n\
         #   !config/rds-certificates.pem\n\
         {}",
        private_files::dockerignore()
    )
}

fn template(minor: &str, debian: u32, extensions: &BTreeSet<String>) -> String {
    let mut packages: BTreeSet<String> =
        extensions.iter().map(|name| package(minor, name)).collect();
    packages.insert(format!("libphp{minor}-embed"));
    packages.insert("ca-certificates".into());
    packages.insert("tzdata".into());
    let packages: Vec<_> = packages.into_iter().collect();
    format!(
        r#"# Made by Surus. To build, in the application's directory with surus and surus-php{minor} beside its files:
#   docker build --provenance=false --tag my-function .
# What .dockerignore names is not copied: surus lambda package --dockerfile writes one that names private files. vendor/ must be there, with surus/surus in it for events that
# are not HTTP.
FROM debian:{debian}-slim

# Versions are those of Debian's security updates at the time of the build.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      {packages} \
 && rm -rf /var/lib/apt/lists/*

COPY --chmod=755 surus surus-php{minor} /usr/local/bin/
# A surus-php that was made for a newer PHP than is here ends the build, and not the function.
RUN surus --version && LD_BIND_NOW=1 surus-php{minor} --version

WORKDIR /var/task
COPY . .

# Lambda runs this as a user without a name; the files of the application must be readable to all.
ENTRYPOINT ["/usr/local/bin/surus", "lambda"]
"#,
        packages = packages.join(" \\\n      "),
    )
}

/// The package of Debian that has the extension.
fn package(minor: &str, extension: &str) -> String {
    let name = match extension {
        "calendar" | "ctype" | "exif" | "ffi" | "fileinfo" | "ftp" | "gettext" | "iconv"
        | "pdo" | "phar" | "posix" | "shmop" | "sockets" | "sysvmsg" | "sysvsem" | "sysvshm"
        | "tokenizer" => "common",
        // Parts of PHP itself.
        "core" | "date" | "filter" | "hash" | "json" | "libxml" | "openssl" | "pcntl" | "pcre"
        | "random" | "reflection" | "session" | "sodium" | "spl" | "standard" | "zlib" => "common",
        "dom" | "simplexml" | "xml" | "xmlreader" | "xmlwriter" | "xsl" => "xml",
        "mysqli" | "mysqlnd" | "pdo_mysql" => "mysql",
        "pdo_sqlite" | "sqlite3" => "sqlite3",
        "pdo_pgsql" | "pgsql" => "pgsql",
        "odbc" | "pdo_odbc" => "odbc",
        other => other,
    };
    format!("php{minor}-{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_installed_once() {
        let extensions = ["dom", "xml", "opcache", "ctype", "pdo_mysql", "redis"]
            .map(str::to_string)
            .into();
        let text = template("8.2", 12, &extensions);
        let installed: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("      "))
            .map(|line| line.trim().trim_end_matches(" \\"))
            .collect();
        let expected = [
            "ca-certificates",
            "libphp8.2-embed",
            "php8.2-common",
            "php8.2-mysql",
            "php8.2-opcache",
            "php8.2-redis",
            "php8.2-xml",
            "tzdata",
        ];
        assert_eq!(installed, expected);
    }
}
