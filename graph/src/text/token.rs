//! One line of the text form, word by word.

use crate::error::{Code, Error, Result};

/// A reader over one line.
pub(super) struct Line<'t> {
    rest: &'t str,
    number: usize,
    depth: u32,
}

/// Parentheses inside each other; what the printer writes never comes near.
const MAX_DEPTH: u32 = 64;

impl<'t> Line<'t> {
    pub(super) fn new(text: &'t str, number: usize) -> Line<'t> {
        Line { rest: text.trim_start(), number, depth: 0 }
    }

    /// An error that names the line and what stands there.
    pub(super) fn fail<T>(&self, expected: &str) -> Result<T> {
        let found: String = self.rest.chars().take(30).collect();
        let found = if found.is_empty() { "the end of the line".to_owned() } else { format!("'{found}'") };
        Err(Error::new(Code::Text, format!("line {}: expected {expected}, found {found}", self.number)))
    }

    /// The same without a look at the rest.
    pub(super) fn wrong<T>(&self, what: impl std::fmt::Display) -> Result<T> {
        Err(Error::new(Code::Text, format!("line {}: {what}", self.number)))
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.at_end() { Ok(()) } else { self.fail("the end of the line") }
    }

    /// Whether `text` stands here.
    pub(super) fn peek(&self, text: &str) -> bool {
        self.rest.starts_with(text)
    }

    /// Takes `text` if it stands here.
    pub(super) fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<()> {
        if self.take(text) { Ok(()) } else { self.fail(&format!("'{text}'")) }
    }

    /// Takes `text` if it stands here as a whole word.
    pub(super) fn take_word(&mut self, text: &str) -> bool {
        let whole = self.rest.strip_prefix(text).is_some_and(|r| !r.starts_with(is_word));
        whole && self.take(text)
    }

    /// The next word: letters, digits, `_`, `.`; quoted ones may hold anything.
    pub(super) fn word(&mut self) -> Result<String> {
        if self.rest.starts_with('"') {
            return self.text();
        }
        let len = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        if len == 0 {
            return self.fail("a word");
        }
        let (word, rest) = self.rest.split_at(len);
        self.rest = rest.trim_start();
        Ok(word.to_owned())
    }

    /// A whole number after a prefix, as in `%3`.
    pub(super) fn number_after(&mut self, prefix: &str) -> Result<Option<usize>> {
        let Some(rest) = self.rest.strip_prefix(prefix).filter(|r| r.starts_with(|c: char| c.is_ascii_digit())) else {
            return Ok(None);
        };
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, rest) = rest.split_at(len);
        let Ok(n) = digits.parse() else { return self.fail("a smaller number") };
        self.rest = rest.trim_start();
        Ok(Some(n))
    }

    /// An integer, if one stands here.
    pub(super) fn int(&mut self) -> Option<i64> {
        let len = self.rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(self.rest.len());
        let v = self.rest[..len].parse().ok()?;
        self.rest = self.rest[len..].trim_start();
        Some(v)
    }

    pub(super) fn need_int(&mut self) -> Result<i64> {
        match self.int() {
            Some(v) => Ok(v),
            None => self.fail("an integer"),
        }
    }

    /// Everything up to a blank, comma or bracket.
    pub(super) fn atom(&mut self) -> &'t str {
        let len = self.rest.find(|c: char| c.is_whitespace() || ",]()=".contains(c)).unwrap_or(self.rest.len());
        let (atom, rest) = self.rest.split_at(len);
        self.rest = rest.trim_start();
        atom
    }

    /// A number as attributes write it, ending in `f`.
    pub(super) fn float(&mut self) -> Result<f32> {
        let atom = self.atom();
        let bits =
            atom.strip_prefix("0x").and_then(|a| a.strip_suffix('f')).and_then(|a| u32::from_str_radix(a, 16).ok());
        let plain = atom.strip_suffix('f').and_then(|a| a.parse().ok());
        match bits.map(f32::from_bits).or(plain) {
            Some(v) => Ok(v),
            None => self.wrong(format!("'{atom}' is not a number")),
        }
    }

    /// Whether a number with `f` stands here, and not an integer.
    pub(super) fn is_float(&self) -> bool {
        let len = self.rest.find(|c: char| c.is_whitespace() || ",]()=".contains(c)).unwrap_or(self.rest.len());
        self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '-') && self.rest[..len].ends_with('f')
    }

    /// Quoted text.
    pub(super) fn text(&mut self) -> Result<String> {
        let raw = self.bytes()?;
        String::from_utf8(raw).or_else(|_| self.wrong("the text is not UTF-8"))
    }

    /// Quoted bytes.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>> {
        let Some(inner) = self.rest.strip_prefix('"') else { return self.fail("quoted text") };
        let mut out = Vec::new();
        let mut chars = inner.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = inner[at + 1..].trim_start();
                    return Ok(out);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push(b'\n'),
                    Some('x') => {
                        let hex: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                        match u8::from_str_radix(&hex, 16) {
                            Ok(b) => out.push(b),
                            Err(_) => return self.wrong(format!("'\\x{hex}' is not a byte")),
                        }
                    }
                    Some(c @ ('"' | '\\')) => out.push(c as u8),
                    _ => return self.wrong("'\\' is followed by none of n, x, \" and \\"),
                },
                c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        self.fail("the end of the quoted text")
    }

    /// `[a,b,…]`, the opening bracket already taken.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::new();
        if self.take("]") {
            return Ok(all);
        }
        loop {
            all.push(item(self)?);
            if self.take("]") {
                return Ok(all);
            }
            self.expect(",")?;
        }
    }

    /// Runs something that may nest.
    pub(super) fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return self.wrong(format!("parentheses are nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let done = f(self);
        self.depth -= 1;
        done
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}
