//! The one list of files that are no pages: which of them are never sent to visitors, and which
//! stay out of packages, each class with its reason.
//!
//! Patterns are those of `.gitignore`, matched against lowercase paths relative to the document
//! root or the project. The last pattern that matches decides, so exceptions (`!`) stand after
//! what they except.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, ensure};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Files of one kind, for one reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    pub name: &'static str,
    /// What goes wrong if strangers get them; completes "kept back because …".
    pub reason: &'static str,
    rule: Rule,
    patterns: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Never sent; the application may read it, so packages have it.
    Unsent,
    /// Not packaged. Where it could be asked for, another class says whether it is sent.
    Unpackaged,
    /// Neither sent nor packaged.
    Both,
    /// As `Both`, but what holds certificates or public keys alone is packaged: applications reach
    /// databases with the certificates of their authorities.
    BothUnlessPublic,
    /// As `Both`, if the content is a private key. The names alone say too little: HLS streams and
    /// Keynote documents end in `.key`, and `id_mapping` may be a directory.
    BothIfPrivateKey {
        /// Short files are raw keys, which have no mark.
        or_short: bool,
    },
}

/// What a file is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Sending,
    Packaging,
}

static CLASSES: &[Class] = &[
    Class {
        name: "backups and editor copies",
        reason: "they show earlier states, under names that no server runs or protects",
        rule: Rule::Both,
        patterns: &[
            "*~",
            "*.bak",
            "*.bak.*",
            "*.backup",
            "*.old",
            "*.orig",
            "*.rej",
            "*.save",
            "*.swp",
            "*.swo",
            "\\#*#",
            ".#*",
            "backup.tar",
            "backup.tar.*",
            "backup.tgz",
            "backup.zip",
            "backup[-_][0-9]*.tar",
            "backup[-_][0-9]*.tar.*",
            "backup[-_][0-9]*.tgz",
            "backup[-_][0-9]*.zip",
        ],
    },
    Class {
        name: "private keys",
        reason: "whoever has a key can act as its owner",
        rule: Rule::BothIfPrivateKey { or_short: false },
        patterns: &["id_*"],
    },
    Class {
        name: "private keys",
        reason: "whoever has a key can act as its owner",
        rule: Rule::BothIfPrivateKey { or_short: true },
        patterns: &["*.key"],
    },
    Class {
        name: "private keys",
        reason: "whoever has a key can act as its owner",
        rule: Rule::BothUnlessPublic,
        patterns: &[
            "*.pem",
            "*.p12",
            "*.pfx",
            "*.ppk",
            "*.jks",
            "*.keystore",
            "*.kdbx",
            "id_rsa*",
            "id_dsa*",
            "id_ecdsa*",
            "id_ed25519*",
            "*private*.key",
            "privkey*",
        ],
    },
    Class {
        name: "credentials of tools",
        reason: "they open accounts at registries, clouds and servers",
        rule: Rule::Both,
        patterns: &[
            "auth.json",
            // Translations of a page for signing in.
            "!**/i18n/**/auth.json",
            "!**/lang/**/auth.json",
            "!**/langs/**/auth.json",
            "!**/locale/**/auth.json",
            "!**/locales/**/auth.json",
            "!**/translations/**/auth.json",
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".netrc",
            "_netrc",
            ".pypirc",
            ".pgpass",
            ".my.cnf",
            ".mylogin.cnf",
            ".git-credentials",
            ".vault-token",
            ".terraformrc",
            ".dockercfg",
            ".aws",
            ".azure",
            ".boto",
            ".composer",
            ".docker",
            ".gcloud",
            ".gnupg",
            ".kube",
            ".ssh",
            ".bash_history",
            ".mysql_history",
            ".psql_history",
        ],
    },
    Class {
        name: "service accounts",
        reason: "they open accounts at clouds",
        rule: Rule::Unsent,
        patterns: &[
            "/credentials.json",
            "client_secret*.json",
            "service-account*.json",
            "serviceaccount*.json",
        ],
    },
    Class {
        name: "environment files",
        reason: "they hold passwords",
        rule: Rule::Unsent,
        patterns: &[".env", ".env.*", "*.env"],
    },
    Class {
        name: "local environment files",
        reason: "they hold passwords, and override settings for one machine",
        rule: Rule::Both,
        patterns: &[".env.local", ".env.*.local", ".envrc"],
    },
    Class {
        name: "configuration files",
        reason: "they may hold passwords",
        rule: Rule::Unsent,
        patterns: &[
            "*.ini",
            "*.cnf",
            "*.neon",
            "web.config",
            "parameters.yml",
            "parameters.yaml",
            "secrets.json",
            "secrets.yml",
            "secrets.yaml",
        ],
    },
    Class {
        name: "dependency manifests",
        reason: "they name every library with its version, and private repositories",
        rule: Rule::Unsent,
        patterns: &[
            "composer.json",
            "composer.lock",
            "symfony.lock",
            "package.json",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "pnpm-workspace.yaml",
            "bun.lock",
            "bun.lockb",
            "bower.json",
            "gemfile",
            "gemfile.lock",
        ],
    },
    Class {
        name: "infrastructure state",
        reason: "it holds passwords and names every resource",
        rule: Rule::Both,
        patterns: &[
            "*.tfstate*",
            "*.tfvars*",
            "*.tfplan",
            ".terraform*",
            "samconfig.toml",
            "samconfig.yaml",
            "samconfig.yml",
            ".aws-sam",
            ".serverless",
            "cdk.out",
            "cdk.context.json",
            ".pulumi",
            "pulumi.*.yaml",
        ],
    },
    Class {
        name: "deployment files",
        reason: "they describe the infrastructure, or hold the whole application",
        rule: Rule::Both,
        patterns: &[
            "/function.zip",
            "/template.yaml",
            "/template.yml",
            "/packaged.yaml",
            "/packaged.yml",
            "*.tf",
            "*.tf.json",
            "serverless.yml",
            "serverless.yaml",
            "serverless.json",
            "cdk.json",
            "pulumi.yaml",
            "buildspec.yml",
            "appspec.yml",
        ],
    },
    Class {
        name: "dumps and databases",
        reason: "they hold the users' data",
        rule: Rule::Both,
        patterns: &[
            "*.sql",
            "*.sql.*",
            // Programs and templates that make SQL.
            "!*.sql.js",
            "!*.sql.php",
            "!*.sql.twig",
            "*.dump",
            "*.rdb",
            "*.bson",
            "*.mdb",
            "*.db",
            "*.db3",
            "*.db-journal",
            "*.db-shm",
            "*.db-wal",
            "*.sqlite",
            "*.sqlite3",
            "*.sqlite-*",
            "*.sqlite3-*",
        ],
    },
    Class {
        name: "logs",
        reason: "they hold addresses, sessions and errors with paths",
        rule: Rule::Both,
        patterns: &[
            "*.log",
            "*.log.[0-9]*",
            "*.log.gz",
            "error_log",
            "php_errorlog",
        ],
    },
    Class {
        name: "container, CI and build files",
        reason: "they hold passwords and describe how the application is built",
        rule: Rule::Both,
        patterns: &[
            "dockerfile",
            "dockerfile.*",
            // Editors for browsers have such parts.
            "!dockerfile.css",
            "!dockerfile.js",
            "!dockerfile.svg",
            "*.dockerfile",
            "containerfile",
            ".dockerignore",
            "docker-compose*.yml",
            "docker-compose*.yaml",
            "compose.yml",
            "compose.yaml",
            "compose.*.yml",
            "compose.*.yaml",
            ".github",
            ".gitlab",
            ".gitlab-ci.yml",
            ".circleci",
            ".travis.yml",
            "bitbucket-pipelines.yml",
            "azure-pipelines.yml",
            "appveyor.yml",
            "/jenkinsfile",
            "/vagrantfile",
            "/procfile",
            "/capfile",
            "/makefile",
            "/gnumakefile",
            "phpunit.xml",
            "phpunit.xml.dist",
            "phpunit.dist.xml",
            "phpstan.neon*",
            "phpstan.dist.neon",
            "phpstan-baseline.*",
            "psalm.xml*",
            "phpcs.xml*",
        ],
    },
    Class {
        name: "version control",
        reason: "it holds the whole source, with everything that was ever deleted from it",
        rule: Rule::Both,
        patterns: &[".git", ".hg", ".svn", ".bzr", "cvs", "_darcs"],
    },
    Class {
        name: "test frameworks",
        reason: "phpunit's eval-stdin.php runs whatever it is sent (CVE-2017-9841)",
        rule: Rule::Unsent,
        patterns: &["**/vendor/phpunit/"],
    },
    Class {
        name: "",
        reason: "files that other systems ask for by these names (RFC 8615)",
        rule: Rule::Unsent,
        patterns: &["!/.well-known/**"],
    },
    Class {
        name: "",
        reason: "libraries are published, and need their certificates and schemas; so do migrations",
        rule: Rule::Unpackaged,
        patterns: &[
            "!/vendor/**",
            "!/database/migrations/**/*.sql",
            "!/database/schema/**/*.sql",
            "!/migrations/**/*.sql",
        ],
    },
    // What follows holds in vendor/, too.
    Class {
        name: "version control",
        reason: "no function needs it",
        rule: Rule::Unpackaged,
        patterns: &[".git", ".hg", ".svn", ".github", ".gitlab"],
    },
    Class {
        name: "files of editors and tools",
        reason: "no function needs them",
        rule: Rule::Unpackaged,
        patterns: &[
            ".idea",
            ".vscode",
            ".ds_store",
            "thumbs.db",
            "node_modules",
            "/.surusignore",
        ],
    },
    Class {
        name: "what the application writes",
        reason: "it is this machine's, and a function cannot write there",
        rule: Rule::Unpackaged,
        patterns: &[
            "/var/cache/*",
            "/var/log/*",
            "/storage/logs/*",
            "/storage/framework/cache/*",
            "/storage/framework/sessions/*",
            "/storage/framework/views/*",
            // It has the paths of this machine.
            "/bootstrap/cache/config.php",
        ],
    },
    Class {
        name: "tests of libraries",
        reason: "no function needs them",
        rule: Rule::Unpackaged,
        patterns: &["/vendor/*/*/tests/", "/vendor/*/*/test/", "/vendor/*/*/.*"],
    },
];

