//! Apache, nginx and Surus with one document root; the first two with one php-fpm.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::case::Case;
use crate::common::Surus;
use crate::common::php::minor;
use crate::common::ports::free_address;

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
        let fpm = fpm(home.path());
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

/// A process that is ended by Drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

fn spawn(program: &str, args: &[&str], log: &Path, is_up: impl Fn() -> bool) -> Server {
    let mut server = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        // Apache ends the whole group.
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; `make test-applications` installs it"));
    let began = Instant::now();
    while !is_up() {
        let ended = server.try_wait().unwrap();
        assert!(
            ended.is_none() && began.elapsed() < Duration::from_secs(60),
            "{program} did not start:\n{}",
            std::fs::read_to_string(log).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Server(server)
}

fn fpm(home: &Path) -> Server {
    let (minor, dir) = (minor(), home.display());
    let conf = format!(
        "[global]
error_log = {dir}/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = {dir}/fpm.sock
listen.owner = www-data
pm = static
pm.max_children = 4
"
    );
    std::fs::write(home.join("fpm.conf"), conf).unwrap();
    let path = home.join("fpm.conf");
    let args = ["--nodaemonize", "--fpm-config", path.to_str().unwrap()];
    spawn(
        &format!("/usr/sbin/php-fpm{minor}"),
        &args,
        &home.join("fpm.log"),
        || UnixStream::connect(home.join("fpm.sock")).is_ok(),
    )
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
    let server = spawn("/usr/sbin/apache2", &args, &home.join("apache.log"), || {
        TcpStream::connect(&address).is_ok()
    });
    (server, address)
}

/// nginx as its documentation configures it for PHP.
fn nginx(home: &Path, case: &Case) -> (Server, String) {
    let (dir, root, rules, address) = (home.display(), &case.root, &case.nginx, free_address());
    let rest = match rules.contains("location / {") {
        true => "",
        false => "location / { try_files $uri $uri/ =404; }",
    };
    let conf = format!(
        r"user www-data;
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/nginx.log;
events {{ }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    client_body_temp_path {dir}/nginx-body;
    fastcgi_temp_path {dir}/nginx-fastcgi;
    server {{
        listen {address};
        server_name app.test;
        root {root};
        index index.php index.html;
        {rules}
        {rest}
        location ~ /\. {{ deny all; }}
        location ~ [^/]\.php(/|$) {{
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            if (!-f $document_root$fastcgi_script_name) {{ return 404; }}
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param PATH_INFO $fastcgi_path_info;
            fastcgi_param SERVER_NAME $host;
            fastcgi_buffer_size 64k;
            fastcgi_buffers 16 64k;
            fastcgi_pass unix:{dir}/fpm.sock;
        }}
    }}
}}
"
    );
    let file = home.join("nginx.conf");
    std::fs::write(&file, conf).unwrap();
    let args = ["-c", file.to_str().unwrap()];
    let server = spawn("/usr/sbin/nginx", &args, &home.join("nginx.log"), || {
        TcpStream::connect(&address).is_ok()
    });
    (server, address)
}
