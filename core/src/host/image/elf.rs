//! ELF: the format of Linux. 64-bit little-endian files only; every other kind is of another machine.

use super::{Fields, Format, Image, Reader, Result, Source, check_machine, malformed, not_a_library};

const HEADER: u64 = 64;
const PROGRAM_HEADER: u16 = 56;
const SECTION_HEADER: u16 = 64;
const ET_DYN: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const SHT_NOBITS: u32 = 8;
const NAMES_LIMIT: u64 = 1 << 20;

/// Numbers of `e_machine`, with the names that Rust has for them.
const MACHINES: &[(u16, &str)] = &[
    (3, "x86"),
    (8, "mips"),
    (20, "powerpc"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (258, "loongarch64"),
];

/// What the dynamic section says about other libraries.
#[derive(Debug, Default)]
pub(crate) struct Dynamic {
    /// Names of the libraries that it needs.
    pub needed: Vec<String>,
    /// Where to look first, `:`-separated; passed on to what it needs.
    pub rpath: Option<String>,
    /// Where to look after the environment's folders; not passed on.
    pub runpath: Option<String>,
}

pub(super) fn read<S: Source>(reader: &Reader<'_, S>) -> Result<Image> {
    let header = header(reader)?;
    let span = check_segments(reader, &header)?;
    let mut image =
        Image { format: Format::Elf, arch: std::env::consts::ARCH.to_owned(), span, manifest: None, catalogue: None };
    let table = header.sections(reader)?;
    let sections = || table.chunks_exact(usize::from(header.section_size)).map(Fields);
    let Some(names) = sections().nth(usize::from(header.names)) else {
        return Ok(image); // stripped of its section headers: there is no manifest
    };
    let names = reader.limited(names.u64(24)?, names.u64(32)?, NAMES_LIMIT, "section names")?;
    for section in sections() {
        let at = usize::try_from(section.u32(0)?).unwrap_or(usize::MAX);
        let name = names.get(at..).map(super::padded_name).unwrap_or_default();
        if section.u32(4)? == SHT_NOBITS {
            continue;
        }
        match name {
            b".ortolan" => image.manifest = reader.manifest(section.u64(24)?, section.u64(32)?)?,
            b".ortcat" => image.catalogue = reader.catalogue(section.u64(24)?, section.u64(32)?)?,
            _ => {}
        }
    }
    Ok(image)
}

/// The dynamic section of a library for this machine.
pub(crate) fn dynamic(source: &impl Source) -> Result<Dynamic> {
    let reader = Reader::new(source)?;
    let header = header(&reader)?;
    let programs = header.programs(&reader)?;
    let mut found = Dynamic::default();
    let mut loads = Vec::new();
    let mut entries = Vec::new();
    for program in header.each_program(&programs) {
        let (kind, at, address, len) = (program.u32(0)?, program.u64(8)?, program.u64(16)?, program.u64(32)?);
        match kind {
            PT_LOAD => loads.push((address, at, len)),
            PT_DYNAMIC => entries = reader.limited(at, len, NAMES_LIMIT, "dynamic section")?,
            _ => {}
        }
    }
    let tags = || entries.chunks_exact(16).map(Fields).map(|e| Ok((e.u64(0)?, e.u64(8)?)));
    let Some(strings) = tags().filter_map(Result::ok).find(|(tag, _)| *tag == 5).map(|(_, address)| address) else {
        return Ok(found);
    };
    let in_file = |address: u64| {
        let load = loads.iter().find(|(start, _, len)| address.checked_sub(*start).is_some_and(|d| d < *len));
        load.and_then(|(start, at, _)| at.checked_add(address - start))
    };
    let strings = in_file(strings).ok_or_else(|| malformed("the table of dynamic names lies outside the segments"))?;
    for tag in tags() {
        match tag? {
            (0, _) => break,
            (1, at) => found.needed.push(text(&reader, strings, at)?),
            (15, at) => found.rpath = Some(text(&reader, strings, at)?),
            (29, at) => found.runpath = Some(text(&reader, strings, at)?),
            _ => {}
        }
    }
    Ok(found)
}

/// The fields of the ELF header that matter.
struct Header {
    programs_at: u64,
    sections_at: u64,
    program_size: u16,
    program_count: u16,
    section_size: u16,
    section_count: u16,
    names: u16,
}

impl Header {
    fn programs<S: Source>(&self, reader: &Reader<'_, S>) -> Result<Vec<u8>> {
        let len = u64::from(self.program_size) * u64::from(self.program_count);
        reader.bytes(self.programs_at, len, "table of segments")
    }

    fn each_program<'b>(&self, table: &'b [u8]) -> impl Iterator<Item = Fields<'b>> {
        table.chunks_exact(usize::from(self.program_size)).map(Fields)
    }

    fn sections<S: Source>(&self, reader: &Reader<'_, S>) -> Result<Vec<u8>> {
        let len = u64::from(self.section_size) * u64::from(self.section_count);
        reader.bytes(self.sections_at, len, "table of sections")
    }
}