/// Libraries in a document root that holds the project itself. Browsers load their style sheets
/// and scripts from there in older applications; nothing else in them is a page.
pub static LIBRARIES: Class = Class {
    name: "libraries",
    reason: "their PHP was never meant to be asked for",
    rule: Rule::Unsent,
    patterns: &["/vendor/", "/node_modules/", "/bower_components/"],
};

/// The endings of what pages load. Files of these kinds are never private by their own name, and
/// most requests for files are for them: only the directories above are compared with the list.
const ASSETS: &[&str] = &[
    "avif", "css", "cur", "eot", "gif", "ico", "jpeg", "jpg", "js", "map", "mjs", "mp3", "mp4",
    "ogg", "otf", "png", "svg", "ttf", "wasm", "webm", "webp", "woff", "woff2",
];

/// The class that keeps a file back, by its name alone. `path` is lowercase and has no leading
/// slash; what is below a directory of a class belongs to the class. A caller that packages has
/// decided about the directories above already.
pub fn class_of(path: &str, is_directory: bool, purpose: Purpose) -> Option<&'static Class> {
    match purpose {
        Purpose::Sending => class_on_the_way(path, is_directory, purpose),
        Purpose::Packaging => class_of_name(path, is_directory, purpose),
    }
}

/// As [`class_of`], but looks at the directories above for both purposes. They come first, because
/// a file in them is kept back whatever its own name and content are.
pub fn class_on_the_way(
    path: &str,
    is_directory: bool,
    purpose: Purpose,
) -> Option<&'static Class> {
    let mut above = path.match_indices('/').map(|(end, _)| &path[..end]);
    let above = above.find_map(|directory| class_of_name(directory, true, purpose));
    let is_asset = purpose == Purpose::Sending && !is_directory && is_asset(path);
    above.or_else(|| match is_asset {
        true => None,
        false => class_of_name(path, is_directory, purpose),
    })
}

