//! Tests what a compromised front end can make the opener open.

use std::fs::File;

use super::{Attacker, SECRET};

impl Attacker<'_> {
    /// The opener's reply: a code, and a file's content if it sends one.
    fn ask_opener(&mut self, what: u8, tree: u16, path: &[u8]) -> Option<(u8, String)> {
        let number = self.next;
        self.next += 1;
        let head = [&number.to_le_bytes()[..], &[what], &tree.to_le_bytes()[..]].concat();
        let _ = self.opener.send_with(&[&head, path].concat(), &[]);
        let mut buffer = [0; 8192];
        loop {
            let mut received = self.opener.receive(&mut buffer).ok()?;
            let answer = &buffer[..received.len];
            // The request's number, the opener's process, a code.
            if answer.len() < 9 {
                return None;
            }
            if answer[..4] == number.to_le_bytes() {
                let text = match received.fds.pop() {
                    Some(file) => std::io::read_to_string(File::from(file)).unwrap_or_default(),
                    None => String::from_utf8_lossy(&answer[9..]).into_owned(),
                };
                return Some((answer[8], text));
            }
        }
    }

    pub fn attack_opener(&mut self) {
        let project = self.project.to_owned();
        let absolute = project.join("php.txt");
        let mut refused: Vec<Vec<u8>> = [
            "../outside/php.txt",
            "../outside/root.txt",
            "./php.txt",
            "a/../php.txt",
            "a/../../outside/php.txt",
            "/etc/passwd",
            "/etc/shadow",
            "",
            ".",
            "..",
            "root.txt",
            "stranger.txt",
            "source.php",
            ".env",
            "surus.toml",
            "shadow.txt",
            "out.txt",
            "theirs.txt",
            "up/outside/root.txt",
            "up/outside/stranger.txt",
            "up/project/.env",
            "php.txt\0",
        ]
        .map(|path| path.as_bytes().to_vec())
        .into();
        refused.push(absolute.as_os_str().as_encoded_bytes().to_vec());
        refused.push(vec![b'a'; 5000]);
        refused.push(vec![0xff; 100]);
        refused.push([b"../".repeat(100), b"etc/shadow".to_vec()].concat());
        for path in refused {
            // The second directory is the project, for X-Sendfile.
            for (what, tree) in [(1, 0), (1, 1), (4, 0), (0, 0), (200, 0), (255, 0)] {
                let answer = self.ask_opener(what, tree, &path);
                let is_refused = answer
                    .as_ref()
                    .is_none_or(|(_, text)| !text.contains(SECRET) && !text.contains("root:"));
                let path = String::from_utf8_lossy(&path[..path.len().min(60)]);
                self.refused(&format!("open {path:?} ({what}, {tree})"), is_refused);
            }
        }
        // Whether a link is at a path is told only where the opener may look.
        for path in [
            "phps/outside/link",
            "phps/project/shadow.txt",
            ".link",
            "up/project/.link",
            "../outside/link",
            "up/../outside/link",
            "a/../shadow.txt",
            "./shadow.txt",
            "..",
            "/etc/mtab",
        ] {
            let answer = self.ask_opener(4, 0, path.as_bytes());
            self.refused(
                &format!("find the link {path}"),
                answer.is_none_or(|(code, _)| code != 12),
            );
        }
        assert_eq!(
            self.ask_opener(4, 0, b"shadow.txt").map(|(code, _)| code),
            Some(12),
            "the links below the directory are found"
        );
        for tree in [7, u16::MAX] {
            let answer = self.ask_opener(1, tree, b"php.txt");
            self.refused(
                "open below no directory",
                answer.is_none_or(|(code, _)| code == 5),
            );
        }
        for path in [
            "/etc/shadow",
            "/root",
            "/etc",
            "/proc/self/root",
            "relative",
        ] {
            let answer = self.ask_opener(3, 0, path.as_bytes());
            self.refused(
                &format!("resolve {path}"),
                answer.is_none_or(|(code, _)| code == 5),
            );
        }
        // The opener still works.
        let answer = self.ask_opener(1, 0, b"php.txt");
        assert_eq!(
            answer,
            Some((2, SECRET.to_string())),
            "the opener has exited"
        );
    }
}
