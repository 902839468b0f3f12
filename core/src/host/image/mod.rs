//! Reads what must be known of a library before it may be opened, straight from the file.
//!
//! Nothing is mapped and nothing runs: headers and two sections are read by offset. Whatever the headers say is checked
//! against the length of the file, since a library that is shorter than its headers say kills the process that opens it.
//! One reader per format; none knows what the sections mean.

mod elf;
mod macho;
mod pe;

use super::catalogue::CATALOGUE_LIMIT;
use super::codes;
use super::error::{HostError, Result};
use super::manifest::MANIFEST_LIMIT;
use std::fs::File;
use std::io;

pub(super) use elf::{Dynamic, dynamic};

/// File format of shared libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Linux and most other systems.
    Elf,
    /// macOS.
    MachO,
    /// Windows.
    Pe,
}

impl Format {
    /// The format that this process can open.
    pub const HOST: Format = if cfg!(windows) {
        Format::Pe
    } else if cfg!(target_vendor = "apple") {
        Format::MachO
    } else {
        Format::Elf
    };

    fn system(self) -> &'static str {
        match self {
            Format::Elf => "Linux or another system with ELF files",
            Format::MachO => "macOS",
            Format::Pe => "Windows",
        }
    }
}

/// What the file of a library says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// File format.
    pub format: Format,
    /// Architecture, in the words of `std::env::consts::ARCH`.
    pub arch: String,
    /// Bytes of memory from the library's lowest to its highest address.
    pub span: u64,
    /// The manifest section.
    pub manifest: Option<Vec<u8>>,
    /// The catalogue section.
    pub catalogue: Option<Vec<u8>>,
}

/// Bytes that can be read at any place: a file, or a slice in tests.
pub trait Source {
    /// Count of bytes.
    fn size(&self) -> io::Result<u64>;
    /// Fills `buffer` from `at` on.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Source for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        super::sys::read_exact_at(self, at, buffer)
    }
}

/// Reads the image. Libraries of other machines are refused before their segments are looked at.
pub fn read(source: &impl Source) -> Result<Image> {
    let reader = Reader::new(source)?;
    let Ok(magic) = reader.bytes(0, 4, "magic") else {
        return Err(not_a_library(if reader.size == 0 {
            "the file is empty"
        } else {
            "the file is too short for a library"
        }));
    };
    match magic.as_slice() {
        [0x7f, b'E', b'L', b'F'] => elf::read(&reader),
        [b'M', b'Z', ..] => pe::read(&reader),
        [0xcf, 0xfa, 0xed, 0xfe] | [0xca, 0xfe, 0xba, 0xbe] => macho::read(&reader),
        _ => Err(not_a_library(&format!(
            "the file begins with {:?}, no known library format does",
            String::from_utf8_lossy(&magic)
        ))),
    }
}

/// No table of a header is larger; headers that say so would only make the host allocate.
const READ_LIMIT: u64 = 8 << 20;

/// Refuses what this process cannot open.
fn check_machine(format: Format, arch: &str) -> Result<()> {
    if format == Format::HOST && arch == std::env::consts::ARCH {
        return Ok(());
    }
    let (system, host) = (format.system(), Format::HOST.system());
    let sentence =
        format!("built for {arch} and {system}; this process is {} and runs on {host}", std::env::consts::ARCH);
    Err(HostError::new(codes::WRONG_MACHINE, sentence))
}

fn not_a_library(what: &str) -> HostError {
    HostError::new(codes::NOT_A_LIBRARY, what)
}

fn malformed(what: impl Into<String>) -> HostError {
    HostError::new(codes::MALFORMED_LIBRARY, what)
}

/// A source with its size; every read is checked against it.
struct Reader<'a, S> {
    source: &'a S,
    size: u64,
}

impl<'a, S: Source> Reader<'a, S> {
    fn new(source: &'a S) -> Result<Self> {
        let size = source.size().map_err(|e| unreadable("size", &e))?;
        Ok(Reader { source, size })
    }

    /// Refuses a range that the file does not have.
    fn check(&self, at: u64, len: u64, what: &str) -> Result<()> {
        match at.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            end => {
                let end = end.map_or_else(|| "impossibly many".to_owned(), |end| end.to_string());
                let sentence = format!("the {what} needs {end} bytes, the file has {}", self.size);
                Err(HostError::new(codes::TRUNCATED, sentence))
            }
        }
    }

    fn bytes(&self, at: u64, len: u64, what: &str) -> Result<Vec<u8>> {
        self.check(at, len, what)?;
        if len > READ_LIMIT {
            return Err(malformed(format!("the {what} has {len} bytes, at most {READ_LIMIT} are allowed")));
        }
        let len = usize::try_from(len).map_err(|_| malformed(format!("the {what} is too large")))?;
        let mut bytes = vec![0; len];
        self.source.read_at(at, &mut bytes).map_err(|e| unreadable(what, &e))?;
        Ok(bytes)
    }

    /// A section with a limit on its size.
    fn limited(&self, at: u64, len: u64, limit: u64, what: &str) -> Result<Vec<u8>> {
        if len > limit {
            return Err(malformed(format!("the {what} has {len} bytes, at most {limit} are allowed")));
        }
        self.bytes(at, len, what)
    }

    fn manifest(&self, at: u64, len: u64) -> Result<Option<Vec<u8>>> {
        self.limited(at, len, MANIFEST_LIMIT, "manifest section").map(Some)
    }

    fn catalogue(&self, at: u64, len: u64) -> Result<Option<Vec<u8>>> {
        self.limited(at, len, CATALOGUE_LIMIT, "catalogue section").map(Some)
    }
}

fn unreadable(what: &str, error: &io::Error) -> HostError {
    HostError::new(codes::FILE_UNREADABLE, format!("the {what} cannot be read: {error}"))
}

/// Number fields of a header, little-endian.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N]> {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        bytes.and_then(|b| b.try_into().ok()).ok_or_else(|| malformed("a header is shorter than its format demands"))
    }

    fn u16(self, at: usize) -> Result<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn u32_be(self, at: usize) -> Result<u32> {
        self.array(at).map(u32::from_be_bytes)
    }
}

/// A fixed-width name that is padded with zeros.
fn padded_name(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Source for Vec<u8> {
        fn size(&self) -> io::Result<u64> {
            Ok(self.len() as u64)
        }

        fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
            let at = usize::try_from(at).map_err(io::Error::other)?;
            buffer.copy_from_slice(&self[at..at + buffer.len()]);
            Ok(())
        }
    }

    #[test]
    fn other_files_are_no_libraries() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "empty"),
            (b"MZ", "too short"),
            (b"#!/bin/sh\necho hello\n", "#!/b"),
            (b"<html><body>404 not found</body></html>", "<htm"),
        ];
        for (bytes, word) in cases {
            let error = read(&bytes.to_vec()).expect_err("no library");
            assert_eq!(error.code, codes::NOT_A_LIBRARY);
            assert!(error.sentence.contains(word), "{error}");
        }
    }

    /// No prefix and no single changed byte of a library may do worse than be refused.
    pub(super) fn survives_damage(image: &[u8]) {
        for len in 0..image.len() {
            let _ = read(&image[..len].to_vec());
        }
        let mut copy = image.to_vec();
        for at in 0..image.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                copy[at] = byte;
                let _ = read(&copy);
            }
            copy[at] = image[at];
        }
    }
}