fn class_of_name(path: &str, is_directory: bool, purpose: Purpose) -> Option<&'static Class> {
    static SENDING: LazyLock<Gitignore> = LazyLock::new(|| built_in(Purpose::Sending));
    static PACKAGING: LazyLock<Gitignore> = LazyLock::new(|| built_in(Purpose::Packaging));
    let patterns = match purpose {
        Purpose::Sending => &SENDING,
        Purpose::Packaging => &PACKAGING,
    };
    let ignore::Match::Ignore(glob) = patterns.matched(path, is_directory) else {
        return None;
    };
    let found = CLASSES
        .iter()
        .filter(|class| class.concerns(purpose))
        .rfind(|class| class.patterns.contains(&glob.original()));
    found.filter(|class| !is_directory || !matches!(class.rule, Rule::BothIfPrivateKey { .. }))
}

/// The names by which `real`, where a link leads, differs from `root`: directories above both say
/// nothing about a file.
pub fn apart(real: &Path, root: &Path) -> PathBuf {
    let pairs = real.components().zip(root.components());
    let shared = pairs.take_while(|(one, other)| one == other).count();
    real.components().skip(shared).collect()
}

/// Whether `path`, as for [`class_of`], is in a directory of libraries and nothing for a browser.
pub fn is_in_libraries(path: &str, is_directory: bool) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let is_below = LIBRARIES
        .patterns
        .iter()
        .any(|pattern| pattern.trim_matches('/') == first);
    is_below && (is_directory || !rest.is_empty() && !is_asset(rest))
}

