//! Element-wise functions as WGSL, one after the other in one kernel: a chain begins with a value and may read others.
//!
//! An element-wise node is a chain; kernels that compute sums (products, convolutions) end with one, so that a bias, a
//! residual and an activation behind them cost no memory traffic.

use crate::recipe::{Buf, signed, word};
use crate::shader::Elem;
use ortolan_ep_kit::{Fault, Shapes, size};

/// A function of some values, with `{0}`, `{1}`… for them.
#[derive(Debug, Clone)]
pub struct Function {
    pub text: String,
    pub inputs: Vec<Elem>,
    pub output: Elem,
}

/// See the module. `x0` is the value that it begins with, `x1`… are others that it reads.
#[derive(Debug, Clone)]
pub struct Chain {
    first: Elem,
    /// Others, with the node's input that each is.
    others: Vec<(Elem, usize)>,
    lines: Vec<String>,
    output: Elem,
}

/// A chain bound to shapes: WGSL that declares `fn chain(o: u32, x0) -> y`, `o` being the flat index in the output.
#[derive(Debug)]
pub struct Bound {
    pub text: String,
    pub buffers: Vec<(Buf, Elem)>,
}

impl Chain {
    /// A chain that does nothing to a value.
    pub fn identity(elem: Elem) -> Chain {
        Chain { first: elem, others: Vec::new(), lines: Vec::new(), output: elem }
    }

    /// A chain of one function of a node's first inputs.
    pub fn of(function: Function) -> Chain {
        let mut chain = Chain::identity(function.inputs.first().copied().unwrap_or(function.output));
        chain.others = function.inputs.iter().copied().enumerate().skip(1).map(|(k, e)| (e, k)).collect();
        let names: Vec<String> = (0..function.inputs.len()).map(|k| format!("x{k}")).collect();
        chain.push(&function, &names);
        chain
    }

    /// Element type of the result.
    pub fn output(&self) -> Elem {
        self.output
    }

    fn push(&mut self, function: &Function, names: &[String]) {
        let mut text = function.text.clone();
        for (k, name) in names.iter().enumerate() {
            text = text.replace(&format!("{{{k}}}"), name);
        }
        self.lines.push(format!("let t{} = {text};", self.lines.len()));
        self.output = function.output;
    }

    /// Puts a function behind the chain, if all fits. Its input `at` is the chain's result, its others will be the node's
    /// inputs from `extra` on.
    pub fn then(&mut self, function: &Function, at: usize, extra: usize, most_others: usize) -> bool {
        let fits = self.others.len() + function.inputs.len() - 1 <= most_others;
        if !fits || function.inputs.get(at) != Some(&self.output) {
            return false;
        }
        let result = self.result();
        let mut names = Vec::new();
        let mut next = extra;
        for (k, &elem) in function.inputs.iter().enumerate() {
            if k == at {
                names.push(result.clone());
                continue;
            }
            self.others.push((elem, next));
            names.push(format!("x{}", self.others.len()));
            next += 1;
        }
        // Memory would have rounded here; so does the chain.
        if self.output == Elem::F16 && !self.lines.is_empty() {
            self.lines.push(format!("let t{} = f32(f16({result}));", self.lines.len()));
            let rounded = format!("t{}", self.lines.len() - 1);
            names.iter_mut().filter(|n| **n == result).for_each(|n| n.clone_from(&rounded));
        }
        self.push(function, &names);
        true
    }

    fn result(&self) -> String {
        match self.lines.len() {
            0 => "x0".to_owned(),
            n => format!("t{}", n - 1),
        }
    }

    /// Binds a chain that ends a kernel: `x0` is what the kernel computed. `buffers` are the kernel's own so far.
    pub fn end(&self, shapes: &Shapes<'_>, buffers: usize, params: &mut Vec<u32>) -> Result<Bound, Fault> {
        self.bind(shapes, buffers, params, false)
    }

    /// Binds a chain that is a kernel: `x0` is input 0.
    pub fn whole(&self, shapes: &Shapes<'_>, params: &mut Vec<u32>) -> Result<Bound, Fault> {
        self.bind(shapes, 0, params, true)
    }

