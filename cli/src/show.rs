//! Outputs in a form that a person understands: type, range, the best classes with their labels, the first elements.

use std::fmt::Write;

use ortolan::value::{Tensor, Value};
use serde::Serialize;
use serde_json::Value as Json;

use crate::numbers::{self, Number};

/// Tensors with at most this many elements are given in full in JSON.
const FULL: usize = 64;
/// Elements that are shown of tensors that are no class scores.
const FIRST: usize = 8;
/// Rows of class scores that are shown.
const ROWS: usize = 8;
/// Most classes that there are names for; longer rows are no class scores.
const CLASSES: usize = 1 << 20;
/// Classes that are shown of each row.
const BEST: usize = 5;

/// What is shown of one output.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// Name of the output.
    pub name: String,
    /// `tensor`, `sequence`, `optional` or `map`.
    pub kind: &'static str,
    /// Element type, of a tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<&'static str>,
    /// Sizes, of a tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<i64>>,
    /// Range and mean, of a tensor of real numbers that is not empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
    /// The best classes of each row, of class scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<Vec<Vec<Score>>>,
    /// The value in the form of `.json` files, if it is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// The file that it was written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip)]
    text: String,
}

/// Range and mean of the finite elements, and how many are not finite.
#[derive(Debug, Serialize, PartialEq)]
pub struct Stats {
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub mean: Option<f64>,
    pub nan: usize,
    pub infinite: usize,
}

/// One class and its score.
#[derive(Debug, Serialize, PartialEq)]
pub struct Score {
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub score: f64,
    #[serde(skip)]
    pub is_share: bool,
}

/// Labels of classes from a model's metadata entry `labels`: a JSON list of texts, or texts between commas.
pub fn labels(metadata: &[(String, String)]) -> Vec<String> {
    let Some((_, text)) = metadata.iter().find(|(key, _)| key == "labels") else { return Vec::new() };
    match serde_json::from_str::<Vec<Json>>(text) {
        Ok(list) => list.iter().map(|j| j.as_str().map_or_else(|| j.to_string(), str::to_owned)).collect(),
        Err(_) => text.split(',').map(|label| label.trim().to_owned()).collect(),
    }
}

/// Looks at an output. The error is a sentence.
pub fn look(name: &str, value: &Value, labels: &[String]) -> Result<Shown, String> {
    let value = value.to_host().map_err(|e| e.to_string())?;
    let mut shown = Shown {
        name: name.to_owned(),
        kind: value.kind_name(),
        dtype: None,
        shape: None,
        stats: None,
        top: None,
        data: full(&value),
        file: None,
        text: String::new(),
    };
    match &value {
        Value::Tensor(tensor) => shown.tensor(tensor, labels)?,
        other => shown.other(other, labels)?,
    }
    Ok(shown)
}

/// The value in the form of `.json` files, if it has few elements. Numbers that JSON lacks are null there.
fn full(value: &Value) -> Option<Json> {
    fn count(value: &Value) -> usize {
        match value {
            Value::Tensor(t) => t.elements(),
            Value::Sequence(items) => items.iter().map(count).sum::<usize>() + items.len(),
            Value::Optional(held) => held.as_deref().map_or(0, count),
            Value::Map(map) => count(&map.values),
        }
    }
    fn json(value: &Value) -> Option<Json> {
        Some(match value {
            Value::Tensor(t) => numbers::iter(t).ok()?.map(|n| element(&n)).collect(),
            Value::Sequence(items) => items.iter().map(json).collect::<Option<Vec<_>>>()?.into(),
            Value::Optional(held) => held.as_deref().map_or(Some(Json::Null), json)?,
            Value::Map(map) => {
                let keys = numbers::iter(&map.keys).ok()?.map(|k| key(&k));
                let Json::Array(values) = json(&map.values)? else { return None };
                Json::Object(keys.zip(values).collect())
            }
        })
    }
    (count(value) <= FULL).then(|| json(value)).flatten()
}