fn is_asset(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| ASSETS.contains(&ending))
}

impl Class {
    fn concerns(&self, purpose: Purpose) -> bool {
        match self.rule {
            Rule::Unsent => purpose == Purpose::Sending,
            Rule::Unpackaged => purpose == Purpose::Packaging,
            Rule::Both | Rule::BothUnlessPublic | Rule::BothIfPrivateKey { .. } => true,
        }
    }

    /// Whether the content of a file shows that its name has misled.
    /// `content` is read only where that matters.
    pub fn excuses(&self, content: impl Read, purpose: Purpose) -> bool {
        match (self.rule, purpose) {
            (Rule::BothIfPrivateKey { or_short }, _) => !is_private_key(content, or_short),
            (Rule::BothUnlessPublic, Purpose::Packaging) => {
                let text = beginning(content);
                is_public(&text) && !has_private_key(&text)
            }
            _ => false,
        }
    }
}

const PRIVATE_KEY: &str = "PRIVATE KEY";

fn is_public(text: &str) -> bool {
    text.contains("CERTIFICATE-----") || text.contains("PUBLIC KEY-----")
}

/// Whether a text holds a key of OpenSSL, OpenSSH, GnuPG, age, PuTTY or WireGuard.
fn has_private_key(text: &str) -> bool {
    let marks = [PRIVATE_KEY, "AGE-SECRET-KEY-", "PuTTY-User-Key-File-"];
    let is_setting = |line: &str| {
        let value = line.trim_start().strip_prefix("PrivateKey");
        value.is_some_and(|value| value.trim_start().starts_with('='))
    };
    marks.iter().any(|mark| text.contains(mark)) || text.lines().any(is_setting)
}

/// A file that is opened when it is read, if it is a regular one: others could make their reader
/// wait.
pub struct Unopened<'a>(&'a Path, Option<File>);

impl Clone for Unopened<'_> {
    fn clone(&self) -> Self {
        Unopened::new(self.0)
    }
}

impl<'a> Unopened<'a> {
    pub fn new(path: &'a Path) -> Unopened<'a> {
        Unopened(path, None)
    }
}

impl Read for Unopened<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let file = match &mut self.1 {
            Some(file) => file,
            None if self.0.is_file() => self.1.insert(File::open(self.0)?),
            None => return Err(io::ErrorKind::InvalidInput.into()),
        };
        file.read(buffer)
    }
}

/// A file that is open for somebody else, whose position in it stays.
#[derive(Clone)]
pub struct Shared<'a>(&'a File, u64);

impl<'a> Shared<'a> {
    pub fn new(file: &'a File) -> Shared<'a> {
        Shared(file, 0)
    }
}

impl Read for Shared<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read_at(buffer, self.1)?;
        self.1 += length as u64;
        Ok(length)
    }
}

