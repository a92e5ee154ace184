//! Reads the ELF data that a dynamic loader needs from programs and libraries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use object::elf::{self, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

/// A 64-bit program or library.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Elf {
    pub machine: Option<ElfMachine>,
    /// The dynamic loader; none for a library or a static program.
    pub interpreter: Option<PathBuf>,
    /// Names of the required libraries, as in the file.
    pub needed: Vec<String>,
    /// Directories for its libraries and for their libraries in turn.
    pub rpath: Vec<String>,
    /// Directories for its direct libraries only.
    pub runpath: Vec<String>,
}

/// A processor architecture that Lambda supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfMachine {
    X86_64,
    Arm64,
}

impl ElfMachine {
    /// Lambda's name for the architecture.
    pub fn name(self) -> &'static str {
        match self {
            ElfMachine::X86_64 => "x86_64",
            ElfMachine::Arm64 => "arm64",
        }
    }
}

/// The architecture of a program with these first bytes; None if Lambda does not support it.
pub fn machine(start: &[u8]) -> Option<&'static str> {
    // e_machine of a 64-bit little-endian file; both of Lambda's architectures use this format.
    let number = start
        .get(18..20)
        .filter(|_| start.starts_with(b"\x7fELF\x02\x01"))?;
    match elf::Machine(u16::from_le_bytes([number[0], number[1]])) {
        elf::EM_X86_64 => Some(ElfMachine::X86_64.name()),
        elf::EM_AARCH64 => Some(ElfMachine::Arm64.name()),
        _ => None,
    }
}

/// The architecture of packages made on this machine.
pub fn this_architecture() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Some(ElfMachine::X86_64.name()),
        "aarch64" => Some(ElfMachine::Arm64.name()),
        _ => None,
    }
}

/// Reads the file; None if it is not a 64-bit ELF file.
pub fn read(path: &Path) -> anyhow::Result<Option<Elf>> {
    let data = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !data.starts_with(b"\x7fELF\x02") {
        return Ok(None);
    }
    parse(&data)
        .map(Some)
        .with_context(|| format!("{} is not a valid ELF file", path.display()))
}

fn parse(data: &[u8]) -> anyhow::Result<Elf> {
    let file = ElfFile64::<Endianness>::parse(data)?;
    let (header, endian): (&FileHeader64<Endianness>, _) = (file.elf_header(), file.endian());
    let mut read = Elf {
        machine: match header.e_machine(endian) {
            elf::EM_X86_64 => Some(ElfMachine::X86_64),
            elf::EM_AARCH64 => Some(ElfMachine::Arm64),
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

/// The symbols that a library defines and those that it imports.
#[derive(Debug, Default)]
pub struct Symbols {
    pub defined: BTreeSet<String>,
    pub imported: BTreeSet<String>,
}

/// Reads the dynamic symbols of a library.
pub fn symbols(path: &Path) -> anyhow::Result<Symbols> {
    let data = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = ElfFile64::<Endianness>::parse(&*data)
        .map_err(|error| anyhow!("{} is not a valid ELF file: {error}", path.display()))?;
    let mut symbols = Symbols::default();
    for symbol in file.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        if symbol.is_undefined() {
            symbols.imported.insert(name.to_string());
        } else if symbol.is_global() {
            symbols.defined.insert(name.to_string());
        }
    }
    Ok(symbols)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn program_has_its_interpreter_and_libraries() {
        // The test program itself is dynamically linked.
        let test_program = read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(test_program.machine.is_some());
        if let Some(interpreter) = &test_program.interpreter {
            assert!(interpreter.is_file(), "{interpreter:?}");
            assert!(
                test_program
                    .needed
                    .iter()
                    .any(|name| name.starts_with("libc.")),
                "{test_program:?}"
            );
        }
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "#!/bin/sh\n").unwrap();
        assert_eq!(read(text.path()).unwrap(), None);
        std::fs::write(text.path(), b"\x7fELF\x02\x01\x01").unwrap();
        let error = format!("{:#}", read(text.path()).unwrap_err());
        assert!(error.contains("not a valid ELF file"), "{error}");
    }
}