fn header<S: Source>(reader: &Reader<'_, S>) -> Result<Header> {
    let bytes =
        reader.bytes(0, HEADER, "ELF header").map_err(|_| not_a_library("the file ends inside its ELF header"))?;
    let fields = Fields(&bytes);
    let (class, order, machine) = (bytes.get(4), bytes.get(5), fields.u16(18)?);
    if order != Some(&1) {
        check_machine(Format::Elf, "a big-endian processor")?;
    }
    let known = MACHINES.iter().find(|(number, _)| *number == machine).map(|(_, name)| (*name).to_owned());
    let arch = known.unwrap_or_else(|| format!("ELF machine {machine}"));
    check_machine(Format::Elf, &if class == Some(&2) { arch } else { format!("32-bit {arch}") })?;
    match fields.u16(16)? {
        ET_DYN => {}
        1 => return Err(not_a_library("an object file that was not linked into a shared library")),
        2 => return Err(not_a_library("a program, not a shared library")),
        kind => return Err(not_a_library(&format!("an ELF file of type {kind}, not a shared library"))),
    }
    let header = Header {
        programs_at: fields.u64(32)?,
        sections_at: fields.u64(40)?,
        program_size: fields.u16(54)?,
        program_count: fields.u16(56)?,
        section_size: fields.u16(58)?,
        section_count: fields.u16(60)?,
        names: fields.u16(62)?,
    };
    if header.program_size < PROGRAM_HEADER || (header.section_count > 0 && header.section_size < SECTION_HEADER) {
        return Err(malformed("the sizes in the ELF header are too small"));
    }
    Ok(Header { section_size: header.section_size.max(SECTION_HEADER), ..header })
}

/// All segments lie inside the file. Gives back the bytes of memory that they span.
fn check_segments<S: Source>(reader: &Reader<'_, S>, header: &Header) -> Result<u64> {
    let programs = header.programs(reader)?;
    let (mut low, mut high) = (u64::MAX, 0);
    for program in header.each_program(&programs) {
        let (kind, at, address) = (program.u32(0)?, program.u64(8)?, program.u64(16)?);
        if kind == PT_LOAD || kind == PT_DYNAMIC {
            reader.check(at, program.u64(32)?, "loaded part")?;
        }
        if kind == PT_LOAD {
            let end = address.checked_add(program.u64(40)?);
            low = low.min(address);
            high = high.max(end.ok_or_else(|| malformed("a segment ends beyond all addresses"))?);
        }
    }
    high.checked_sub(low).ok_or_else(|| malformed("no segment would be loaded"))
}

