//! Serves a site by nginx and php-fpm. Surus has to answer as they do.

use std::os::unix::fs::PermissionsExt;

use crate::common::web_servers::{Server, nginx, php_fpm};
use crate::site::Site;

pub struct Oracle {
    /// `http://127.0.0.1:PORT`, without a trailing slash.
    pub url: String,
    _nginx: Server,
    _php_fpm: Server,
    // Deleted after the servers have ended.
    _home: tempfile::TempDir,
}

impl Oracle {
    /// `root` is the document root below the site's directory, `env` the variables of Surus that
    /// PHP gets.
    pub fn start(site: &Site, root: &str, address: &str, env: &[(&str, &str)]) -> Oracle {
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let stored = site.stored();
        let options = stored.each_ref().map(|text| ["-d", text.as_str()]);
        let variables = env.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("SURUS_ENV_")?;
            Some(format!("env[{name}] = \"{value}\"\n"))
        });
        let pool: String = variables.collect();
        let root = site.www().join(root);
        let rules = format!(
            "root {};
            index index.php;
            client_max_body_size 8m;
            location / {{ try_files $uri $uri/ /index.php$is_args$args; }}",
            root.display()
        );
        Oracle {
            url: format!("http://{address}"),
            _php_fpm: php_fpm(home.path(), &pool, options.as_flattened()),
            _nginx: nginx(home.path(), address, &rules),
            _home: home,
        }
    }
}
