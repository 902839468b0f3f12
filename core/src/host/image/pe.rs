//! PE: the format of Windows. Written from its published description; tested on crafted files only.

use super::{Fields, Format, Image, Reader, Result, Source, check_machine, malformed, not_a_library};

const SECTION: u64 = 40;
const DLL: u16 = 0x2000;

/// Numbers of the machine field, with the names that Rust has for them.
const MACHINES: &[(u16, &str)] = &[(0x14c, "x86"), (0x1c4, "arm"), (0x8664, "x86_64"), (0xaa64, "aarch64")];

pub(super) fn read<S: Source>(reader: &Reader<'_, S>) -> Result<Image> {
    let dos = reader.bytes(0, 64, "DOS header").map_err(|_| not_a_library("the file ends inside its DOS header"))?;
    let at = u64::from(Fields(&dos).u32(60)?);
    let header = reader.bytes(at, 24, "PE header")?;
    if header.get(..4) != Some(b"PE\0\0") {
        return Err(not_a_library("a DOS program, not a shared library"));
    }
    let header = Fields(&header);
    let machine = header.u16(4)?;
    let known = MACHINES.iter().find(|(number, _)| *number == machine).map(|(_, name)| (*name).to_owned());
    let arch = known.unwrap_or_else(|| format!("PE machine {machine:#x}"));
    check_machine(Format::Pe, &arch)?;
    sections(reader, at, header, arch)
}

/// The part behind the machine check.
fn sections<S: Source>(reader: &Reader<'_, S>, at: u64, header: Fields<'_>, arch: String) -> Result<Image> {
    if header.u16(22)? & DLL == 0 {
        return Err(not_a_library("a program, not a shared library"));
    }
    let mut image = Image { format: Format::Pe, arch, span: 0, manifest: None, catalogue: None };
    let table_at =
        at.checked_add(24 + u64::from(header.u16(20)?)).ok_or_else(|| malformed("a header's place is impossible"))?;
    let table = reader.bytes(table_at, SECTION * u64::from(header.u16(6)?), "table of sections")?;
    for section in table.chunks_exact(40) {
        let fields = Fields(section);
        let (used, address) = (u64::from(fields.u32(8)?), u64::from(fields.u32(12)?));
        let (stored, place) = (u64::from(fields.u32(16)?), u64::from(fields.u32(20)?));
        reader.check(place, stored, "section")?;
        image.span = image.span.max(address + used.max(stored));
        // Sections are padded to the file's alignment; the size in memory is the true one.
        match super::padded_name(section.get(..8).unwrap_or_default()) {
            b".ortolan" => image.manifest = reader.manifest(place, used.min(stored))?,
            b".ortcat" => image.catalogue = reader.catalogue(place, used.min(stored))?,
            _ => {}
        }
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::super::{read as read_any, tests::survives_damage};
    use super::*;

    fn dll(manifest: &[u8], characteristics: u16) -> Vec<u8> {
        let mut f = b"MZ".to_vec();
        f.resize(60, 0);
        f.extend(64u32.to_le_bytes());
        f.extend(b"PE\0\0");
        f.extend([0x8664u16, 1].iter().flat_map(|n| n.to_le_bytes()));
        f.extend([0; 12]);
        f.extend([0u16, characteristics].iter().flat_map(|n| n.to_le_bytes()));
        f.extend(b".ortolan");
        let at = 64 + 24 + 40u32;
        f.extend([manifest.len() as u32, 4096, 512, at].iter().flat_map(|n| n.to_le_bytes()));
        f.extend([0; 16]);
        f.extend(manifest);
        f.resize(at as usize + 512, 0);
        f
    }

    #[test]
    fn libraries_of_windows_are_told_apart() {
        let file = dll(b"{}", DLL);
        match read_any(&file) {
            Ok(image) => assert_eq!(image.manifest.as_deref(), Some(&b"{}"[..])),
            Err(error) => {
                assert!(error.code.name() == "wrong-machine" && error.sentence.contains("Windows"), "{error}")
            }
        }
        survives_damage(&file);
        let mut dos = file.clone();
        dos[64] = b'N';
        assert_eq!(read_any(&dos).expect_err("DOS").code.name(), "not-a-library");
    }

    #[test]
    fn section_size_is_the_one_in_memory() {
        let read = |file: &Vec<u8>| {
            let reader = Reader::new(file)?;
            let header = reader.bytes(64, 24, "header")?;
            sections(&reader, 64, Fields(&header), "x86_64".into())
        };
        let image = read(&dll(b"{\"a\":1}", DLL)).expect("well-formed");
        assert_eq!((image.manifest.as_deref(), image.span), (Some(&b"{\"a\":1}"[..]), 4096 + 512));
        assert_eq!(read(&dll(b"{}", 0)).expect_err("a program").code.name(), "not-a-library");
        let mut short = dll(b"{}", DLL);
        short.truncate(short.len() - 1);
        assert_eq!(read(&short).expect_err("short").code.name(), "truncated");
    }
}
