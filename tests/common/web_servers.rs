//! Starts nginx and php-fpm, with which tests compare Surus.
#![allow(dead_code, clippy::unwrap_used)]

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::php::minor;

/// A process that is ended by Drop.
pub struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Returns when it is up. `package` is Debian's.
    pub fn spawn(
        program: &str,
        package: &str,
        args: &[&str],
        log: &Path,
        is_up: impl Fn() -> bool,
    ) -> Server {
        let mut server = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            // Apache ends the whole group.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; try apt-get install {package}"));
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
}

/// php-fpm on `fpm.sock` in `home`, which its user may enter. `pool` has more lines of its pool,
/// `options` of its command line.
pub fn php_fpm(home: &Path, pool: &str, options: &[&str]) -> Server {
    let dir = home.display();
    let conf = format!(
        "[global]
error_log = {dir}/fpm.log
daemonize = no
[www]
user = www-data
group = www-data
listen = {dir}/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 4
{pool}"
    );
    let file = home.join("fpm.conf");
    std::fs::write(&file, conf).unwrap();
    let args = ["--nodaemonize", "--fpm-config", file.to_str().unwrap()];
    Server::spawn(
        &format!("/usr/sbin/php-fpm{}", minor()),
        &format!("php{}-fpm", minor()),
        &[&args, options].concat(),
        &home.join("fpm.log"),
        || UnixStream::connect(home.join("fpm.sock")).is_ok(),
    )
}

/// nginx as its documentation configures it for PHP, before the php-fpm in `home`. `rules` are
/// lines of its server.
pub fn nginx(home: &Path, address: &str, rules: &str) -> Server {
    let dir = home.display();
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
    proxy_temp_path {dir}/nginx-proxy;
    scgi_temp_path {dir}/nginx-scgi;
    uwsgi_temp_path {dir}/nginx-uwsgi;
    server {{
        listen {address};
        {rules}
        location ~ /\. {{ deny all; }}
        location ~ [^/]\.php(/|$) {{
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            if (!-f $document_root$fastcgi_script_name) {{ return 404; }}
            include /etc/nginx/fastcgi_params;
            # Debian's file leaves the port out since November 2026.
            fastcgi_param HTTP_HOST $http_host;
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
    let log = home.join("nginx.log");
    let is_up = || TcpStream::connect(address).is_ok();
    Server::spawn("/usr/sbin/nginx", "nginx", &args, &log, is_up)
}