/// A NUL-terminated text; longer than a path can be is malformed.
fn text<S: Source>(reader: &Reader<'_, S>, table: u64, at: u64) -> Result<String> {
    let start = table.checked_add(at).filter(|&s| s < reader.size);
    let start = start.ok_or_else(|| malformed("a dynamic name lies outside the file"))?;
    let bytes = reader.bytes(start, 4096.min(reader.size - start), "dynamic name")?;
    let end = bytes.iter().position(|&b| b == 0).ok_or_else(|| malformed("a dynamic name does not end"))?;
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::{codes, read as read_any, tests::survives_damage};
    use crate::host::image::Image;

    /// A minimal library: one segment over the whole file, three sections.
    fn elf(manifest: &[u8], catalogue: &[u8]) -> Vec<u8> {
        let names = b"\0.ortolan\0.ortcat\0.shstrtab\0";
        let (programs, data) = (64u64, 64 + 56);
        let parts = [manifest, catalogue, names.as_slice()];
        let sections = data + parts.iter().map(|p| p.len() as u64).sum::<u64>();
        let mut f = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for n in [3u16, if cfg!(target_arch = "x86_64") { 62 } else { 183 }] {
            f.extend(n.to_le_bytes());
        }
        f.extend(1u32.to_le_bytes());
        for n in [0u64, programs, sections] {
            f.extend(n.to_le_bytes());
        }
        f.extend(0u32.to_le_bytes());
        for n in [64u16, 56, 1, 64, 4, 3] {
            f.extend(n.to_le_bytes());
        }
        let size = sections + 4 * 64;
        f.extend([1u32, 4].iter().flat_map(|n| n.to_le_bytes()));
        f.extend([0u64, 0, 0, size, size + 100, 4096].iter().flat_map(|n| n.to_le_bytes()));
        parts.iter().for_each(|p| f.extend(*p));
        f.extend([0; 64]);
        let mut at = data;
        for (part, name) in parts.iter().zip([1u32, 10, 18]) {
            f.extend([name, 1].iter().flat_map(|n| n.to_le_bytes()));
            f.extend([0u64, 0, at, part.len() as u64, 0, 1, 0].iter().flat_map(|n| n.to_le_bytes()));
            at += part.len() as u64;
        }
        f
    }

    fn code(file: &[u8]) -> &'static str {
        read_any(&file.to_vec()).expect_err("refused").code.name()
    }

    #[test]
    fn sections_are_found() {
        let file = elf(b"{manifest}", b"rows");
        let Image { manifest, catalogue, span, .. } = read_any(&file).expect("well-formed");
        assert_eq!((manifest.as_deref(), catalogue.as_deref()), (Some(&b"{manifest}"[..]), Some(&b"rows"[..])));
        assert_eq!(span, file.len() as u64 + 100);
        survives_damage(&file);
    }

    #[test]
    fn wrong_kinds_have_their_codes() {
        let good = elf(b"{}", b"");
        let patched = |at: usize, byte: u8| {
            let mut file = good.clone();
            file[at] = byte;
            file
        };
        assert_eq!(code(&patched(18, 40)), "wrong-machine");
        assert_eq!(code(&patched(4, 1)), "wrong-machine");
        assert_eq!(code(&patched(5, 2)), "wrong-machine");
        assert_eq!(code(&patched(16, 1)), "not-a-library");
        assert_eq!(code(&patched(16, 2)), "not-a-library");
        assert_eq!(code(&patched(54, 8)), "malformed-library");
        assert_eq!(code(&good[..40]), "not-a-library");
        assert_eq!(code(&good[..good.len() / 2]), "truncated");
        assert_eq!(code(&good[..good.len() - 1]), "truncated");
        let error = read_any(&patched(18, 40)).expect_err("arm");
        assert!(error.sentence.contains("built for arm"), "{error}");
    }

    #[test]
    fn sections_have_limits_and_need_bytes() {
        let mut file = elf(b"{}", b"");
        let header = file.len() - 3 * 64;
        file[header + 32..header + 40].copy_from_slice(&(1u64 << 20).to_le_bytes());
        assert_eq!(code(&file), codes::MALFORMED_LIBRARY.name());
        let mut file = elf(b"{}", b"");
        file[header + 4] = 8; // occupies no bytes of the file
        assert_eq!(read_any(&file).expect("well-formed").manifest, None);
        file[60] = 0; // no sections at all
        file[61] = 0;
        assert_eq!(read_any(&file).expect("well-formed").manifest, None);
    }
}
