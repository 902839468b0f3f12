//! Mach-O: the format of macOS, thin or fat. Written from its published description; tested on crafted files only.

use super::{Fields, Format, Image, Reader, Result, Source, check_machine, malformed, not_a_library};

const FAT: u32 = 0xcafe_babe;
const THIN: u32 = 0xfeed_facf;
const DYLIB: u32 = 6;
const BUNDLE: u32 = 8;
const SEGMENT: u32 = 0x19;
/// A Java class file has the magic of a fat library, and a version of at least 45 where the count stands.
const MOST_SLICES: u32 = 40;

/// Numbers of the processor field, with the names that Rust has for them.
const MACHINES: &[(u32, &str)] = &[(7, "x86"), (12, "arm"), (0x0100_0007, "x86_64"), (0x0100_000c, "aarch64")];

pub(super) fn read<S: Source>(reader: &Reader<'_, S>) -> Result<Image> {
    let head =
        reader.bytes(0, 8, "Mach-O header").map_err(|_| not_a_library("the file ends inside its Mach-O header"))?;
    let head = Fields(&head);
    if head.u32_be(0)? != FAT {
        return slice(reader, 0);
    }
    let count = head.u32_be(4)?;
    if count == 0 || count > MOST_SLICES {
        return Err(not_a_library("a Java class file or a damaged fat library"));
    }
    let table = reader.bytes(8, 20 * u64::from(count), "table of slices")?;
    let mut names = Vec::new();
    for entry in table.chunks_exact(20).map(Fields) {
        let arch = name(entry.u32_be(0)?);
        if arch == std::env::consts::ARCH {
            let (at, len) = (u64::from(entry.u32_be(8)?), u64::from(entry.u32_be(12)?));
            reader.check(at, len, "slice for this processor")?;
            return slice(reader, at);
        }
        names.push(arch);
    }
    check_machine(Format::MachO, &names.join(" or "))?;
    Err(malformed("a fat library without a slice for this processor"))
}

fn name(cpu: u32) -> String {
    let known = MACHINES.iter().find(|(number, _)| *number == cpu);
    known.map_or_else(|| format!("Mach-O processor {cpu:#x}"), |(_, name)| (*name).to_owned())
}

/// One thin library that begins at `base`.
fn slice<S: Source>(reader: &Reader<'_, S>, base: u64) -> Result<Image> {
    let header = reader.bytes(base, 32, "Mach-O header")?;
    let header = Fields(&header);
    if header.u32(0)? != THIN {
        return Err(malformed("a slice of a fat library is no 64-bit library"));
    }
    let arch = name(header.u32(4)?);
    check_machine(Format::MachO, &arch)?;
    commands(reader, base, header, arch)
}

/// The part behind the machine check.
fn commands<S: Source>(reader: &Reader<'_, S>, base: u64, header: Fields<'_>, arch: String) -> Result<Image> {
    let kind = header.u32(12)?;
    if kind != DYLIB && kind != BUNDLE {
        return Err(not_a_library("an object file or a program, not a shared library"));
    }
    let mut image = Image { format: Format::MachO, arch, span: 0, manifest: None, catalogue: None };
    let bytes = reader.bytes(base + 32, u64::from(header.u32(20)?), "load commands")?;
    let (mut rest, mut low, mut high) = (bytes.as_slice(), u64::MAX, 0);
    for _ in 0..header.u32(16)? {
        let size = usize::try_from(Fields(rest).u32(4)?).unwrap_or(usize::MAX);
        let command =
            rest.get(..size).filter(|c| c.len() >= 8).ok_or_else(|| malformed("a load command has a wrong size"))?;
        rest = rest.get(size..).unwrap_or_default();
        let fields = Fields(command);
        if fields.u32(0)? != SEGMENT {
            continue;
        }
        let (address, len) = (fields.u64(24)?, fields.u64(32)?);
        let end = address.checked_add(len).ok_or_else(|| malformed("a segment ends beyond all addresses"))?;
        (low, high) = (low.min(address), high.max(end));
        reader.check(base.saturating_add(fields.u64(40)?), fields.u64(48)?, "segment")?;
        sections(reader, base, command, &mut image)?;
    }
    image.span = high.saturating_sub(low);
    Ok(image)
}

