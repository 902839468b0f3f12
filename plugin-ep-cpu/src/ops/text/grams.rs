//! Counts runs of words that stand in a list, weighted.

use ortolan_ep_kit::{Args, Fault, Item, NodeView, Op, Reject, size};
use std::collections::HashMap;

/// The list of runs, by length, and what a run counts for.
pub(super) struct Grams {
    /// Number of each word that stands in a run.
    words: HashMap<Word, u32>,
    /// Column of each run, by its words' numbers.
    runs: HashMap<Vec<u32>, usize>,
    shortest: usize,
    longest: usize,
    skips: usize,
    columns: usize,
    mode: Mode,
    /// Of columns; those that are not here count 1.
    weights: HashMap<usize, f32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Word {
    Int(i64),
    Text(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// How often a run is there.
    Count,
    /// Its weight if it is there.
    Weight,
    /// Both.
    Both,
}

impl Op for Grams {
    type Bound = ();

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let texts: Option<Vec<Word>> =
            node.texts("pool_strings").map(|all| all.map(|t| Word::Text(t.into())).collect());
        let pool = match texts.filter(|texts| !texts.is_empty()) {
            Some(texts) => texts,
            None => node.long_ints("pool_int64s").unwrap_or_default().iter().map(|&n| Word::Int(n)).collect(),
        };
        let mode = match node.text("mode").unwrap_or("") {
            "TF" => Mode::Count,
            "IDF" => Mode::Weight,
            "TFIDF" => Mode::Both,
            other => return Err(Reject::attribute(format!("attribute mode = {other} is not known"))),
        };
        let length = |name: &str| -> Result<usize, Reject> {
            let n = node.int(name)?;
            usize::try_from(n).map_err(|_| Reject::attribute(format!("attribute {name} = {n} is negative")))
        };
        let (shortest, longest, skips) =
            (length("min_gram_length")?.max(1), length("max_gram_length")?, length("max_skip_count")?);
        let starts = node.long_ints("ngram_counts").unwrap_or_default();
        let columns_of = node.long_ints("ngram_indexes").unwrap_or_default();
        let mut grams = Grams {
            words: HashMap::new(),
            runs: HashMap::new(),
            shortest,
            longest,
            skips,
            columns: columns_of.iter().max().map_or(0, |&most| size(most) + 1),
            mode,
            weights: HashMap::new(),
        };
        grams.list(&pool, &starts, &columns_of)?;
        let weights = node.long_floats("weights").unwrap_or_default();
        grams.weights = columns_of.iter().map(|&column| size(column)).zip(weights.iter().copied()).collect();
        Ok(grams)
    }
}

impl Grams {
    /// Reads the pool: runs of one word, then of two, and so on; `starts` says where each length begins.
    fn list(&mut self, pool: &[Word], starts: &[i64], columns: &[i64]) -> Result<(), Reject> {
        let wrong = |text: &str| Reject::attribute(format!("attribute ngram_counts = {starts:?} {text}"));
        let mut run = 0;
        for (k, &start) in starts.iter().enumerate() {
            let (start, length) = (size(start), k + 1);
            let end = starts.get(k + 1).map_or(pool.len(), |&end| size(end));
            let words = pool.get(start..end).ok_or_else(|| wrong("leaves the pool"))?;
            if words.len() % length != 0 {
                return Err(wrong("does not cut the pool into whole runs"));
            }
            for words in words.chunks_exact(length) {
                let column = columns.get(run).copied().filter(|&column| column >= 0);
                let column = column.ok_or_else(|| wrong("has more runs than attribute ngram_indexes"))?;
                run += 1;
                if !(self.shortest..=self.longest).contains(&length) {
                    continue;
                }
                let mut numbers = Vec::with_capacity(length);
                for word in words {
                    let next = u32::try_from(self.words.len()).map_err(|_| wrong("has too many words"))?;
                    numbers.push(*self.words.entry(word.clone()).or_insert(next));
                }
                self.runs.insert(numbers, size(column));
            }
        }
        Ok(())
    }

    /// Counts the runs of a row, in which unknown words are `None`.
    fn count(&self, row: &[Option<u32>], counts: &mut [f32]) {
        let mut run = Vec::new();
        for skip in 0..=self.skips {
            for length in self.shortest..=self.longest {
                // Single words are the same for every skip.
                if length == 1 && skip > 0 {
                    continue;
                }
                for start in 0..row.len() {
                    run.clear();
                    run.extend(row[start..].iter().step_by(skip + 1).take(length).map_while(|&word| word));
                    if run.len() == length
                        && let Some(&column) = self.runs.get(&run)
                    {
                        counts[column] += 1.0;
                    }
                }
            }
        }
        for (column, count) in counts.iter_mut().enumerate() {
            let weight = self.weights.get(&column).copied().unwrap_or(1.0);
            *count = match self.mode {
                Mode::Count => *count,
                Mode::Weight if *count > 0.0 => weight,
                Mode::Weight => 0.0,
                Mode::Both => *count * weight,
            };
        }
    }

