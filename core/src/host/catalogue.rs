//! The operator catalogue of a plugin: which operators it runs, in which versions, for which types.
//!
//! It is text in the library's section `.ortcat` (`__TEXT,__ortcat` on Mach-O), at most 4 MiB, one row a line, fields
//! separated by tabs, `-` for an empty one:
//!
//! `domain op since until T=f32,f16;T1=i64 digest key=value…`
//!
//! `since` to `until` is a closed range of since-versions; the types are sets per type variable of the operator's schema;
//! the digest is that of the schema at `until`, in hexadecimal; every further field is a limit (rank, attribute).
//! A row says what an EP may claim, never that it will: the EP is asked for each node.

use super::codes;
use super::error::{HostError, Result};
use super::manifest::parse_hex;

/// Largest catalogue, in bytes.
pub const CATALOGUE_LIMIT: u64 = 4 << 20;

/// One row of a catalogue.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CatalogueRow {
    /// Domain; empty is the standard one.
    pub domain: String,
    /// Operator.
    pub op: String,
    /// First since-version.
    pub since: u32,
    /// Last since-version.
    pub until: u32,
    /// Type variable and the names of its types; types that this core does not know are kept as they are.
    pub types: Vec<(String, Vec<String>)>,
    /// Digest of the schema at `until`, if the plugin states it.
    pub digest: Option<u64>,
    /// Limits: key and value.
    pub limits: Vec<(String, String)>,
}

/// Reads a catalogue; the error names the row.
pub fn parse(bytes: &[u8]) -> Result<Vec<CatalogueRow>> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| HostError::new(codes::CATALOGUE_INVALID, format!("the catalogue is not UTF-8 ({e})")))?;
    text.lines()
        .enumerate()
        .map(|(line, row)| {
            parse_row(row).map_err(|what| {
                let shown: String = row.chars().take(120).collect();
                HostError::new(
                    codes::CATALOGUE_INVALID,
                    format!("row {} of the catalogue: {what}: {shown:?}", line + 1),
                )
            })
        })
        .collect()
}

fn parse_row(row: &str) -> std::result::Result<CatalogueRow, &'static str> {
    let mut fields = row.split('\t');
    let mut next = |what| fields.next().filter(|f| !f.is_empty()).ok_or(what);
    let domain = empty_or(next("no domain")?).to_owned();
    let op = next("no operator")?.to_owned();
    let since = version(next("no first version")?)?;
    let until = version(next("no last version")?)?;
    if op == "-" || since == 0 || since > until {
        return Err("no operator, or its range of versions is empty");
    }
    let types = types(empty_or(next("no types")?))?;
    let digest = match next("no digest")? {
        "-" => None,
        text => Some(parse_hex(text).ok_or("the digest is not hexadecimal")?),
    };
    let limits = fields.map(pair).collect::<std::result::Result<_, _>>()?;
    Ok(CatalogueRow { domain, op, since, until, types, digest, limits })
}

fn empty_or(field: &str) -> &str {
    if field == "-" { "" } else { field }
}

fn version(field: &str) -> std::result::Result<u32, &'static str> {
    field.parse().map_err(|_| "a version is not a number")
}

fn pair(field: &str) -> std::result::Result<(String, String), &'static str> {
    let (key, value) = field.split_once('=').ok_or("a field is not key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn types(field: &str) -> std::result::Result<Vec<(String, Vec<String>)>, &'static str> {
    field
        .split(';')
        .filter(|set| !set.is_empty())
        .map(|set| {
            let (variable, names) = set.split_once('=').ok_or("a set of types is not T=type,…")?;
            if variable.is_empty() || names.split(',').any(str::is_empty) {
                return Err("a set of types is empty");
            }
            Ok((variable.to_owned(), names.split(',').map(str::to_owned).collect()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_all_their_fields() {
        let rows =
            parse(b"-\tAdd\t7\t14\tT=f32,i64;T1=bool\t-\nx.y\tFoo\t1\t1\t-\t00000000000000ab\trank=0..4\taxis=0\n")
                .expect("two rows");
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].domain.as_str(), rows[0].op.as_str(), rows[0].since, rows[0].until), ("", "Add", 7, 14));
        assert_eq!(rows[0].types[0], ("T".into(), vec!["f32".into(), "i64".into()]));
        assert_eq!((rows[0].digest, rows[1].digest), (None, Some(0xab)));
        assert_eq!(rows[1].limits, [("rank".into(), "0..4".into()), ("axis".into(), "0".into())]);
        assert_eq!(parse(b"").expect("an empty one"), []);
    }

    #[test]
    fn broken_rows_are_named() {
        let cases = [
            ("\n", "no domain"),
            ("-\tAdd\n", "no first version"),
            ("-\tAdd\tx\t14\t-\t-\n", "not a number"),
            ("-\tAdd\t14\t7\t-\t-\n", "empty"),
            ("-\t-\t1\t1\t-\t-\n", "no operator"),
            ("-\tAdd\t7\t14\tT\t-\n", "T=type"),
            ("-\tAdd\t7\t14\tT=f32,,i8\t-\n", "set of types"),
            ("-\tAdd\t7\t14\t-\txyz\n", "hexadecimal"),
            ("-\tAdd\t7\t14\t-\t-\trank\n", "key=value"),
            ("-\tAdd\t7\t14\t-\n", "no digest"),
        ];
        for (row, word) in cases {
            let error = parse(format!("-\tOk\t1\t1\t-\t-\n{row}").as_bytes()).expect_err(row);
            assert!(error.sentence.contains(word) && error.sentence.contains("row 2"), "{row:?}: {error}");
        }
        assert_eq!(parse(&[0xff]).expect_err("no text").code, codes::CATALOGUE_INVALID);
    }
}
