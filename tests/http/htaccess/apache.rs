//! Starts Debian's Apache with mod_php and `AllowOverride All`.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::site::Site;
use crate::common::ports::free_address;

pub struct Apache {
    child: Child,
    /// The address at which PHP is configured by `AddType`.
    pub by_type: String,
    /// The address at which PHP is configured by `AddHandler`.
    pub by_handler: String,
    _home: tempfile::TempDir,
}

const MODULES: &[&str] = &[
    "mpm_prefork",
    "authn_core",
    "authn_file",
    "auth_basic",
    "authz_core",
    "authz_host",
    "authz_user",
    "access_compat",
    "alias",
    "autoindex",
    "cgi",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "rewrite",
    "setenvif",
    "ssl",
];

impl Apache {
    pub fn start(sites: &[Site]) -> Apache {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().display();
        let modules = "/usr/lib/apache2/modules";
        let mut conf = format!(
            "ServerRoot {dir}\n\
             ServerName localhost\n\
             PidFile {dir}/apache.pid\n\
             DefaultRuntimeDir {dir}\n\
             ErrorLog {dir}/error.log\n\
             Mutex pthread\n\
             LogLevel warn\n\
             TypesConfig /etc/mime.types\n"
        );
        for module in MODULES {
            writeln!(conf, "LoadModule {module}_module {modules}/mod_{module}.so").unwrap();
        }
        let minor = crate::common::php::minor();
        writeln!(conf, "LoadModule php_module {modules}/libphp{minor}.so").unwrap();
        if Command::new("id").arg("-u").output().unwrap().stdout == b"0\n" {
            conf.push_str("User www-data\nGroup www-data\n");
        }
        conf.push_str(
            "StartServers 2\n\
             MaxRequestWorkers 8\n\
             KeepAlive Off\n\
             DirectoryIndex index.php index.html\n",
        );
        let [by_type, by_handler] = [(); 2].map(|()| free_address());
        for (address, way) in [(&by_type, "AddType"), (&by_handler, "AddHandler")] {
            writeln!(conf, "Listen {address}").unwrap();
            for site in sites {
                let root = site.root.path().canonicalize().unwrap();
                let root = root.display();
                let host = site.host();
                writeln!(
                    conf,
                    "<VirtualHost {address}>\n\
                     ServerName {host}\n\
                     ServerAlias www.{host}\n\
                     DocumentRoot {root}\n\
                     {way} application/x-httpd-php .php\n\
                     <Directory {root}>\n\
                     AllowOverride All\n\
                     Options FollowSymLinks\n\
                     Require all granted\n\
                     </Directory>\n\
                     </VirtualHost>"
                )
                .unwrap();
            }
        }
        let file = home.path().join("apache.conf");
        std::fs::write(&file, conf).unwrap();
        std::fs::set_permissions(
            home.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let child = Command::new("/usr/sbin/apache2")
            .args(["-D", "FOREGROUND", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            // Its exit ends the whole group.
            .process_group(0)
            .spawn()
            .expect("apache2 is installed by `make setup`");
        let apache = Apache {
            child,
            by_type,
            by_handler,
            _home: home,
        };
        for _ in 0..3000 {
            if TcpStream::connect(&apache.by_handler).is_ok() {
                return apache;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let log = std::fs::read_to_string(apache._home.path().join("error.log"));
        panic!("Apache did not start: {}", log.unwrap_or_default());
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.child.wait();
    }
}
