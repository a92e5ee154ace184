//! The classes for packages alone: what libraries and migrations need, and what no package needs.

use super::{Class, PrivateFileRule};

pub(super) static CLASSES: &[Class] = &[
    Class {
        name: "",
        reason: "libraries are published, and need their certificates and schemas; so do \
            migrations",
        rule: PrivateFileRule::Unpackaged,
        patterns: &[
            "!/vendor/**",
            "!/database/migrations/**/*.sql",
            "!/database/schema/**/*.sql",
            "!/migrations/**/*.sql",
        ],
    },
    // The following classes also apply inside vendor/.
    Class {
        name: "credentials of tools",
        reason: "no library needs them, and a package that was copied may have them",
        rule: PrivateFileRule::UnpackagedSecret,
        patterns: &[
            // Composer's own file; deeper ones may be data of the library.
            "/vendor/*/*/auth.json",
            "/vendor/**/.npmrc",
            "/vendor/**/.yarnrc",
            "/vendor/**/.yarnrc.yml",
            "/vendor/**/.netrc",
            "/vendor/**/.pypirc",
            "/vendor/**/.pgpass",
            "/vendor/**/.my.cnf",
            "/vendor/**/.mylogin.cnf",
            "/vendor/**/.git-credentials",
            "/vendor/**/.vault-token",
            "/vendor/**/.vault_pass",
            "/vendor/**/.dockercfg",
            "/vendor/**/.aws",
            "/vendor/**/.aws-credentials",
            "/vendor/**/.azure",
            "/vendor/**/.boto",
            "/vendor/**/.s3cfg",
            "/vendor/**/.gcloud",
            "/vendor/**/.gnupg",
            "/vendor/**/.kube",
            "/vendor/**/.ssh",
            "/vendor/**/.bash_history",
            "/vendor/**/.mysql_history",
            "/vendor/**/.psql_history",
            "/vendor/**/.zsh_history",
        ],
    },
    Class {
        name: "infrastructure state",
        reason: "it holds passwords and names every resource",
        rule: PrivateFileRule::UnpackagedSecret,
        patterns: &[
            "/vendor/**/*.tfstate*",
            "/vendor/**/*.tfvars*",
            "/vendor/**/*.tfplan",
            "/vendor/**/.terraform*",
            "/vendor/**/samconfig.toml",
            "/vendor/**/samconfig.yaml",
            "/vendor/**/samconfig.yml",
        ],
    },
    Class {
        name: "private keys",
        reason: "a copy of a key lets its holder act as the owner",
        rule: PrivateFileRule::UnpackagedIfPrivateKey,
        patterns: &["/vendor/**/id_*"],
    },
    Class {
        name: "version control",
        reason: "no function needs it",
        rule: PrivateFileRule::Unpackaged,
        patterns: &[".git", ".hg", ".svn", ".github", ".gitlab"],
    },
    Class {
        name: "files of editors and tools",
        reason: "no function needs them",
        rule: PrivateFileRule::Unpackaged,
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
        rule: PrivateFileRule::Unpackaged,
        patterns: &[
            "/var/cache/*",
            "/var/log/*",
            "/var/share/*",
            "/storage/logs/*",
            "/storage/framework/cache/*",
            "/storage/framework/sessions/*",
            "/var/sessions/*",
            "/storage/framework/views/*",
            // It contains paths of this machine.
            "/bootstrap/cache/config.php",
        ],
    },
    Class {
        name: "tests of libraries",
        reason: "no function needs them",
        rule: PrivateFileRule::Unpackaged,
        patterns: &["/vendor/*/*/tests/", "/vendor/*/*/test/", "/vendor/*/*/.*"],
    },
];