/// As much of a file as keys and collections of certificates have.
fn beginning(content: impl Read) -> String {
    let mut bytes = Vec::new();
    // A file that cannot be read is treated as a key, so that an error gives nothing away.
    match content.take(1 << 19).read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => PRIVATE_KEY.to_owned(),
    }
}

/// So much is read of a file that its name does not tell from a key: of a binary one, no more.
const HEAD: u64 = 1024;

fn is_private_key(mut content: impl Read, or_short: bool) -> bool {
    let mut head = Vec::new();
    // As in `beginning`, an error gives nothing away.
    match content.by_ref().take(HEAD).read_to_end(&mut head) {
        Ok(_) if is_key_in_der(&head) => true,
        Ok(_) if or_short && is_short_key(&head) => true,
        Ok(_) if head.contains(&0) => false,
        Ok(_) => has_private_key(&beginning(head.as_slice().chain(content))),
        Err(_) => true,
    }
}

/// Whether a `.key` file is as short as raw keys are, in binary, base64 or hexadecimal. Keys of HLS
/// have 16 bytes, and players need them.
fn is_short_key(bytes: &[u8]) -> bool {
    !matches!(bytes.len(), 0 | 16 | 257..) && !is_public(&String::from_utf8_lossy(bytes))
}

/// Whether a file begins as PKCS #1, PKCS #8 or SEC 1 do in binary: a sequence of a version and
/// more, or of the algorithm that encrypts it.
fn is_key_in_der(bytes: &[u8]) -> bool {
    let content = match bytes {
        // Shorter ones are no keys, but may be the bytes of one, as of HLS.
        [0x30, 0x20..=0x7f, content @ ..]
        | [0x30, 0x81, _, content @ ..]
        | [0x30, 0x82, _, _, content @ ..] => content,
        _ => return false,
    };
    match content {
        [0x02, 0x01, version, ..] => *version <= 2,
        [0x30, 0x00..=0x7f, 0x06, ..] | [0x30, 0x81, _, 0x06, ..] => true,
        _ => false,
    }
}

fn built_in(purpose: Purpose) -> Gitignore {
    let build = || {
        let mut builder = GitignoreBuilder::new("");
        for class in CLASSES.iter().filter(|class| class.concerns(purpose)) {
            for pattern in class.patterns {
                builder.add_line(None, pattern)?;
            }
        }
        builder.build()
    };
    // The list is constant, and a test builds it.
    build().expect("the built-in patterns are valid")
}

/// What stays out of packages for its secrets, in the words of `.dockerignore`: patterns begin at
/// the project, and letters are compared with their case. Contents are not looked at there.
pub fn dockerignore() -> String {
    let concerns = |class: &&Class| match class.rule {
        Rule::Both | Rule::BothUnlessPublic => true,
        Rule::Unpackaged => class.name.is_empty(),
        Rule::Unsent | Rule::BothIfPrivateKey { .. } => false,
    };
    let patterns = CLASSES.iter().filter(concerns);
    let patterns = patterns.flat_map(|class| class.patterns);
    let lines = patterns.map(|pattern| {
        let (not, pattern) = match pattern.strip_prefix('!') {
            Some(pattern) => ("!", pattern),
            None => ("", *pattern),
        };
        match pattern.strip_prefix('/') {
            Some(pattern) => format!("{not}{pattern}\n"),
            None => {
                let pattern = pattern.trim_start_matches("**/").trim_start_matches('\\');
                format!("{not}**/{pattern}\n")
            }
        }
    });
    lines.collect()
}

/// Patterns that an application gives, in the order of its list.
pub fn own(patterns: &[String]) -> anyhow::Result<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    builder.case_insensitive(true)?;
    for pattern in patterns {
        let says = "is no pattern as .gitignore has them, such as \"/internal/\", \"*.csv\" or \"!/files/*.sql\"";
        ensure!(
            !pattern.trim().is_empty() && !pattern.starts_with('#'),
            "{pattern:?} {says}"
        );
        let added = builder.add_line(None, pattern);
        added.with_context(|| format!("{pattern:?} {says}"))?;
    }
    Ok(builder.build()?)
}

