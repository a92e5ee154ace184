//! What a program or library needs to be loaded: the part of ELF that a dynamic loader reads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

/// A 64-bit program or library.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Elf {
    pub machine: Option<Machine>,
    /// The loader that the kernel starts for it; none for a library and for a static program.
    pub interpreter: Option<PathBuf>,
    /// Libraries, as the file names them.
    pub needed: Vec<String>,
    /// Directories for its libraries and for those of its libraries.
    pub rpath: Vec<String>,
    /// Directories for its libraries alone.
    pub runpath: Vec<String>,
}

/// What a program runs on, as far as Lambda has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Arm64,
}

impl Machine {
    /// Lambda's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Machine::X86_64 => "x86_64",
            Machine::Arm64 => "arm64",
        }
    }
}

/// What a program runs on whose first bytes these are; none when Lambda does not have it.
pub fn machine(start: &[u8]) -> Option<&'static str> {
    // e_machine of a little-endian file of 64 bits; both of Lambda's machines are such.
    let number = start
        .get(18..20)
        .filter(|_| start.starts_with(b"\x7fELF\x02\x01"))?;
    match elf::Machine(u16::from_le_bytes([number[0], number[1]])) {
        elf::EM_X86_64 => Some(Machine::X86_64.name()),
        elf::EM_AARCH64 => Some(Machine::Arm64.name()),
        _ => None,
    }
}

/// What a package that is made here runs on.
pub fn of_this_machine() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Some(Machine::X86_64.name()),
        "aarch64" => Some(Machine::Arm64.name()),
        _ => None,
    }
}

/// Reads the file; none when it is not ELF of 64 bits.
pub fn read(path: &Path) -> anyhow::Result<Option<Elf>> {
    let data = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !data.starts_with(b"\x7fELF\x02") {
        return Ok(None);
    }
    parse(&data)
        .map(Some)
        .with_context(|| format!("{} is no sound ELF file", path.display()))
}

fn parse(data: &[u8]) -> anyhow::Result<Elf> {
    let file = ElfFile64::<Endianness>::parse(data)?;
    let (header, endian): (&FileHeader64<Endianness>, _) = (file.elf_header(), file.endian());
    let mut read = Elf {
        machine: match header.e_machine(endian) {
            elf::EM_X86_64 => Some(Machine::X86_64),
            elf::EM_AARCH64 => Some(Machine::Arm64),
            _ => None,
        },
        ..Elf::default()
    };
    for segment in header.program_headers(endian, data)? {
        if let Some(interpreter) = segment.interpreter(endian, data)? {
            read.interpreter = Some(std::str::from_utf8(interpreter)?.into());
        }
    }
    let table = file.elf_dynamic_table()?;
    for entry in &table {
        let text = || -> anyhow::Result<String> {
            let text = table.string(entry)?;
            Ok(std::str::from_utf8(text)?.to_string())
        };
        let directories =
            || Ok::<_, anyhow::Error>(text()?.split(':').map(str::to_string).collect());
        match entry.tag {
            elf::DT_NEEDED => read.needed.push(text()?),
            elf::DT_RPATH => read.rpath = directories()?,
            elf::DT_RUNPATH => read.runpath = directories()?,
            _ => {}
        }
    }
    Ok(read)
}

/// The names that a library offers to others, and those that it takes from others.
#[derive(Debug, Default)]
pub struct Symbols {
    pub offered: BTreeSet<String>,
    pub taken: BTreeSet<String>,
}

/// Reads the dynamic symbols of a library.
pub fn symbols(path: &Path) -> anyhow::Result<Symbols> {
    let data = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = ElfFile64::<Endianness>::parse(&*data)
        .map_err(|error| anyhow!("{} is no sound ELF file: {error}", path.display()))?;
    let mut symbols = Symbols::default();
    for symbol in file.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        if symbol.is_undefined() {
            symbols.taken.insert(name.to_string());
        } else if symbol.is_global() {
            symbols.offered.insert(name.to_string());
        }
    }
    Ok(symbols)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_its_loader_reads_it() {
        // This test is one: linked to the C library, and started by its loader.
        let us = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(us.machine.is_some());
        if let Some(interpreter) = &us.interpreter {
            assert!(interpreter.is_file(), "{interpreter:?}");
            assert!(
                us.needed.iter().any(|name| name.starts_with("libc.")),
                "{us:?}"
            );
        }
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "#!/bin/sh\n").unwrap();
        assert_eq!(read(text.path()).unwrap(), None);
        std::fs::write(text.path(), b"\x7fELF\x02\x01\x01").unwrap();
        let error = format!("{:#}", read(text.path()).unwrap_err());
        assert!(error.contains("no sound ELF file"), "{error}");
    }
}
