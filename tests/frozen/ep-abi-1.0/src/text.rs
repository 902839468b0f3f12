//! Manifest and operator catalogue as text, made in const evaluation by [`export_ep!`](crate::export_ep).
//!
//! Both are written by one const writer that runs twice: once to count, once to fill an array of that size. Formats:
//! the manifest is one JSON object; the catalogue has one row a line, fields separated by tabs:
//! `domain op since until T=f32,f16;T1=i64 digest key=value…`, with `-` for an empty field.

use crate::codes::DType;

/// One row of the catalogue: an operator in a closed range of since-versions for sets of types.
#[derive(Debug, Clone, Copy)]
pub struct CatalogueRow {
    /// Domain; empty is the standard one.
    pub domain: &'static str,
    /// Operator.
    pub op: &'static str,
    /// First since-version.
    pub since: u16,
    /// Last since-version.
    pub until: u16,
    /// Type variable of the schema and its set, as [`DType::mask`]s or-ed together.
    pub types: &'static [(&'static str, u64)],
    /// Digest of the schema at `until`, 0 if not stated.
    pub digest: u64,
    /// Limits on ranks and attributes.
    pub limits: &'static [(&'static str, &'static str)],
}

/// Counts bytes and, if it has room, stores them.
pub struct Writer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Writer<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Writer<N> {
    /// An empty writer; with N = 0 it only counts.
    pub const fn new() -> Self {
        Writer { bytes: [0; N], len: 0 }
    }

    /// Bytes written so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The array; N must be the counted length.
    pub const fn finish(self) -> [u8; N] {
        assert!(self.len == N, "the counting pass and the writing pass differ");
        self.bytes
    }

    /// Appends a byte.
    pub const fn byte(&mut self, byte: u8) {
        if self.len < N {
            self.bytes[self.len] = byte;
        }
        self.len += 1;
    }

    /// Appends text.
    pub const fn text(&mut self, text: &str) {
        let (bytes, mut i) = (text.as_bytes(), 0);
        while i < bytes.len() {
            self.byte(bytes[i]);
            i += 1;
        }
    }

    /// Appends text as a JSON string with its quotes.
    pub const fn json(&mut self, text: &str) {
        let (bytes, mut i) = (text.as_bytes(), 0);
        self.byte(b'"');
        while i < bytes.len() {
            match bytes[i] {
                c @ (b'"' | b'\\') => {
                    self.byte(b'\\');
                    self.byte(c);
                }
                c if c < 0x20 => {
                    self.text("\\u00");
                    self.hex_digit(c >> 4);
                    self.hex_digit(c & 15);
                }
                c => self.byte(c),
            }
            i += 1;
        }
        self.byte(b'"');
    }

    /// Appends a JSON list of strings.
    pub const fn json_list(&mut self, list: &[&str]) {
        self.byte(b'[');
        let mut i = 0;
        while i < list.len() {
            if i > 0 {
                self.byte(b',');
            }
            self.json(list[i]);
            i += 1;
        }
        self.byte(b']');
    }

