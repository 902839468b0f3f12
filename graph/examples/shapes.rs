//! Prints every value's type, with input dims bound: `shapes MODEL NAME=1x3x224x224 …`. A `?` is a number that only a
//! run can tell. For comparison with what another runtime finds.

use std::collections::HashMap;

use ortolan_graph::ir::{SymbolKind, Type, UNDEFINED};
use ortolan_graph::{LoadOptions, load};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: shapes MODEL [NAME=DIMS]...")?;
    let mut given: HashMap<String, Vec<i64>> = HashMap::new();
    for arg in args {
        let (name, dims) = arg.rsplit_once('=').ok_or("NAME=DIMS")?;
        given.insert(
            name.to_owned(),
            dims.split('x').filter(|d| !d.is_empty()).map(str::parse).collect::<Result<_, _>>()?,
        );
    }
    let graph = load(&path, &LoadOptions::default())?;
    let exprs = graph.exprs();
    let symbols: Vec<i64> = exprs
        .symbols()
        .iter()
        .map(|s| match (s.kind, given.get(&*graph.value(s.value).name)) {
            (SymbolKind::Dim, Some(dims)) => dims.get(s.at as usize).copied().unwrap_or(UNDEFINED),
            _ => UNDEFINED,
        })
        .collect();
    let mut numbers = Vec::new();
    exprs.eval(&symbols, &mut numbers);
    for a in graph.assumptions() {
        if numbers[a.holds.index()] == 0 {
            println!("broken assumption: {} {}", graph.node(a.node).place(&graph), a.what);
        }
    }
    for id in graph.live_nodes() {
        for v in graph.node(id).outputs.iter().flatten() {
            let value = graph.value(*v);
            let number = |e: &ortolan_graph::ir::ExprId| match numbers[e.index()] {
                UNDEFINED => "?".to_owned(),
                n => n.to_string(),
            };
            let dims = match &value.ty {
                Some(Type::Tensor(t)) => match &t.dims {
                    Some(d) => format!("[{}]", d.iter().map(number).collect::<Vec<_>>().join(",")),
                    None => "*".to_owned(),
                },
                _ => "*".to_owned(),
            };
            let kind = value.ty.as_ref().map_or("unknown".to_owned(), Type::kind_name);
            let known =
                value.known.as_ref().map_or("-".to_owned(), |k| k.iter().map(number).collect::<Vec<_>>().join(","));
            println!("{}\t{kind}\t{dims}\t{known}", value.name);
        }
    }
    Ok(())
}