/// The form in which [`class_of`] takes the path of a file.
pub fn lowercase(path: &Path) -> String {
    path.to_string_lossy().to_lowercase()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As whoever sends, or walks over directories to package them, sees it.
    fn name_of(path: &str, purpose: Purpose) -> &'static str {
        let mut above = Path::new(path).ancestors().skip(1);
        let class = class_of(path, false, purpose).or_else(|| {
            above.find_map(|directory| class_of(directory.to_str().unwrap(), true, purpose))
        });
        class.map_or("", |class| class.name)
    }

    #[test]
    fn private_names_belong_to_a_class_wherever_they_lie() {
        for (path, class) in [
            ("auth.json", "credentials of tools"),
            (".npmrc", "credentials of tools"),
            (".aws/credentials", "credentials of tools"),
            (".ssh/config", "credentials of tools"),
            ("deep/er/id_rsa", "private keys"),
            ("id_ed25519.pub", "private keys"),
            ("config/jwt/private.pem", "private keys"),
            ("terraform.tfstate", "infrastructure state"),
            ("infra/terraform.tfstate.backup", "infrastructure state"),
            ("terraform.tfstate.d/prod/x", "infrastructure state"),
            ("prod.tfvars", "infrastructure state"),
            ("samconfig.toml", "infrastructure state"),
            ("template.yaml", "deployment files"),
            ("function.zip", "deployment files"),
            ("dump.sql", "dumps and databases"),
            ("a/dump.sql.gz", "dumps and databases"),
            ("dump.sql.tar.gz", "dumps and databases"),
            ("dump.sql.tgz", "dumps and databases"),
            ("dump.sql.lz4", "dumps and databases"),
            ("dump.sql.lzma", "dumps and databases"),
            ("dump.sql.z", "dumps and databases"),
            ("dump.sql.rar", "dumps and databases"),
            ("cdk.out/asset.1/index.js", "infrastructure state"),
            ("cdk.out/id_1/index.html", "infrastructure state"),
            ("cvs/a.png", "version control"),
            ("data.sqlite-wal", "dumps and databases"),
            ("a/page.html~", "backups and editor copies"),
            ("a/page.html.bak", "backups and editor copies"),
            ("#page.html#", "backups and editor copies"),
            ("docker-compose.prod.yml", "container, CI and build files"),
            ("makefile", "container, CI and build files"),
            ("wp-content/debug.log", "logs"),
            (".git/config", "version control"),
            (".env.local", "local environment files"),
        ] {
            for purpose in [Purpose::Sending, Purpose::Packaging] {
                assert_eq!(name_of(path, purpose), class, "{path} {purpose:?}");
            }
        }
    }

    #[test]
    fn what_applications_need_or_browsers_load_is_in_no_class() {
        for path in [
            ".well-known/acme-challenge/x",
            ".well-known/pki/ca.pem",
            "locales/en/auth.json",
            "wp-includes/js/jquery/jquery.min.js",
            "lang/id_id.json",
            "id_card.png.html",
            "downloads/manual.zip",
            "robots.txt",
            "readme.html",
            "manifest.json",
            "packages.json",
            "src/makefile",
            "js/vendor/jquery/jquery.min.js",
            "files/template.yaml",
            "catmull.log.min.js",
            "ace/snippets/dockerfile.js",
            "id_maps/a.png",
            "queries/users.sql.php",
            "queries/users.sql.js",
        ] {
            // `id_*` is decided by content.
            let class = class_of(path, false, Purpose::Sending)
                .filter(|class| !class.excuses(&b"{}"[..], Purpose::Sending));
            assert_eq!(class, None, "{path}");
        }
        for path in [
            "composer.json",
            "composer.lock",
            ".env",
            "vendor/composer/ca-bundle/res/cacert.pem",
            "vendor/a/b/schema.sql",
            "database/schema/mysql-schema.sql",
            "config/app.ini",
            "queries/users.sql.php",
            "queries/users.sql.js",
            "queries/users.sql.twig",
        ] {
            assert_eq!(name_of(path, Purpose::Packaging), "", "{path}");
        }
        assert!(class_of("lib/id_map", true, Purpose::Packaging).is_none());
    }

    #[test]
    fn keys_are_told_from_certificates_by_their_content() {
        const KEY: &[u8] = b"-----BEGIN RSA PRIVATE KEY-----\nMII";
        const CERTIFICATE: &[u8] = b"# RDS\n-----BEGIN CERTIFICATE-----\nMII";
        const WIREGUARD: &[u8] = b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
        let long = |line: &str| format!("{}\n{line}\n", "#".repeat(500)).into_bytes();
        let age = long("AGE-SECRET-KEY-1QQQ");
        let putty = long("PuTTY-User-Key-File-3: ssh-ed25519");
        let peer = long("PrivateKey = yAnz5TF+");
        let keynote = [b"PK\x03\x04\x14\0\0\0 PRIVATE KEY", [b'k'; 300].as_slice()].concat();
        let der = [b"0\x82\x03\x10\x30\x82\x02\xf8\xa0", [b'c'; 300].as_slice()].concat();
        let both = [CERTIFICATE, KEY].concat();
        let late = [&[b'#'; 2000], KEY].concat();
        for (path, content, sent, packaged) in [
            ("server.key", KEY, false, false),
            ("id_deploy", KEY, false, false),
            ("stream.key", &b"\x01\x02345678901234\0\0"[..], true, true),
            ("empty.key", b"", true, true),
            ("age.key", &age, false, false),
            ("id_age", &age, false, false),
            ("putty.key", &putty, false, false),
            ("wg.key", WIREGUARD, false, false),
            ("peer.key", &peer, false, false),
            (
                "master.key",
                b"00112233445566778899aabbccddeeff",
                false,
                false,
            ),
            ("sodium.key", &[7; 32], false, false),
            (
                "public.key",
                b"-----BEGIN PUBLIC KEY-----\nMCo=",
                true,
                true,
            ),
            ("id_list", b"{\"a\": 1}", true, true),
            ("stream.key", b"0\x0e\x02\x01\x0012345678901", true, true),
            ("talk.key", &keynote, true, true),
            ("rsa.key", b"0\x82\x04\xa4\x02\x01\0\x02\x82", false, false),
            ("ec.key", b"0\x77\x02\x01\x01\x04\x20", false, false),
            ("pkcs8.key", b"0\x2e\x02\x01\x00\x30", false, false),
            ("sealed.key", b"0\x81\x9b0\x57\x06\x09\x2a", false, false),
            ("certificate.key", &der, true, true),
            ("late.key", &late, false, false),
            ("rds.pem", CERTIFICATE, false, true),
            ("both.pem", &both, false, false),
            ("unknown.pem", b"secret", false, false),
            ("id_rsa", CERTIFICATE, false, true),
            ("dump.sql", CERTIFICATE, false, false),
        ] {
            for (purpose, expected) in [(Purpose::Sending, sent), (Purpose::Packaging, packaged)] {
                let class = class_of(path, false, purpose).unwrap();
                assert_eq!(
                    class.excuses(content, purpose),
                    expected,
                    "{path} {purpose:?}"
                );
            }
        }
    }

    #[test]
    fn dockerignore_names_secrets_from_the_project_on() {
        let text = dockerignore();
        let lines: Vec<_> = text.lines().collect();
        for line in [
            "**/auth.json",
            "!**/locales/**/auth.json",
            "**/*.pem",
            "**/.ssh",
            "**/*.tfstate*",
            "**/#*#",
            "function.zip",
            "!vendor/**",
        ] {
            assert!(lines.contains(&line), "{line} is not in:\n{text}");
        }
        for line in ["**/id_*", "**/.env", "**/composer.json", "**/node_modules"] {
            assert!(!lines.contains(&line), "{line}");
        }
    }

    #[test]
    fn libraries_show_browsers_their_assets_alone() {
        for path in [
            "vendor/a/b/x.css",
            "node_modules/x/dist/x.min.js",
            "src/vendor/x.php",
        ] {
            assert!(!is_in_libraries(path, false), "{path}");
        }
        for path in [
            "vendor/autoload.php",
            "vendor/a/README.md",
            "vendor/a/x.html",
            "vendor/a/x",
        ] {
            assert!(is_in_libraries(path, false), "{path}");
        }
        assert!(is_in_libraries("vendor", true));
        assert!(!is_in_libraries("vendor", false));
    }
}