/// Sections of one segment command.
fn sections<S: Source>(reader: &Reader<'_, S>, base: u64, command: &[u8], image: &mut Image) -> Result<()> {
    let count = usize::try_from(Fields(command).u32(64)?).unwrap_or(usize::MAX);
    for section in command.get(72..).unwrap_or_default().chunks_exact(80).take(count) {
        let fields = Fields(section);
        let (len, at) = (fields.u64(40)?, base.saturating_add(u64::from(fields.u32(48)?)));
        match super::padded_name(section.get(..16).unwrap_or_default()) {
            b"__ortolan" => image.manifest = reader.manifest(at, len)?,
            b"__ortcat" => image.catalogue = reader.catalogue(at, len)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{read as read_any, tests::survives_damage};
    use super::*;

    fn dylib(manifest: &[u8], kind: u32) -> Vec<u8> {
        let command = 72 + 80u32;
        let mut f: Vec<u8> =
            [THIN, 0x0100_0007, 3, kind, 1, command, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
        let data = 32 + u64::from(command);
        let size = data + manifest.len() as u64;
        f.extend([SEGMENT, command].iter().flat_map(|n| n.to_le_bytes()));
        f.extend(*b"__TEXT\0\0\0\0\0\0\0\0\0\0");
        f.extend([0x1000u64, 0x4000, 0, size].iter().flat_map(|n| n.to_le_bytes()));
        f.extend([5u32, 5, 1, 0].iter().flat_map(|n| n.to_le_bytes()));
        f.extend(*b"__ortolan\0\0\0\0\0\0\0__TEXT\0\0\0\0\0\0\0\0\0\0");
        f.extend([0x1000 + data, manifest.len() as u64].iter().flat_map(|n| n.to_le_bytes()));
        f.extend([data as u32, 0, 0, 0, 0, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        f.extend(manifest);
        f
    }

    fn read_slice(file: &Vec<u8>) -> Result<Image> {
        let reader = Reader::new(file)?;
        let header = reader.bytes(0, 32, "header")?;
        commands(&reader, 0, Fields(&header), "x86_64".into())
    }

    #[test]
    fn libraries_of_macos_are_told_apart() {
        let file = dylib(b"{}", DYLIB);
        match read_any(&file) {
            Ok(image) => assert_eq!(image.manifest.as_deref(), Some(&b"{}"[..])),
            Err(error) => assert!(error.code.name() == "wrong-machine" && error.sentence.contains("macOS"), "{error}"),
        }
        survives_damage(&file);
    }

    #[test]
    fn sections_are_found() {
        let image = read_slice(&dylib(b"{\"a\":1}", DYLIB)).expect("well-formed");
        assert_eq!((image.manifest.as_deref(), image.span), (Some(&b"{\"a\":1}"[..]), 0x4000));
        assert_eq!(read_slice(&dylib(b"{}", 2)).expect_err("a program").code.name(), "not-a-library");
        let mut short = dylib(b"{}", BUNDLE);
        short.pop();
        assert_eq!(read_slice(&short).expect_err("short").code.name(), "truncated");
    }

    #[test]
    fn fat_files_without_our_processor_and_class_files() {
        let mut fat: Vec<u8> = [FAT, 1, 18, 0, 28, 0, 0].iter().flat_map(|n: &u32| n.to_be_bytes()).collect();
        let error = read_any(&fat).expect_err("PowerPC only");
        assert!(["wrong-machine", "malformed-library"].contains(&error.code.name()), "{error}");
        fat[7] = 52;
        assert_eq!(read_any(&fat).expect_err("Java").code.name(), "not-a-library");
    }
}