    fn bind(&self, shapes: &Shapes<'_>, first: usize, params: &mut Vec<u32>, whole: bool) -> Result<Bound, Fault> {
        let output = shapes.output(0);
        let mut read: Vec<(usize, Elem, usize)> = if whole { vec![(0, self.first, 0)] } else { Vec::new() };
        read.extend(self.others.iter().enumerate().map(|(k, &(elem, input))| (k + 1, elem, input)));
        let dims: Vec<&[i64]> = read.iter().map(|&(_, _, input)| shapes.input(input)).collect();
        let axes = merged(output, &dims)?;
        let base = params.len();
        params.push(word(axes.lens.len())?);
        for &len in &axes.lens {
            params.push(word(len)?);
        }
        let (mut loads, mut buffers) = (String::new(), Vec::new());
        for (place, &(k, elem, input)) in read.iter().enumerate() {
            let buffer = first + place;
            buffers.push((Buf::In(input), elem));
            let strides = &axes.strides[place];
            let index = if dims[place].iter().all(|&d| d == 1) {
                "0u".to_owned()
            } else if dims[place] == output {
                "o".to_owned()
            } else {
                let at = params.len();
                for &stride in strides {
                    params.push(signed(stride)?);
                }
                format!("spread(o, {base}u, {at}u)")
            };
            loads += &format!("  let x{k} = get{buffer}({index});\n");
        }
        let (declared, kept) = match whole {
            true => ("o: u32".to_owned(), String::new()),
            false => (format!("o: u32, x0: {}", self.first.computed()), String::new()),
        };
        let lines: String = self.lines.iter().map(|l| format!("  {l}\n")).collect();
        let text = format!(
            "{SPREAD}fn chain({declared}) -> {} {{\n{kept}{loads}{lines}  return {};\n}}\n",
            self.output.computed(),
            self.result()
        );
        Ok(Bound { text, buffers })
    }
}

const SPREAD: &str = include_str!("shaders/chain.wgsl");

/// Axes of an output along which all inputs keep their steps.
struct Axes {
    lens: Vec<usize>,
    /// Per input, its step along each axis; 0 where it is broadcast.
    strides: Vec<Vec<i64>>,
}

/// Axes that all inputs walk alike are one.
fn merged(output: &[i64], inputs: &[&[i64]]) -> Result<Axes, Fault> {
    let steps: Vec<Vec<i64>> = inputs.iter().map(|dims| broadcast(output, dims)).collect::<Result<_, _>>()?;
    let mut axes = Axes { lens: Vec::new(), strides: vec![Vec::new(); inputs.len()] };
    for (k, &dim) in output.iter().enumerate() {
        let len = size(dim);
        if len == 1 {
            continue;
        }
        let joins = !axes.lens.is_empty()
            && steps.iter().zip(&axes.strides).all(|(s, had)| had.last().is_some_and(|&h| h == s[k] * dim));
        match axes.lens.last_mut() {
            Some(last) if joins => {
                *last *= len;
                axes.strides.iter_mut().zip(&steps).for_each(|(had, s)| {
                    if let Some(h) = had.last_mut() {
                        *h = s[k];
                    }
                });
            }
            _ => {
                axes.lens.push(len);
                axes.strides.iter_mut().zip(&steps).for_each(|(had, s)| had.push(s[k]));
            }
        }
    }
    Ok(axes)
}

/// Step of an input along each axis of the output that it is broadcast to.
pub fn broadcast(output: &[i64], input: &[i64]) -> Result<Vec<i64>, Fault> {
    let mut steps = vec![0; output.len()];
    let skipped = output.len().checked_sub(input.len());
    let fits = |skipped: usize| input.iter().zip(&output[skipped..]).all(|(&i, &o)| i == o || i == 1);
    let Some(skipped) = skipped.filter(|&s| fits(s)) else {
        return Err(Fault::data(format!("dimensions {input:?} do not broadcast to {output:?}")));
    };
    let mut step = 1;
    for k in (0..input.len()).rev() {
        if input[k] != 1 {
            steps[skipped + k] = step;
        }
        step *= input[k];
    }
    Ok(steps)
}