    /// Appends a decimal number.
    pub const fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.byte(b'0' + (number % 10) as u8);
    }

    /// Appends 16 hexadecimal digits.
    pub const fn hex(&mut self, number: u64) {
        let mut i = 16;
        while i > 0 {
            i -= 1;
            self.hex_digit((number >> (4 * i)) as u8 & 15);
        }
    }

    const fn hex_digit(&mut self, digit: u8) {
        self.byte(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
    }

    /// Appends a catalogue row and the line's end.
    pub const fn row(&mut self, row: &CatalogueRow) {
        self.field(row.domain);
        self.field(row.op);
        self.number(row.since as u64);
        self.byte(b'\t');
        self.number(row.until as u64);
        self.byte(b'\t');
        self.types(row.types);
        self.byte(b'\t');
        if row.digest == 0 {
            self.byte(b'-')
        } else {
            self.hex(row.digest)
        }
        let mut i = 0;
        while i < row.limits.len() {
            self.byte(b'\t');
            self.text(row.limits[i].0);
            self.byte(b'=');
            self.text(row.limits[i].1);
            i += 1;
        }
        self.byte(b'\n');
    }

    const fn field(&mut self, text: &str) {
        self.text(if text.is_empty() { "-" } else { text });
        self.byte(b'\t');
    }

    const fn types(&mut self, types: &[(&str, u64)]) {
        if types.is_empty() {
            self.byte(b'-');
        }
        let mut i = 0;
        while i < types.len() {
            if i > 0 {
                self.byte(b';');
            }
            self.text(types[i].0);
            self.byte(b'=');
            self.dtypes(types[i].1);
            i += 1;
        }
    }

    const fn dtypes(&mut self, mask: u64) {
        let (mut n, mut first) = (0, true);
        while n < DType::ALL.len() {
            let dtype = DType::ALL[n];
            if mask & dtype.mask() != 0 {
                if !first {
                    self.byte(b',');
                }
                self.text(dtype.as_str());
                first = false;
            }
            n += 1;
        }
    }

    /// Appends the rows of a table.
    pub const fn rows(&mut self, rows: &[CatalogueRow]) {
        let mut i = 0;
        while i < rows.len() {
            self.row(&rows[i]);
            i += 1;
        }
    }
}

/// What the manifest says; see [`export_ep!`](crate::export_ep) for who fills in what.
#[derive(Debug, Clone, Copy)]
pub struct ManifestFacts {
    /// Name by which users ask for the EP.
    pub name: &'static str,
    /// Version of the plugin.
    pub version: &'static str,
    /// Maker.
    pub vendor: &'static str,
    /// Semver requirement on the core.
    pub requires_core: &'static str,
    /// Host tables without which it does not run.
    pub needs: &'static [&'static str],
    /// Host tables that it uses if served.
    pub wants: &'static [&'static str],
    /// Libraries that it opens at run time.
    pub needs_libs: &'static [&'static str],
    /// Kinds of device.
    pub device_kinds: &'static [&'static str],
    /// The opset per domain in which it wants its programs.
    pub opset: &'static [(&'static str, u16)],
    /// `host`, or `own` when a vendor library brings threads of its own.
    pub threads: &'static str,
    /// CPU features that the whole library was compiled for.
    pub cpu: &'static [&'static str],
    /// The catalogue, for its hash.
    pub catalogue: &'static str,
}

impl<const N: usize> Writer<N> {
    /// Appends the manifest.
    pub const fn manifest(&mut self, m: &ManifestFacts) {
        self.text("{\"format\":1,\"name\":");
        self.json(m.name);
        self.pair("version", m.version);
        self.pair("vendor", m.vendor);
        self.text(",\"abi\":{\"major\":");
        self.number(crate::raw::ABI_MAJOR as u64);
        self.text(",\"minor\":");
        self.number(crate::raw::ABI_MINOR as u64);
        self.byte(b'}');
        self.pair("requires_core", m.requires_core);
        self.list("provides", &[crate::raw::EP_V1_ID]);
        self.list("needs", m.needs);
        self.list("wants", m.wants);
        self.text(",\"fingerprint\":\"0x");
        self.hex(crate::raw::V1_FINGERPRINT);
        self.byte(b'"');
        self.pair("target", TARGET);
        self.list("cpu", m.cpu);
        self.pair("panic", if cfg!(panic = "unwind") { "unwind" } else { "abort" });
        self.pair("threads", m.threads);
        self.list("needs_libs", m.needs_libs);
        self.list("device_kinds", m.device_kinds);
        self.text(",\"opset\":{");
        let mut i = 0;
        while i < m.opset.len() {
            if i > 0 {
                self.byte(b',');
            }
            self.json(m.opset[i].0);
            self.byte(b':');
            self.number(m.opset[i].1 as u64);
            i += 1;
        }
        self.text("},\"catalogue\":\"0x");
        self.hex(crate::layout::fnv(crate::layout::FNV, m.catalogue.as_bytes()));
        self.text("\"}");
    }

