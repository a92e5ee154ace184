//! Directories that Apache would let nobody into: `.htaccess` files that deny everything, as applications put them beside their data.
//!
//! Of Apache's language only this is understood: `Require all denied`, or `Deny from all`, with nothing in the file that lets anybody in.
//! The deepest file that says anything about access decides, as with Apache.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use surus_sys::open::Access;

use super::recent::Recent;
use super::root::{Opened, Root};

/// No such file is longer.
const MOST_BYTES: u64 = 1 << 16;

/// What a directory says of itself, without those above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Nothing,
    Deny,
    /// It lets somebody in, or something that we do not understand.
    Else,
}

/// What directories have said.
#[derive(Debug)]
pub(super) struct Htaccess(Recent<Says>);

impl Htaccess {
    pub(super) fn new() -> Htaccess {
        Htaccess(Recent::new())
    }

    /// Does a directory below the document root deny what is at this path, which begins with a slash?
    pub(super) fn denies(&self, root: &Root, path: &str, now: Instant) -> bool {
        let mut directory = path;
        while let Some((above, _)) = directory.rsplit_once('/') {
            if above.is_empty() {
                break;
            }
            match self.says(root, above, now) {
                Says::Nothing => directory = above,
                says => return says == Says::Deny,
            }
        }
        false
    }

    fn says(&self, root: &Root, directory: &str, now: Instant) -> Says {
        if let Some(says) = self.0.get(directory.as_bytes(), now) {
            return says;
        }
        let says = read(root, &format!("{}/.htaccess", &directory[1..]));
        self.0.put(directory.as_bytes(), says, now);
        says
    }
}

fn read(root: &Root, file: &str) -> Says {
    let mut text = Vec::new();
    match root.get(Path::new(file), Access::Read) {
        Opened::Regular { file, .. } => match file.take(MOST_BYTES).read_to_end(&mut text) {
            Ok(_) => parse(&String::from_utf8_lossy(&text)),
            Err(_) => Says::Deny,
        },
        Opened::Missing | Opened::Directory => Says::Nothing,
        // As Apache: what cannot be read may deny.
        Opened::Denied(_) | Opened::Failed(_) => Says::Deny,
    }
}

fn parse(text: &str) -> Says {
    let mut says = Says::Nothing;
    // Containers that are about some files or methods only.
    let mut parts: usize = 0;
    for line in text.lines() {
        let line = line.trim().to_ascii_lowercase();
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        match name {
            "<ifmodule" | "</ifmodule>" | "<ifversion" | "</ifversion>" => {}
            _ if name.starts_with("</") => parts = parts.saturating_sub(1),
            _ if name.starts_with('<') => parts += 1,
            "require" | "allow" | "deny" | "satisfy" => {
                let is_denial = matches!(
                    (name, &*rest),
                    ("require", ["all", "denied"]) | ("deny", ["from", "all"])
                );
                match is_denial {
                    true if parts == 0 => says = Says::Deny,
                    true => {}
                    false => return Says::Else,
                }
            }
            _ => {}
        }
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_denies_everybody_denies() {
        for text in [
            "Require all denied",
            "deny from all",
            "# closed\n  Order allow,deny\r\n\tDeny   from  ALL\r\n",
            // DokuWiki's
            "## no access\n<IfModule mod_authz_core.c>\n    Require all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\n    Order allow,deny\n    Deny from all\n</IfModule>\n",
            "<Files x>\nDeny from all\n</Files>\nDeny from all",
        ] {
            assert_eq!(parse(text), Says::Deny, "{text}");
        }
        for text in [
            "",
            "# Deny from all",
            "RewriteEngine On\nRewriteRule . index.php",
            "<Files wp-config.php>\nRequire all denied\n</Files>",
            "<FilesMatch \"\\.log$\">\n<IfModule x>\nDeny from all\n</IfModule>\n</FilesMatch>",
            "Options -Indexes\nErrorDocument 403 \"deny from all\"",
        ] {
            assert_eq!(parse(text), Says::Nothing, "{text}");
        }
        for text in [
            "Require all granted",
            "Order deny,allow\nDeny from all\nAllow from 127.0.0.1",
            // Akismet's
            "Require all denied\n<FilesMatch \"^form\\.js$\">\nRequire all granted\n</FilesMatch>",
            "Require valid-user",
            "Deny from 192.0.2.1",
        ] {
            assert_eq!(parse(text), Says::Else, "{text}");
        }
    }
}
