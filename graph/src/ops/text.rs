//! Strings.

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{AttrValue, DType};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new("RegexFullMatch", regex_full_match),
    OpDef::new("StringConcat", string_concat),
    OpDef::new("StringNormalizer", string_normalizer),
    OpDef::new("StringSplit", string_split),
    OpDef::new("TfIdfVectorizer", tf_idf),
];

fn regex_full_match(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.dims(0);
    cx.set_tensor(0, DType::Bool, dims);
    Ok(())
}

fn string_concat(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.broadcast_inputs(2)?;
    cx.set_tensor(0, DType::String, dims);
    Ok(())
}

/// [c] or [1, c], with stop words taken out; the count is known only without stop words.
fn string_normalizer(cx: &mut InferCx<'_>) -> Result<()> {
    cx.need_rank(0, "X", 1..=2)?;
    let stops = matches!(cx.attr("stopwords"), Some(AttrValue::Strings(words)) if !words.is_empty());
    let dims = match cx.dims(0) {
        Some(mut x) => {
            let last = x.len() - 1;
            if last == 1 {
                let one = cx.int(1);
                cx.same_dim(x[0], one, "the first dim of X and 1")?;
            }
            if stops {
                x[last] = cx.fresh_dim(0, last);
            }
            Some(x)
        }
        None => None,
    };
    cx.set_tensor(0, DType::String, dims);
    Ok(())
}

fn string_split(cx: &mut InferCx<'_>) -> Result<()> {
    let dims = cx.dims(0);
    let longest = cx.fresh_dim(0, dims.as_ref().map_or(0, |d| d.len()));
    cx.set_tensor(0, DType::String, dims.clone().map(|d| d.into_iter().chain([longest]).collect()));
    cx.set_tensor(1, DType::I64, dims);
    Ok(())
}

/// One number for each n-gram: as many as the largest index in `ngram_indexes` says.
fn tf_idf(cx: &mut InferCx<'_>) -> Result<()> {
    cx.need_rank(0, "X", 1..=2)?;
    let indexes = cx.attr_ints("ngram_indexes");
    let width = match indexes.as_ref().map(|i| i.iter().copied().max()) {
        Some(Some(largest)) => cx.int(largest.saturating_add(1)),
        Some(None) => return Err(cx.fail("ngram_indexes is empty")),
        // A list so large that it became a constant.
        None => cx.fresh_dim(0, 0),
    };
    let dims = cx.dims(0).map(|x| x[..x.len() - 1].iter().copied().chain([width]).collect());
    cx.set_tensor(0, DType::F32, dims);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn shapes() {
        check(&[
            ("StringConcat", "string[n,1] string[3]", "", "string[n,3]"),
            ("StringSplit", "string[n]", "", "string[n,?] int64[n]"),
            ("StringNormalizer", "string[1,c]", "", "string[1,c]"),
            ("StringNormalizer", "string[2,c]", "", "!the first dim of X and 1"),
            ("RegexFullMatch", "string[n]", "pattern='a'", "bool[n]"),
            ("TfIdfVectorizer", "int64[n,4]", "ngram_indexes=[0,3,1]", "float[n,4]"),
        ]);
    }
}
