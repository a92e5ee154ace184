//! Finds the calls and addresses in PHP's library that `sapi/php/direct_binding.c` can bind
//! directly.

use std::fs;
use std::path::Path;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};
use object::{Architecture, Object, ObjectSection, ObjectSymbol, SymbolKind};

/// What [`find`] has found in one library.
pub struct Sites {
    /// The build id, which identifies the library's exact code.
    pub build_id: Vec<u8>,
    /// Offsets of the instructions from the library's load address, ascending.
    pub offsets: Vec<u64>,
}

/// Returns None for another architecture, without a build id, or if the code cannot be
/// disassembled.
pub fn find(library: &Path) -> Option<Sites> {
    let bytes = fs::read(library).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    if file.architecture() != Architecture::X86_64 {
        return None;
    }
    let build_id = file.build_id().ok()??.to_vec();
    let section = |name| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    };
    let mut stubs = Vec::new();
    for name in [".plt", ".plt.sec", ".plt.got"] {
        if let Some((address, code)) = section(name) {
            stubs.push(address..address + code.len() as u64);
        }
    }
    let tables: Vec<_> = [".got", ".got.plt"]
        .into_iter()
        .filter_map(section)
        .map(|(address, bytes)| address..address + bytes.len() as u64)
        .collect();

    let (address, code) = section(".text")?;
    let mut starts: Vec<u64> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .map(|symbol| symbol.address())
        .filter(|start| (address..address + code.len() as u64).contains(start))
        .collect();
    starts.sort_unstable();
    starts.reverse();

    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut offsets = Vec::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return None;
        }
        // Every exported function must begin at a decoded instruction; otherwise the disassembler
        // is out of step.
        while let Some(start) = starts.pop_if(|start| *start < instruction.next_ip()) {
            if start != instruction.ip() {
                return None;
            }
        }
        let is_site = match instruction.code() {
            Code::Call_rel32_64 | Code::Jmp_rel32_64 => {
                let target = instruction.near_branch_target();
                instruction.len() == 5 && stubs.iter().any(|stub| stub.contains(&target))
            }
            Code::Mov_r64_rm64 => {
                let slot = instruction.memory_displacement64();
                instruction.len() == 7
                    && instruction.memory_base() == Register::RIP
                    && tables.iter().any(|table| table.contains(&slot))
            }
            _ => false,
        };
        if is_site {
            offsets.push(instruction.ip());
        }
    }
    (!offsets.is_empty()).then_some(Sites { build_id, offsets })
}

impl Sites {
    /// The C file for `sapi/php/direct_binding.c`. Each site is its distance to the one before, in
    /// LEB128: seven bits to a byte, the low ones first, with the eighth bit if more follow.
    pub fn to_c(sites: Option<&Sites>) -> String {
        let mut coded = Vec::new();
        let mut last = 0;
        for offset in sites.iter().flat_map(|sites| &sites.offsets) {
            let mut distance = offset - last;
            last = *offset;
            while distance >= 0x80 {
                coded.push(distance as u8 | 0x80);
                distance >>= 7;
            }
            coded.push(distance as u8);
        }
        let id = sites.map_or(&[][..], |sites| &sites.build_id);
        format!(
            "/* Made by build.rs. */\n#include \"php/direct_binding.h\"\n\
             const unsigned char surus_direct_id[] = {{{}}};\nconst size_t surus_direct_id_len = \
             {};\n\
             const unsigned char surus_direct_sites[] = {{{}}};\nconst size_t \
             surus_direct_sites_len = {};\n",
            list(id),
            id.len(),
            list(&coded),
            coded.len()
        )
    }
}

/// C wants at least one.
fn list(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte},"))
        .chain(["0".into()])
        .collect()
}