fn element(number: &Number<'_>) -> Json {
    match *number {
        Number::Int(n) => {
            i64::try_from(n).map(Json::from).or_else(|_| u64::try_from(n).map(Json::from)).unwrap_or(Json::Null)
        }
        Number::Bool(b) => Json::from(b),
        Number::Text(text) => Json::from(text),
        Number::Float(x) => Json::from(x),
        // The shortest decimal that is this 32-bit number, not the digits of its 64-bit copy.
        Number::Float32(x) => format!("{:?}", x as f32).parse::<f64>().map_or(Json::Null, Json::from),
        Number::Complex(re, im) => Json::from(vec![re, im]),
    }
}

fn key(number: &Number<'_>) -> String {
    match number {
        Number::Text(text) => (*text).to_owned(),
        other => other.to_string(),
    }
}

impl Shown {
    /// Lines for a person; the first begins with the name.
    pub fn text(&self) -> String {
        let file = self.file.as_ref().map_or(String::new(), |file| format!("\n    in {file}"));
        format!("{}: {}{file}\n", self.name, self.text)
    }

    fn tensor(&mut self, tensor: &Tensor, labels: &[String]) -> Result<(), String> {
        self.dtype = Some(tensor.dtype().name());
        self.shape = Some(tensor.shape().to_vec());
        self.stats = stats(tensor)?;
        self.top = top(tensor, labels)?;
        let mut ty = format!("{} {:?}", tensor.dtype(), tensor.shape()).replace(", ", ",");
        if let Some(stats) = &self.stats {
            let _ = write!(ty, "{}", stats.text());
        }
        self.text = match &self.top {
            Some(rows) if rows.len() == 1 => format!("{}\n    {ty}", row(&rows[0])),
            Some(rows) => {
                let lines = rows.iter().enumerate().map(|(i, r)| format!("\n    row {i}: {}", row(r)));
                format!("{ty}{}", lines.collect::<String>())
            }
            None if tensor.elements() == 0 => format!("{ty}, empty"),
            None => {
                let mut list: Vec<String> = numbers::iter(tensor)?.take(FIRST).map(|n| short(&n)).collect();
                if tensor.elements() > FIRST {
                    list.push("…".to_owned());
                }
                format!("{ty}\n    {}", list.join("  "))
            }
        };
        Ok(())
    }

    fn other(&mut self, value: &Value, labels: &[String]) -> Result<(), String> {
        let inner = |value: &Value| look("", value, labels).map(|s| s.text.replace('\n', "\n    "));
        self.text = match value {
            Value::Optional(None) => "nothing (an optional that is absent)".to_owned(),
            Value::Optional(Some(held)) => format!("optional, {}", inner(held)?),
            Value::Map(map) => format!("map of {}: {}", map.keys.elements(), pairs(map)?),
            Value::Sequence(items) => {
                let mut text = format!("sequence of {}", items.len());
                for (i, item) in items.iter().take(ROWS).enumerate() {
                    let _ = write!(text, "\n    item {i}: {}", inner(item)?);
                }
                text + if items.len() > ROWS { "\n    …" } else { "" }
            }
            Value::Tensor(_) => String::new(),
        };
        Ok(())
    }
}

