//! Apache, nginx and Surus with one document root; the first two with one php-fpm.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::case::Case;
use crate::common::Surus;
use crate::common::ports::free_address;
use crate::common::web_servers::{self, Server};

pub struct Hosts {
    pub apache: String,
    pub nginx: String,
    pub surus: Surus,
    _servers: Vec<Server>,
    // Deleted after the servers have ended.
    _home: tempfile::TempDir,
}

/// What Debian enables, and what it asks for to run php-fpm.
const MODULES: &[&str] = &[
    "mpm_event",
    "authn_core",
    "authz_core",
    "authz_host",
    "authz_user",
    "access_compat",
    "alias",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "proxy",
    "proxy_fcgi",
    "rewrite",
    "setenvif",
];

impl Hosts {
    pub fn start(case: &Case) -> Hosts {
        let home = tempfile::tempdir().unwrap();
        std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let fpm = web_servers::php_fpm(home.path(), "", &[]);
        let apache = apache(home.path(), case);
        let nginx = nginx(home.path(), case);
        let env: Vec<_> = case
            .surus
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        // The oracles are without compression.
        let env = [&[("SURUS_COMPRESS_ENABLED", "false")], &env[..]].concat();
        let surus = Surus::spawn(
            Path::new(&case.root),
            &["--workers", "4", "--engine", "classic"],
            &env,
        )
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        Hosts {
            apache: apache.1,
            nginx: nginx.1,
            surus,
            _servers: vec![apache.0, nginx.0, fpm],
            _home: home,
        }
    }

    pub fn all(&self) -> [(&'static str, &str); 3] {
        [
            ("Apache", &self.apache),
            ("nginx", &self.nginx),
            ("Surus", &self.surus.address),
        ]
    }
}

/// Debian's apache2.conf and php-fpm.conf as far as they matter, and the application's own.
fn apache(home: &Path, case: &Case) -> (Server, String) {
    let (dir, root, address) = (home.display(), &case.root, free_address());
    let mut conf = format!(
        "ServerRoot /etc/apache2
ServerName app.test
Listen {address}
PidFile {dir}/apache.pid
DefaultRuntimeDir {dir}
ErrorLog {dir}/apache.log
Mutex pthread
User www-data
Group www-data
TypesConfig /etc/mime.types
AccessFileName .htaccess
KeepAlive Off
"
    );
    for module in MODULES {
        let file = format!("/usr/lib/apache2/modules/mod_{module}.so");
        writeln!(conf, "LoadModule {module}_module {file}").unwrap();
    }
    write!(
        conf,
        r#"<Directory />
    Options FollowSymLinks
    AllowOverride None
    Require all denied
</Directory>
<Directory /usr/share>
    AllowOverride None
    Require all granted
</Directory>
<FilesMatch "^\.ht">
    Require all denied
</FilesMatch>
<FilesMatch ".+\.ph(?:ar|p|tml)$">
    SetHandler "proxy:unix:{dir}/fpm.sock|fcgi://localhost"
</FilesMatch>
<FilesMatch "^\.ph(?:ar|p|ps|tml)$|.+\.phps$">
    Require all denied
</FilesMatch>
DirectoryIndex index.html index.cgi index.pl index.php index.xhtml index.htm
DocumentRoot {root}
"#
    )
    .unwrap();
    for file in &case.apache {
        writeln!(conf, "Include {file}").unwrap();
    }
    let file = home.join("apache.conf");
    std::fs::write(&file, conf).unwrap();
    let args = ["-D", "FOREGROUND", "-f", file.to_str().unwrap()];
    let is_up = || TcpStream::connect(&address).is_ok();
    let log = home.join("apache.log");
    let server = Server::spawn("/usr/sbin/apache2", "apache2", &args, &log, is_up);
    (server, address)
}

/// nginx with the rules of the case.
fn nginx(home: &Path, case: &Case) -> (Server, String) {
    let (root, rules, address) = (&case.root, &case.nginx, free_address());
    let rest = match rules.contains("location / {") {
        true => "",
        false => "location / { try_files $uri $uri/ =404; }",
    };
    let rules = format!(
        "server_name app.test;
        root {root};
        index index.php index.html;
        {rules}
        {rest}"
    );
    (web_servers::nginx(home, &address, &rules), address)
}
