//! Names the path of `surus-php`, the C program that runs PHP, which the build script builds.

/// Absolute path of `surus-php8.x`, for tests.
pub const EXECUTABLE: &str = env!("SURUS_PHP_EXECUTABLE");

#[cfg(test)]
#[path = "../direct.rs"]
mod direct;

#[cfg(all(test, target_arch = "x86_64"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    /// The PHP library that `surus-php` was linked with, by another disassembler.
    #[test]
    fn call_sites_of_php_library_match_objdump() {
        let library = Path::new(env!("SURUS_PHP_LIBRARY"));
        let listing = Command::new("objdump")
            .args(["-d", "-w", "--section=.text"])
            .arg(library)
            .output()
            .unwrap();
        let listing = String::from_utf8_lossy(&listing.stdout);
        let sections = Command::new("objdump")
            .args(["-h", "-w"])
            .arg(library)
            .output()
            .unwrap();
        let sections = String::from_utf8(sections.stdout).unwrap();
        let section = |name: &str| {
            let line = sections
                .lines()
                .find(|line| line.split_whitespace().nth(1) == Some(name));
            line.map(|line| {
                let fields: Vec<_> = line.split_whitespace().collect();
                let number = |field: &str| u64::from_str_radix(field, 16).unwrap();
                number(fields[3])..number(fields[3]) + number(fields[2])
            })
        };
        let tables = [section(".got"), section(".got.plt")];

        let mut expected = Vec::new();
        for line in listing.lines() {
            // " 1234:\te8 00 00 00 00       \tcall   5678 <name@plt>"
            let fields: Vec<_> = line.splitn(3, '\t').collect();
            let &[address, bytes, text] = &fields[..] else {
                continue;
            };
            let len = bytes.split_whitespace().count();
            let operation = text.split_whitespace().next().unwrap();
            let is_call =
                len == 5 && ["call", "jmp"].contains(&operation) && text.contains("@plt>");
            let is_load = len == 7 && operation == "mov" && text.contains("(%rip),%r") && {
                let slot = text.split("# ").nth(1).unwrap();
                let slot = slot.split_whitespace().next().unwrap();
                let slot = u64::from_str_radix(slot, 16).unwrap();
                tables.iter().flatten().any(|table| table.contains(&slot))
            };
            if is_call || is_load {
                let address = address.trim().trim_end_matches(':');
                expected.push(u64::from_str_radix(address, 16).unwrap());
            }
        }
        assert!(expected.len() > 10_000, "{}", expected.len());

        let sites = direct::find(library).unwrap();
        assert_eq!(sites.offsets.len(), expected.len());
        assert!(sites.offsets == expected);
        assert!(sites.build_id.len() >= 16);
    }

    #[test]
    fn file_that_is_no_library_has_no_call_sites() {
        assert!(direct::find(Path::new("/nowhere")).is_none());
        assert!(direct::find(Path::new(file!())).is_none());
        let none = direct::Sites::to_c(None);
        assert!(none.contains("surus_direct_sites_len = 0;"), "{none}");
    }

    #[test]
    fn sites_are_distances() {
        let sites = direct::Sites {
            build_id: vec![1, 2],
            offsets: vec![3, 0x83, 0x84],
        };
        let c = direct::Sites::to_c(Some(&sites));
        assert!(c.contains("surus_direct_id[] = {1,2,0}"), "{c}");
        assert!(c.contains("surus_direct_sites[] = {3,128,1,1,0}"), "{c}");
        assert!(c.contains("surus_direct_sites_len = 4;"), "{c}");
    }
}
