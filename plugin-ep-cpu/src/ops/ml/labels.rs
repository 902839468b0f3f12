//! Names of classes: numbers or texts.

use ortolan_ep_kit::{Args, Fault, Item, NodeView, Texts};

/// One for each class.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Labels {
    Ints(Vec<i64>),
    Texts(Vec<Box<str>>),
}

impl Labels {
    /// From whichever of the two attributes has any; the classes' own numbers if neither has.
    pub fn parse(node: &NodeView<'_>, ints: &str, texts: &str) -> Labels {
        let texts: Vec<Box<str>> = node.texts(texts).map(|all| all.map(Into::into).collect()).unwrap_or_default();
        if !texts.is_empty() {
            return Labels::Texts(texts);
        }
        Labels::Ints(node.long_ints(ints).unwrap_or_default().into_owned())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Labels::Ints(all) => all.len(),
            Labels::Texts(all) => all.len(),
        }
    }

    /// Writes the label of each row. A class without a label is its number, or no text; a row without a class is 0, or no text.
    pub fn write(&self, args: &mut Args<'_>, output: usize, classes: &[u32]) -> Result<(), Fault> {
        match self {
            Labels::Ints(all) => {
                for (to, &class) in args.output::<i64>(output).iter_mut().zip(classes) {
                    *to = match class {
                        NO_CLASS => 0,
                        class => all.get(class as usize).copied().unwrap_or(class.into()),
                    };
                }
                Ok(())
            }
            Labels::Texts(all) => {
                let text = |&class: &u32| all.get(class as usize).cloned().unwrap_or_default();
                let texts: Vec<Box<str>> = classes.iter().map(text).collect();
                let dims = [i64::try_from(texts.len()).unwrap_or(i64::MAX)];
                args.give(output, Item::Texts(Texts { dims: dims.as_slice().into(), texts }))
            }
        }
    }
}

/// What [`Labels::write`] takes for a row that has none of the classes.
pub(super) const NO_CLASS: u32 = u32::MAX;