    fn numbers(&self, item: &Item) -> Result<Vec<Option<u32>>, Fault> {
        let number = |word: &Word| self.words.get(word).copied();
        if let Item::Texts(texts) = item {
            return Ok(texts.texts.iter().map(|text| number(&Word::Text(text.clone()))).collect());
        }
        let tensor = item.tensor()?;
        match tensor.elements::<i32>() {
            Ok(all) => Ok(all.iter().map(|&n| number(&Word::Int(n.into()))).collect()),
            Err(_) => Ok(tensor.elements::<i64>()?.iter().map(|&n| number(&Word::Int(n))).collect()),
        }
    }
}

pub(super) fn count_grams(op: &Grams, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let item = args.item(0)?;
    let len = match *item.dims() {
        [len] | [_, len] => size(len),
        ref dims => return Err(Fault::data(format!("words have dimensions {dims:?}; [n] or [rows, n] is needed"))),
    };
    let words = op.numbers(&item)?;
    let columns = i64::try_from(op.columns).unwrap_or(i64::MAX);
    let front = item.dims().split_last().map_or(&[][..], |(_, front)| front);
    let dims: Vec<i64> = front.iter().copied().chain([columns]).collect();
    let counts = args.emit::<f32>(0, &dims)?;
    counts.fill(0.0);
    for (k, counts) in counts.chunks_exact_mut(op.columns.max(1)).enumerate() {
        op.count(&words[k * len..(k + 1) * len], counts);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::Case;
    use ortolan_ep_kit::testing::OpTest;
    use ortolan_ep_kit::{DType, Item, Plain, RejectCode, Texts};

    /// Runs of one: 2, 3, 5, 4; of two: 5 6, 7 8, 6 7.
    fn case(mode: &str, shortest: i64, skips: i64) -> OpTest {
        Case::new("TfIdfVectorizer", 9)
            .text("mode", mode)
            .int("min_gram_length", shortest)
            .int("max_gram_length", 2)
            .int("max_skip_count", skips)
            .ints("ngram_counts", &[0, 4])
            .ints("ngram_indexes", &[0, 1, 2, 3, 4, 5, 6])
    }

    const POOL: [i64; 10] = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7];

    #[test]
    fn runs_of_numbers() {
        let row = [1i32, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8];
        // Shortest run, words left out, counts.
        let cases = [
            (1, 0, [0.0f32, 3.0, 1.0, 0.0, 1.0, 1.0, 1.0]),
            (2, 0, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
            (2, 5, [0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 1.0]),
        ];
        for (shortest, skips, want) in cases {
            let y = case("TF", shortest, skips).ints("pool_int64s", &POOL).item(Plain::new(&[12], &row));
            assert_eq!(y.output(DType::F32, &[7]).run_items(), [Plain::new(&[7], &want).into()], "{shortest} {skips}");
        }
    }

    #[test]
    fn weights_and_rows() {
        let rows: Item = Plain::new(&[2, 3], &[3i64, 3, 9, 5, 6, 7]).into();
        let weights = [1.0f32, 0.5, 2.0, 1.0, 4.0, 1.0, 3.0];
        for (mode, want) in [
            ("IDF", [0.0f32, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 4.0, 0.0, 3.0]),
            ("TFIDF", [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 4.0, 0.0, 3.0]),
        ] {
            let y = case(mode, 1, 0).ints("pool_int64s", &POOL).floats("weights", &weights).item(rows.clone());
            assert_eq!(y.output(DType::F32, &[2, 7]).run_items(), [Plain::new(&[2, 7], &want).into()], "{mode}");
        }
    }

    #[test]
    fn runs_of_texts() {
        let pool = ["2", "3", "5", "4", "5", "6", "7", "8", "6", "7"];
        let y = case("TF", 1, 0).texts("pool_strings", &pool).item(Texts::new(&[3], &["5", "6", "x"]));
        let want = Plain::new(&[7], &[0.0f32, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(y.output(DType::F32, &[7]).run_items(), [want.into()]);
    }

    #[test]
    fn refusals() {
        let row: Item = Plain::new(&[1], &[1i64]).into();
        let y = case("X", 1, 0).ints("pool_int64s", &POOL).item(row.clone()).output(DType::F32, &[7]);
        let want = "TfIdfVectorizer: attribute mode = X is not known".to_owned();
        assert_eq!(y.rejection(), (RejectCode::Attribute, want));
        let y = case("TF", 1, 0).ints("pool_int64s", &POOL[..9]).item(row).output(DType::F32, &[7]);
        let want = "TfIdfVectorizer: attribute ngram_counts = [0, 4] does not cut the pool into whole runs".to_owned();
        assert_eq!(y.rejection(), (RejectCode::Attribute, want));
    }
}
