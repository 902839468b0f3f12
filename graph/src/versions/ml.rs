//! Version steps of `ai.onnx.ml`.

use super::build::stuck;
use super::{Row, Step, Upgrade, adapter, kept, same};
use crate::error::Result;
use crate::ir::{AttrValue, DType};

pub(super) const ROWS: &[Row] = &[
    row("LabelEncoder", &[adapter(2, keys_and_values), same(4)]),
    row("TreeEnsembleClassifier", TREES),
    row("TreeEnsembleRegressor", TREES),
];

const fn row(op: &'static str, steps: &'static [Step]) -> Row {
    Row { domain: "ai.onnx.ml", op, steps }
}

/// `TreeEnsemble` has another encoding of the trees; the old operators are complete in themselves.
const TREES: &[Step] = &[same(3), kept(5)];

/// Version 1 has one list of words; numbers are places in it, and the input's type says which way it goes.
fn keys_and_values(cx: &mut dyn Upgrade) -> Result<()> {
    let Some(AttrValue::Strings(words)) = cx.view().attr("classes_strings").cloned() else {
        return stuck("classes_strings is no list of words");
    };
    let (from, to) = match cx.view().dtype(0) {
        Some(DType::String) => ("keys_strings", "values_int64s"),
        Some(DType::I64) => ("values_strings", "keys_int64s"),
        _ => return stuck("the input has to be known as words or numbers"),
    };
    cx.set_attr(from, AttrValue::Strings(words.clone()));
    cx.set_attr(to, AttrValue::Ints((0i64..).zip(words.iter()).map(|(i, _)| i).collect()));
    cx.remove_attr("classes_strings");
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::versions::testing::{check, check_holds};

    #[test]
    fn label_lists_become_tables() {
        let rest = "default_int64=-1 default_string='_Unused'";
        check(&[
            (
                "ai.onnx.ml::LabelEncoder-1",
                "string[2]",
                "classes_strings=['a','b']",
                &format!("LabelEncoder-4(v0 {rest} keys_strings=['a','b'] values_int64s=[0,1])"),
            ),
            (
                "ai.onnx.ml::LabelEncoder-1",
                "int64[2]",
                "classes_strings=['a','b']",
                &format!("LabelEncoder-4(v0 {rest} keys_int64s=[0,1] values_strings=['a','b'])"),
            ),
            (
                "ai.onnx.ml::LabelEncoder-1",
                "int64",
                "classes_strings=['a']",
                &format!("LabelEncoder-4(v0 {rest} keys_int64s=[0] values_strings=['a'])"),
            ),
        ]);
    }

    #[test]
    fn deprecated_trees_stay() {
        check(&[(
            "ai.onnx.ml::TreeEnsembleRegressor-1",
            "float[2,3]",
            "",
            "TreeEnsembleRegressor-3(v0 aggregate_function='SUM' post_transform='NONE')",
        )]);
        check_holds(&[
            ("ai.onnx.ml::TreeEnsembleRegressor-3", "float[2,3]", "", "1.."),
            ("ai.onnx.ml::LabelEncoder-4", "string[2]", "keys_strings=['a'] values_int64s=[1]", "2.."),
        ]);
    }
}
