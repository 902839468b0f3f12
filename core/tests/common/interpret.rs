//! The operators of the fakes, as plainly as can be.

/// Elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    F(Vec<f32>),
    I(Vec<i64>),
    B(Vec<u8>),
}

/// A tensor of the interpreter.
#[derive(Clone, Debug, PartialEq)]
pub struct T {
    pub shape: Vec<i64>,
    pub data: Data,
}

pub const OPS: &[&str] = &[
    "Add",
    "Sub",
    "Mul",
    "Relu",
    "Neg",
    "MatMul",
    "Less",
    "Identity",
    "Concat",
    "NonZero",
    "Cast",
    "Not",
    "Transpose",
];

/// A node.
pub struct Step {
    pub op: String,
    pub id: u32,
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
    pub axis: i64,
    pub to: i64,
    pub perm: Vec<i64>,
}

/// The first output of a node.
pub fn interpret(step: &Step, ins: &[&T]) -> std::result::Result<T, String> {
    let unary = |f: fn(f32) -> f32, g: fn(i64) -> i64| {
        let data = match &ins[0].data {
            Data::F(v) => Data::F(v.iter().map(|&x| f(x)).collect()),
            Data::I(v) => Data::I(v.iter().map(|&x| g(x)).collect()),
            Data::B(v) => Data::B(v.clone()),
        };
        T { shape: ins[0].shape.clone(), data }
    };
    Ok(match step.op.as_str() {
        "Add" => binary(ins, |a, b| a + b, |a, b| a + b)?,
        "Sub" => binary(ins, |a, b| a - b, |a, b| a - b)?,
        "Mul" => binary(ins, |a, b| a * b, |a, b| a.wrapping_mul(b))?,
        "Less" => {
            let t = binary(ins, |a, b| f32::from(a < b), |a, b| i64::from(a < b))?;
            let data = match t.data {
                Data::F(v) => v.iter().map(|&x| u8::from(x != 0.0)).collect(),
                Data::I(v) => v.iter().map(|&x| u8::from(x != 0)).collect(),
                Data::B(v) => v,
            };
            T { shape: t.shape, data: Data::B(data) }
        }
        "Relu" => unary(|x| x.max(0.0), |x| x.max(0)),
        "Neg" => unary(|x| -x, |x| -x),
        "Identity" => ins[0].clone(),
        "Not" => match &ins[0].data {
            Data::B(v) => T { shape: ins[0].shape.clone(), data: Data::B(v.iter().map(|&x| 1 - x).collect()) },
            _ => return Err("Not of no bool".into()),
        },
        "Cast" => T { shape: ins[0].shape.clone(), data: cast(&ins[0].data, step.to) },
        "MatMul" => matmul(ins[0], ins[1])?,
        "Concat" => concat(ins, step.axis)?,
        "NonZero" => nonzero(ins[0]),
        "Transpose" => transpose(ins[0], &step.perm)?,
        other => return Err(format!("{other} is not done")),
    })
}

fn cast(data: &Data, to: i64) -> Data {
    let floats: Vec<f32> = match data {
        Data::F(v) => v.clone(),
        Data::I(v) => v.iter().map(|&x| x as f32).collect(),
        Data::B(v) => v.iter().map(|&x| f32::from(x)).collect(),
    };
    match to {
        7 => Data::I(floats.iter().map(|&x| x as i64).collect()),
        9 => Data::B(floats.iter().map(|&x| u8::from(x != 0.0)).collect()),
        _ => Data::F(floats),
    }
}