    const fn pair(&mut self, key: &str, value: &str) {
        self.byte(b',');
        self.json(key);
        self.byte(b':');
        self.json(value);
    }

    const fn list(&mut self, key: &str, list: &[&str]) {
        self.byte(b',');
        self.json(key);
        self.byte(b':');
        self.json_list(list);
    }
}

/// Architecture and system for which this library is compiled, `arch-os-env`.
pub const TARGET: &str = target();

const fn target() -> &'static str {
    if cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        "x86_64-linux-gnu"
    } else if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        "x86_64-linux-musl"
    } else if cfg!(all(target_arch = "aarch64", target_os = "linux", target_env = "gnu")) {
        "aarch64-linux-gnu"
    } else if cfg!(all(target_arch = "aarch64", target_os = "linux")) {
        "aarch64-linux-musl"
    } else if cfg!(all(target_arch = "aarch64", target_os = "macos")) {
        "aarch64-macos"
    } else if cfg!(all(target_arch = "x86_64", target_os = "macos")) {
        "x86_64-macos"
    } else if cfg!(all(target_arch = "x86_64", target_os = "windows")) {
        "x86_64-windows"
    } else if cfg!(all(target_arch = "aarch64", target_os = "windows")) {
        "aarch64-windows"
    } else {
        "unknown"
    }
}

/// The x86-64 features beyond the baseline that this crate was compiled for; a plugin built with more refuses older CPUs.
pub const CPU: &[&str] = if cfg!(target_feature = "avx512f") {
    &["avx2", "fma", "avx512f"]
} else if cfg!(all(target_feature = "avx2", target_feature = "fma")) {
    &["avx2", "fma"]
} else if cfg!(target_feature = "avx2") {
    &["avx2"]
} else {
    &[]
};

/// Text of a const byte array that a [`Writer`] made.
pub const fn str_of(bytes: &'static [u8]) -> &'static str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("the writer only gets text"),
    }
}

/// A catalogue as `&'static str`, from an expression of type `&[CatalogueRow]`.
#[macro_export]
macro_rules! catalogue {
    ($rows:expr) => {{
        const __ROWS: &[$crate::text::CatalogueRow] = $rows;
        #[allow(long_running_const_eval)] // it ends: one pass over a fixed table
        const LEN: usize = {
            let mut writer = $crate::text::Writer::<0>::new();
            writer.rows(__ROWS);
            writer.len()
        };
        #[allow(long_running_const_eval)] // as above
        const BYTES: [u8; LEN] = {
            let mut writer = $crate::text::Writer::<LEN>::new();
            writer.rows(__ROWS);
            writer.finish()
        };
        $crate::text::str_of(&BYTES)
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[CatalogueRow] = &[
        CatalogueRow {
            domain: "",
            op: "Add",
            since: 7,
            until: 14,
            types: &[("T", DType::F32.mask() | DType::I64.mask())],
            digest: 0,
            limits: &[],
        },
        CatalogueRow {
            domain: "x.y",
            op: "Foo",
            since: 1,
            until: 1,
            types: &[],
            digest: 0xab,
            limits: &[("rank", "0..4")],
        },
    ];
    const TEXT: &str = catalogue!(ROWS);

    #[test]
    fn rows_are_lines_of_tabs() {
        assert_eq!(TEXT, "-\tAdd\t7\t14\tT=f32,i64\t-\nx.y\tFoo\t1\t1\t-\t00000000000000ab\trank=0..4\n");
    }

    #[test]
    fn json_strings_are_escaped() {
        let mut writer = Writer::<13>::new();
        writer.json("a\"\\\n");
        assert_eq!(str::from_utf8(&writer.finish()), Ok("\"a\\\"\\\\\\u000a\""));
    }
}
