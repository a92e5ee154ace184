//! Profiles in AWS's shared files, `~/.aws/credentials` and `~/.aws/config`.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, bail};
use aws_credential_types::Credentials;

use super::EnvironmentVariables;

/// What a profile says.
#[derive(Default)]
pub struct Profile {
    pub credentials: Option<Credentials>,
    pub region: Option<String>,
}

/// Ways to credentials that need another service or program.
const OTHER_WAYS: [&str; 5] = [
    "role_arn",
    "credential_process",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
];

/// Reads the profile that the variables name, else `default`.
pub fn read(variables: &EnvironmentVariables) -> anyhow::Result<Profile> {
    let named = variables.get("AWS_PROFILE");
    let name = named.unwrap_or("default");
    let mut keys = HashMap::new();
    for (variable, file, prefix) in [
        ("AWS_CONFIG_FILE", "config", "profile "),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", ""),
    ] {
        let path = match (variables.get(variable), variables.get("HOME")) {
            (Some(path), _) => PathBuf::from(path),
            (None, Some(home)) => PathBuf::from(home).join(".aws").join(file),
            (None, None) => continue,
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => section(&text, prefix, name, &mut keys),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // As root's home directory is for the user that `surus work` becomes.
            Err(error)
                if error.kind() == ErrorKind::PermissionDenied
                    && variables.get(variable).is_none() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        }
    }
    if named.is_some() && keys.is_empty() {
        bail!("no file that this user can read has the AWS profile {name} (AWS_PROFILE)");
    }
    let get = |key: &str| keys.get(key).filter(|value| !value.is_empty());
    let pair = (get("aws_access_key_id"), get("aws_secret_access_key"));
    let found = match pair {
        (Some(key), Some(secret)) => {
            Some(super::keys(key, secret, get("aws_session_token").cloned()))
        }
        _ => None,
    };
    if found.is_none()
        && let Some(way) = OTHER_WAYS.into_iter().find(|way| get(way).is_some())
    {
        bail!("the AWS profile {name} has {way}, which surus cannot use; give it keys");
    }
    Ok(Profile {
        credentials: found,
        region: get("region").cloned(),
    })
}

/// Collects the keys of a profile's section.
fn section(text: &str, prefix: &str, name: &str, keys: &mut HashMap<String, String>) {
    let mut is_meant = false;
    for line in text.lines() {
        if let Some(header) = line.trim().strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default().trim();
            let of_profile = header.strip_prefix(prefix).map(str::trim);
            is_meant = of_profile == Some(name) || (name == "default" && header == name);
        } else if is_meant
            && !line.starts_with(['#', ';', ' ', '\t'])
            && let Some((key, value)) = line.split_once('=')
        {
            keys.insert(key.trim().to_lowercase(), value.trim().into());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CONFIG: &str = "[default]\nregion = eu-west-1\n[profile jobs]\nregion=eu-north-1\n\
                          s3 =\n  region = nested\n[profile sso]\nsso_session = company\n";
    const CREDENTIALS: &str = "# comment\n[default]\naws_access_key_id = A\n\
                               aws_secret_access_key = S=\n\n[jobs]\naws_access_key_id=B\n\
                               aws_secret_access_key=T\naws_session_token=U\n";

    fn profile(named: &str) -> anyhow::Result<Profile> {
        let home = tempfile::tempdir().unwrap();
        let aws = home.path().join(".aws");
        std::fs::create_dir(&aws).unwrap();
        std::fs::write(aws.join("config"), CONFIG).unwrap();
        std::fs::write(aws.join("credentials"), CREDENTIALS).unwrap();
        read(
            &[
                ("HOME", home.path().to_str().unwrap()),
                ("AWS_PROFILE", named),
            ]
            .into(),
        )
    }

    #[test]
    fn profile_has_keys_of_one_file_and_the_region_of_the_other() {
        for (named, key, secret, token, region) in [
            ("", "A", "S=", None, "eu-west-1"),
            ("jobs", "B", "T", Some("U"), "eu-north-1"),
        ] {
            let found = profile(named).unwrap();
            let keys = found.credentials.unwrap();
            assert_eq!(
                (
                    keys.access_key_id(),
                    keys.secret_access_key(),
                    keys.session_token()
                ),
                (key, secret, token)
            );
            assert_eq!(found.region.as_deref(), Some(region));
        }
    }

    #[test]
    fn profile_that_cannot_be_used_is_named() {
        for (named, part) in [
            ("gone", "has the AWS profile gone"),
            ("sso", "has sso_session"),
        ] {
            let error = profile(named).err().unwrap().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(
            read(&EnvironmentVariables::default())
                .unwrap()
                .credentials
                .is_none()
        );
    }
}