fn binary(ins: &[&T], f: fn(f32, f32) -> f32, g: fn(i64, i64) -> i64) -> std::result::Result<T, String> {
    let [a, b] = ins else { return Err(format!("{} inputs", ins.len())) };
    let rank = a.shape.len().max(b.shape.len());
    let dim = |t: &T, k: usize| (k + t.shape.len()).checked_sub(rank).map_or(1, |i| t.shape[i]);
    let mut shape = Vec::new();
    for k in 0..rank {
        let (x, y) = (dim(a, k), dim(b, k));
        if x != y && x != 1 && y != 1 {
            return Err(format!("{:?} and {:?} do not broadcast", a.shape, b.shape));
        }
        shape.push(if x == 1 { y } else { x });
    }
    let total: i64 = shape.iter().product();
    let index = |t: &T, mut n: i64| {
        let (mut at, mut stride) = (0, 1);
        for k in (0..rank).rev() {
            let (i, d) = (n % shape[k].max(1), dim(t, k));
            n /= shape[k].max(1);
            if d != 1 {
                at += i * stride;
            }
            stride *= d;
        }
        at as usize
    };
    let data = match (&a.data, &b.data) {
        (Data::F(x), Data::F(y)) => Data::F((0..total).map(|n| f(x[index(a, n)], y[index(b, n)])).collect()),
        (Data::I(x), Data::I(y)) => Data::I((0..total).map(|n| g(x[index(a, n)], y[index(b, n)])).collect()),
        _ => return Err("types differ".into()),
    };
    Ok(T { shape, data })
}

fn matmul(a: &T, b: &T) -> std::result::Result<T, String> {
    let (Data::F(x), Data::F(y), [m, k], [k2, n]) = (&a.data, &b.data, &a.shape[..], &b.shape[..]) else {
        return Err("only matrices of f32".into());
    };
    if k != k2 {
        return Err(format!("{k} columns against {k2} rows"));
    }
    let (m, k, n) = (*m as usize, *k as usize, *n as usize);
    let cell = |i: usize, j: usize| (0..k).map(|l| x[i * k + l] * y[l * n + j]).sum();
    let data = (0..m * n).map(|c| cell(c / n.max(1), c % n.max(1))).collect();
    Ok(T { shape: vec![m as i64, n as i64], data: Data::F(data) })
}

fn concat(ins: &[&T], axis: i64) -> std::result::Result<T, String> {
    let rank = ins[0].shape.len() as i64;
    let axis = if axis < 0 { axis + rank } else { axis } as usize;
    let mut shape = ins[0].shape.clone();
    shape[axis] = ins.iter().map(|t| t.shape[axis]).sum();
    let outer: i64 = shape[..axis].iter().product();
    let row = |t: &T| t.shape[axis..].iter().product::<i64>() as usize;
    let gather = |pick: &dyn Fn(&T, std::ops::Range<usize>)| {
        for o in 0..outer as usize {
            ins.iter().for_each(|t| pick(t, o * row(t)..(o + 1) * row(t)));
        }
    };
    let (floats, ints) = (std::cell::RefCell::new(vec![]), std::cell::RefCell::new(vec![]));
    gather(&|t, r| match &t.data {
        Data::F(v) => floats.borrow_mut().extend_from_slice(&v[r]),
        Data::I(v) => ints.borrow_mut().extend_from_slice(&v[r]),
        Data::B(_) => {}
    });
    let data =
        if matches!(ins[0].data, Data::F(_)) { Data::F(floats.into_inner()) } else { Data::I(ints.into_inner()) };
    Ok(T { shape, data })
}

fn nonzero(t: &T) -> T {
    let hit: Vec<bool> = match &t.data {
        Data::F(v) => v.iter().map(|&x| x != 0.0).collect(),
        Data::I(v) => v.iter().map(|&x| x != 0).collect(),
        Data::B(v) => v.iter().map(|&x| x != 0).collect(),
    };
    let found: Vec<usize> = hit.iter().enumerate().filter(|(_, h)| **h).map(|(i, _)| i).collect();
    let mut data = Vec::new();
    for k in 0..t.shape.len() {
        let stride: i64 = t.shape[k + 1..].iter().product();
        data.extend(found.iter().map(|&i| i as i64 / stride.max(1) % t.shape[k]));
    }
    T { shape: vec![t.shape.len() as i64, found.len() as i64], data: Data::I(data) }
}

fn transpose(t: &T, perm: &[i64]) -> std::result::Result<T, String> {
    let (Data::F(x), [m, n]) = (&t.data, &t.shape[..]) else { return Err("only matrices of f32".into()) };
    if perm == [0, 1] {
        return Ok(t.clone());
    }
    let (m, n) = (*m as usize, *n as usize);
    Ok(T { shape: vec![n as i64, m as i64], data: Data::F((0..m * n).map(|c| x[c % m * n + c / m]).collect()) })
}
