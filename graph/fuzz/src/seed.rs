//! Makes models of the text seeds, for the target that reads models: `seed OUT TEXT...`.

use ortolan_graph::{text, write};

fn main() {
    let mut args = std::env::args_os().skip(1);
    let out = std::path::PathBuf::from(args.next().expect("a folder to write to"));
    for path in args {
        let text = std::fs::read_to_string(&path).expect("a text seed");
        let graph = text::from_text(&text).expect("seeds are good");
        let name = std::path::Path::new(&path).file_stem().expect("a file").to_owned();
        // A graph whose nodes are kept in versions of several opsets has no file.
        if let Ok(bytes) = write::to_bytes(&graph) {
            std::fs::write(out.join(name), bytes).expect("the folder is there");
        }
    }
}
