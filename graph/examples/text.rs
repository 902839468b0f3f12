//! Prints a model in the text form, read back and printed once more to show that nothing is lost.

use ortolan_graph::text::{from_text, to_text};
use ortolan_graph::{LoadOptions, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let text = to_text(&load(&path, &LoadOptions::default())?);
        if to_text(&from_text(&text)?) != text {
            return Err(format!("{path}: the text does not read back as it was").into());
        }
        print!("{text}");
    }
    Ok(())
}