/// The pairs of a map, best first if its values are real numbers.
fn pairs(map: &ortolan::value::Map) -> Result<String, String> {
    let keys = numbers::iter(&map.keys)?;
    let Value::Tensor(values) = &map.values else {
        return Ok(keys.take(FIRST).map(|k| key(&k)).collect::<Vec<_>>().join(", "));
    };
    let mut pairs: Vec<(String, Number<'_>)> = keys.map(|k| key(&k)).zip(numbers::iter(values)?).collect();
    pairs.sort_by(|a, b| b.1.real().partial_cmp(&a.1.real()).unwrap_or(std::cmp::Ordering::Equal));
    let more = if pairs.len() > FIRST { ", …" } else { "" };
    let list: Vec<String> = pairs.iter().take(FIRST).map(|(k, v)| format!("{k} ({})", short(v))).collect();
    Ok(list.join(", ") + more)
}

fn stats(tensor: &Tensor) -> Result<Option<Stats>, String> {
    let mut stats = Stats { min: None, max: None, mean: None, nan: 0, infinite: 0 };
    let (mut sum, mut count) = (0.0, 0usize);
    for number in numbers::iter(tensor)? {
        let Some(x) = number.real() else { return Ok(None) };
        if x.is_nan() {
            stats.nan += 1;
        } else if x.is_infinite() {
            stats.infinite += 1;
        } else {
            stats.min = Some(stats.min.map_or(x, |m| m.min(x)));
            stats.max = Some(stats.max.map_or(x, |m| m.max(x)));
            sum += x;
            count += 1;
        }
    }
    stats.mean = (count > 0).then(|| sum / count as f64);
    Ok((tensor.elements() > 0).then_some(stats))
}

impl Stats {
    fn text(&self) -> String {
        let mut text = match (self.min, self.max, self.mean) {
            (Some(min), Some(max), Some(mean)) if min < max => {
                format!(", {} to {}, mean {}", decimal(min), decimal(max), decimal(mean))
            }
            _ => String::new(),
        };
        for (count, what) in [(self.nan, "NaN"), (self.infinite, "infinite")] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text
    }
}

/// The best classes of each row if the last axis is one of class scores: probabilities, or as many floats as labels.
fn top(tensor: &Tensor, labels: &[String]) -> Result<Option<Vec<Vec<Score>>>, String> {
    let (Some((&classes, outer)), true) = (tensor.shape().split_last(), tensor.dtype().is_float()) else {
        return Ok(None);
    };
    let classes = usize::try_from(classes).unwrap_or(0);
    let rows: i64 = outer.iter().product();
    if !(2..=CLASSES).contains(&classes) || !(1..=ROWS as i64).contains(&rows) {
        return Ok(None);
    }
    let scores: Vec<f64> = numbers::iter(tensor)?.map(|n| n.real().unwrap_or(f64::NAN)).collect();
    let is_share = scores.chunks(classes).all(is_distribution);
    let labels = if labels.len() == classes { labels } else { &[] };
    if (labels.is_empty() && !is_share) || scores.iter().any(|s| s.is_nan()) {
        return Ok(None);
    }
    let best = |row: &[f64]| {
        let mut order: Vec<usize> = (0..classes).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let score = |&index: &usize| Score { index, label: labels.get(index).cloned(), score: row[index], is_share };
        order.iter().take(BEST).map(score).collect()
    };
    Ok(Some(scores.chunks(classes).map(best).collect()))
}

fn is_distribution(row: &[f64]) -> bool {
    let sum: f64 = row.iter().sum();
    row.iter().all(|&p| (0.0..=1.001).contains(&p)) && (sum - 1.0).abs() < 5e-3
}

fn row(scores: &[Score]) -> String {
    let one = |s: &Score| {
        let name = s.label.clone().unwrap_or_else(|| s.index.to_string());
        if s.is_share { format!("{name} ({:.1} %)", s.score * 100.0) } else { format!("{name} ({})", decimal(s.score)) }
    };
    scores.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn short(number: &Number<'_>) -> String {
    match number {
        Number::Float(x) | Number::Float32(x) => decimal(*x),
        Number::Text(text) if text.chars().count() > 40 => {
            let start: String = text.chars().take(40).collect();
            format!("{:?}", start + "…")
        }
        other => other.to_string(),
    }
}

/// Four significant digits.
pub fn decimal(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    if !(1e-4..1e6).contains(&size) {
        return format!("{x:.3e}");
    }
    let digits = (3 - size.log10().floor() as i32).clamp(0, 8) as usize;
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[i64], data: &[f32]) -> Value {
        Tensor::from_slice(shape, data).unwrap().into()
    }

    fn text(value: &Value, labels: &str) -> String {
        let metadata = [("labels".to_owned(), labels.to_owned())];
        let labels = if labels.is_empty() { Vec::new() } else { super::labels(&metadata) };
        look("y", value, &labels).unwrap().text()
    }

    #[test]
    fn probabilities_are_named_best_first() {
        let value = floats(&[1, 3], &[0.004, 0.993, 0.003]);
        assert_eq!(
            text(&value, ""),
            "y: 1 (99.3 %), 0 (0.4 %), 2 (0.3 %)\n    float [1,3], 0.003 to 0.993, mean 0.3333\n"
        );
        assert!(text(&value, "[\"cat\", \"dog\", \"owl\"]").starts_with("y: dog (99.3 %), cat (0.4 %), owl (0.3 %)\n"));
        assert!(text(&value, "a, b,c").starts_with("y: b (99.3 %)"));
        assert!(text(&value, "a,b").starts_with("y: 1 (99.3 %)"), "labels of another length say nothing");
        let batch = floats(&[2, 2], &[0.25, 0.75, 1.0, 0.0]);
        assert_eq!(
            text(&batch, ""),
            "y: float [2,2], 0 to 1, mean 0.5\n    row 0: 1 (75.0 %), 0 (25.0 %)\n    row 1: 0 (100.0 %), 1 (0.0 %)\n"
        );
    }

    #[test]
    fn scores_need_labels_to_be_ranked() {
        let value = floats(&[3], &[2.0, -1.0, 8.5]);
        assert_eq!(text(&value, ""), "y: float [3], -1 to 8.5, mean 3.167\n    2  -1  8.5\n");
        assert!(text(&value, "a,b,c").starts_with("y: c (8.5), a (2), b (-1)\n"));
    }

    #[test]
    fn other_values_are_described() {
        let cases: &[(Value, &str)] = &[
            (floats(&[0, 4], &[]), "y: float [0,4], empty\n"),
            (floats(&[2], &[f32::NAN, 1.0]), "y: float [2], 1 NaN\n    NaN  1\n"),
            (
                Value::from((0i64..20).collect::<Vec<_>>()),
                "y: int64 [20], 0 to 19, mean 9.5\n    0  1  2  3  4  5  6  7  …\n",
            ),
            (Tensor::strings(&[2], &["a\"", ""]).unwrap().into(), "y: string [2]\n    \"a\\\"\"  \"\"\n"),
            (Value::Optional(None), "y: nothing (an optional that is absent)\n"),
            (Value::sequence([]), "y: sequence of 0\n"),
            (Value::sequence([Value::from(vec![true])]), "y: sequence of 1\n    item 0: bool [1]\n        true\n"),
        ];
        for (value, want) in cases {
            assert_eq!(text(value, ""), *want);
        }
        let keys = Tensor::strings(&[2], &["no", "yes"]).unwrap();
        let map = Value::map(keys, Value::from(vec![0.25f32, 0.75])).unwrap();
        assert_eq!(text(&map, ""), "y: map of 2: yes (0.75), no (0.25)\n");
        let shown = look("y", &map, &[]).unwrap();
        assert_eq!(serde_json::to_string(&shown.data).unwrap(), r#"{"no":0.25,"yes":0.75}"#);
    }

    #[test]
    fn json_has_small_values_in_full() {
        let shown = look("y", &floats(&[2], &[0.1, f32::INFINITY]), &[]).unwrap();
        assert_eq!(
            serde_json::to_string(&shown).unwrap(),
            r#"{"name":"y","kind":"tensor","dtype":"float","shape":[2],"stats":{"min":0.10000000149011612,"max":0.10000000149011612,"mean":0.10000000149011612,"nan":0,"infinite":1},"data":[0.1,null]}"#
        );
        assert!(look("y", &floats(&[65], &[0.0; 65]), &[]).unwrap().data.is_none());
    }

    #[test]
    fn decimals_have_four_digits() {
        for (x, want) in [
            (0.0, "0"),
            (-0.5, "-0.5"),
            (1234.56, "1235"),
            (123456.7, "123457"),
            (1.23456e7, "1.235e7"),
            (0.000_123_456, "0.0001235"),
            (1e-9, "1.000e-9"),
            (f64::INFINITY, "inf"),
            (100.0, "100"),
            (99.99999, "100"),
        ] {
            assert_eq!(decimal(x), want);
        }
    }
}
