//! The codes that the command line itself reports, and the one list of all codes for `explain`.
//!
//! A code is stable: scripts may compare it. What the other crates report keeps their codes.

use ortolan::codes::{Area, Code, CodeInfo};

macro_rules! codes {
    ($($id:ident = $name:literal, $title:literal, $means:literal, $remedy:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $means)]
            pub const $id: Code =
                Code::new(&CodeInfo { name: $name, title: $title, means: $means, remedy: $remedy, since: "0.1.0" });
        )*
        /// All of them.
        pub const AREA: Area = Area { title: "The command line", codes: &[$($id),*] };
    };
}

codes! {
    ARGUMENT = "argument", "Arguments contradict each other",
        "The same thing was given twice on the command line, in different ways.",
        "Give it once.";
    INPUT_FILE = "input-file", "The input file cannot be used",
        "The contents of a file given with --input are not what its name promises: it is damaged, cut off or of another format.",
        "Write the file anew, for example with numpy.save for .npy.";
    INPUT_FORM = "input-form", "This kind of file does not fit this input",
        "A file given with --input has a form that cannot carry the value that the input takes.",
        "Use .npy or .pb for tensors, .json for sequences, optionals and maps, .png or .pgm for pictures.";
    OUTPUT_FILE = "output-file", "A result cannot be written",
        "A file or folder for results cannot be created or written.",
        "Name a folder that this user may write to, with space left.";
    CODE_UNKNOWN = "code-unknown", "There is no such code",
        "`ortolan explain` was asked about a word that no part of Ortolan reports as a code.",
        "Copy the word in square brackets at the end of an error; the sentence lists the nearest ones.";
    EP_LEFT_OUT = "ep-left-out", "The option is for an EP that does not take part",
        "An option was given with --ep-option for an EP that is not among those of this session.",
        "Correct the name before the dot, or add the EP with --ep.";
}
