//! The standard bodies of attention.

use crate::error::Result;
use crate::ir::{AttrValue, DType, GraphId};
use crate::ops::BodyCx;

/// The largest end that a Slice can be given: to the end.
const END: i64 = i64::MAX;

/// Scores of scaled queries and keys, capped, biased, normalized, and the values weighted by them.
pub(super) fn attention(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(dtype) = cx.input(0).and_then(|q| cx.dtype(q)) else { return Ok(()) };
    let Some(rank) = cx.input(0).and_then(|q| cx.rank(q)) else { return Ok(()) };
    let to = dtype.number();
    for (name, from, heads) in [("q", "Q", "q_num_heads"), ("k", "K", "kv_num_heads"), ("v", "V", "kv_num_heads")] {
        split_heads(cx, name, from, heads)?;
    }
    for (name, past, own) in [("present_key", "past_key", "k"), ("present_value", "past_value", "v")] {
        match cx.named(past) {
            Some(_) => cx.write(&format!("{name} = Concat({past}, {own}) axis=2"))?,
            None => cx.named(own).into_iter().for_each(|v| cx.name(name, v)),
        }
    }
    scale(cx, to)?;
    repeat_heads(cx, "present_key", "keys")?;
    repeat_heads(cx, "present_value", "all")?;
    cx.write(&format!(
        "qs = Mul(q, factor); kt = Transpose(keys) perm=[0,1,3,2]; ks = Mul(kt, factor);
         raw = MatMul(qs, ks); values = Cast(all) to={to}"
    ))?;
    let cap = cx.view().attr("softcap").and_then(AttrValue::as_float).unwrap_or(0.0);
    match cap > 0.0 {
        true => cx.write("share = Div(raw, @softcap); bent = Tanh(share); capped = Mul(bent, @softcap)")?,
        false => cx.write("capped = Identity(raw)")?,
    }
    let biased = bias(cx)?;
    cx.write(if biased { "scores = Add(capped, bias)" } else { "scores = Identity(capped)" })?;
    let precision = cx.view().int("softmax_precision").unwrap_or(to.into());
    cx.write(&format!("wide = Cast(scores) to={precision}; soft = Softmax(wide) axis=3; open = Cast(soft) to={to}"))?;
    match biased {
        // A row without any key is zeros.
        true => cx.write(
            "most = ReduceMax(bias) axes=[-1] keepdims=1; shut = Equal(most, -inf); weights = Where(shut, 0, open)",
        )?,
        false => cx.write("weights = Identity(open)")?,
    }
    let shown = match cx.view().int("qk_matmul_output_mode").unwrap_or(0) {
        0 => "raw",
        1 => "capped",
        2 => "scores",
        _ => "weights",
    };
    cx.named(shown).into_iter().for_each(|v| cx.name("qk_matmul_output", v));
    match rank {
        4 => cx.write("Y = MatMul(weights, values)"),
        _ => cx.write("y = MatMul(weights, values); rows = Transpose(y) perm=[0,2,1,3]; Y = Reshape(rows, [0 0 -1])"),
    }
}

/// Heads on an axis of their own: [b, s, heads × h] becomes [b, heads, s, h].
fn split_heads(cx: &mut BodyCx<'_>, name: &str, from: &str, attr: &str) -> Result<()> {
    let Some(value) = cx.named(from) else { return Ok(()) };
    if cx.rank(value) == Some(4) {
        cx.name(name, value);
        return Ok(());
    }
    let heads = cx.view().int(attr).unwrap_or(1);
    cx.write(&format!(
        "{name}_rows = Reshape({from}, [0 0 {heads} -1]); {name} = Transpose({name}_rows) perm=[0,2,1,3]"
    ))
}

/// `factor`: the square root of the scale, by which queries and keys are multiplied each, so that nothing overflows.
fn scale(cx: &mut BodyCx<'_>, to: i32) -> Result<()> {
    match cx.view().attr("scale").and_then(AttrValue::as_float) {
        Some(scale) => cx.write(&format!("factor = Cast({}f) to={to}", scale.sqrt())),
        None => cx.write(&format!(
            "q_dims = Shape(q); width = Gather(q_dims, #3); width_f = Cast(width) to=1; root = Sqrt(width_f);
             part = Div(1f, root); part_root = Sqrt(part); factor = Cast(part_root) to={to}"
        )),
    }
}

/// As many heads as the queries have: each is repeated for the queries that share it.
fn repeat_heads(cx: &mut BodyCx<'_>, from: &str, name: &str) -> Result<()> {
    let (Some(q), Some(value)) = (cx.named("q"), cx.named(from)) else { return Ok(()) };
    let (wanted, found) = (cx.size(q, 1), cx.size(value, 1));
    if wanted.is_some() && wanted == found {
        cx.name(name, value);
        return Ok(());
    }
    let whole = if cx.knows("Reshape", "allowzero") { "allowzero=1" } else { "" };
    cx.write(&format!(
        "{name}_q = Shape(q); {name}_n = Gather({name}_q, [1]); {name}_d = Shape({from}); {name}_b = Gather({name}_d, [0]);
         {name}_m = Gather({name}_d, [1]); {name}_r = Div({name}_n, {name}_m); {name}_s = Gather({name}_d, [2 3]);
         {name}_5 = Concat({name}_b, {name}_m, {name}_r, {name}_s) axis=0; {name}_u = Unsqueeze({from}) axes=[2];
         {name}_e = Expand({name}_u, {name}_5); {name}_4 = Concat({name}_b, {name}_n, {name}_s) axis=0;
         {name} = Reshape({name}_e, {name}_4) {whole}"
    ))
}

/// `bias`: what is added to the scores; false when there is nothing to add.
fn bias(cx: &mut BodyCx<'_>) -> Result<bool> {
    let masked = mask(cx)?;
    let shut = shut(cx)?;
    if !shut {
        masked.then(|| cx.named("mask")).flatten().into_iter().for_each(|v| cx.name("bias", v));
        return Ok(masked);
    }
    cx.write("cut = Where(shut_keys, -inf, 0)")?;
    cx.write(if masked { "bias = Add(mask, cut)" } else { "bias = Identity(cut)" })?;
    Ok(true)
}

/// `mask`: the mask of the node as numbers to add, as long as there are keys.
fn mask(cx: &mut BodyCx<'_>) -> Result<bool> {
    let Some(given) = cx.named("attn_mask") else { return Ok(false) };
    let to = cx.input(0).and_then(|q| cx.dtype(q)).unwrap_or(DType::F32).number();
    match cx.dtype(given) {
        Some(DType::Bool) => cx.write("short = Where(attn_mask, 0, -inf)")?,
        _ => cx.write(&format!("short = Cast(attn_mask) to={to}"))?,
    }
    if cx.named("raw").is_some_and(|raw| cx.same_length(given, raw)) {
        cx.named("short").into_iter().for_each(|v| cx.name("mask", v));
        return Ok(true);
    }
    let Some(rank) = cx.rank(given).filter(|r| *r > 0) else { return Ok(false) };
    let (last, zeros) = (rank - 1, vec!["0"; 2 * rank - 1].join(" "));
    cx.write(&format!(
        "score_dims = Shape(raw); keys_n = Gather(score_dims, [3]); mask_dims = Shape(attn_mask); mask_n = Gather(mask_dims, [{last}]); lacking = Sub(keys_n, mask_n);
         pads = Concat([{zeros}], lacking) axis=0; mask = Pad(short, pads, -inf)"
    ))?;
    Ok(true)
}

/// `shut_keys`: which keys a query may not see, for its place or because they are padding; false when all may be seen.
fn shut(cx: &mut BodyCx<'_>) -> Result<bool> {
    let int = |cx: &BodyCx<'_>, name: &str| cx.view().int(name);
    let causal = int(cx, "is_causal").unwrap_or(0) != 0;
    let side = |cx: &BodyCx<'_>, name: &str| int(cx, name).filter(|n| *n >= 0);
    let (left, right) = (side(cx, "left_window_size"), side(cx, "right_window_size"));
    let valid = cx.named("nonpad_kv_seqlen");
    if !causal && left.is_none() && right.is_none() && valid.is_none() {
        return Ok(false);
    }
    cx.write(
        "dims = Shape(raw); q_n = Gather(dims, #2); k_n = Gather(dims, #3);
         q_at = Range(#0, q_n, #1); q_rows = Unsqueeze(q_at) axes=[1]; k_at = Range(#0, k_n, #1)",
    )?;
    match (cx.named("past_key"), valid) {
        (Some(_), _) => {
            cx.write("past_dims = Shape(past_key); behind = Gather(past_dims, #2); at = Add(q_rows, behind)")?
        }
        (None, Some(_)) => {
            cx.write(
                "valid = Reshape(nonpad_kv_seqlen, [-1 1 1 1]); behind = Sub(valid, q_n); at = Add(q_rows, behind)",
            )?;
        }
        (None, None) => cx.write("at = Identity(q_rows)")?,
    }
    let mut all = Vec::new();
    if causal {
        cx.write("later = Less(at, k_at)")?;
        all.push("later");
    }
    if let Some(n) = left {
        cx.write(&format!("first = Sub(at, #{n}); early = Less(k_at, first)"))?;
        all.push("early");
    }
    if let Some(n) = right {
        cx.write(&format!("last = Add(at, #{n}); far = Less(last, k_at)"))?;
        all.push("far");
    }
    if valid.is_some() {
        cx.write("lengths = Reshape(nonpad_kv_seqlen, [-1 1 1 1]); real = Less(k_at, lengths); padding = Not(real)")?;
        all.push("padding");
    }
    let mut so_far = all[0].to_owned();
    for more in &all[1..] {
        cx.write(&format!("{so_far}_{more} = Or({so_far}, {more})"))?;
        so_far = format!("{so_far}_{more}");
    }
    cx.named(&so_far).into_iter().for_each(|v| cx.name("shut_keys", v));
    Ok(true)
}

/// Attention whose scores and weights go through graphs of the node.
pub(super) fn flex(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(dtype) = cx.input(0).and_then(|q| cx.dtype(q)) else { return Ok(()) };
    for (name, from) in [("q", "Q"), ("k", "K"), ("v", "V")] {
        cx.named(from).into_iter().for_each(|v| cx.name(name, v));
    }
    let to = dtype.number();
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let precision = cx.view().int("softmax_precision").unwrap_or(wide.number().into());
    scale(cx, to)?;
    repeat_heads(cx, "k", "keys")?;
    repeat_heads(cx, "v", "values")?;
    cx.write(&format!(
        "qs = Mul(q, factor); ks = Mul(keys, factor); kt = Transpose(ks) perm=[0,1,3,2]; raw = MatMul(qs, kt);
         scores = Cast(raw) to={precision}"
    ))?;
    through(cx, "score_mod", "scores")?;
    cx.write("weights = Softmax(scores) axis=3")?;
    through(cx, "prob_mod", "weights")?;
    cx.write(&format!("narrow = Cast(weights) to={to}; Y = MatMul(narrow, values)"))
}

/// What a graph of the node makes of a value, under the same name.
fn through(cx: &mut BodyCx<'_>, attr: &str, name: &str) -> Result<()> {
    let graph: Option<GraphId> = cx.view().attr(attr).and_then(|a| a.graphs().first().copied());
    if let (Some(graph), Some(value)) = (graph, cx.named(name)) {
        let made = cx.inline(graph, &[value])?;
        made.first().into_iter().for_each(|v| cx.name(name, *v));
    }
    Ok(())
}

/// A state that every token decays, writes to and reads from, one after the other.
pub(super) fn linear(cx: &mut BodyCx<'_>) -> Result<()> {
    let (Some(dtype), Some(q_heads), Some(heads)) = (
        cx.input(0).and_then(|q| cx.dtype(q)),
        cx.view().int("q_num_heads"),
        cx.view().int("kv_num_heads").filter(|n| *n > 0),
    ) else {
        return Ok(());
    };
    let rule = cx.view().str("update_rule").unwrap_or("gated_delta").to_owned();
    let (gated, delta) = (rule.starts_with("gated"), rule.ends_with("delta"));
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 }.number();
    let narrow = dtype.number();
    let state = cx.named("past_state").and_then(|s| cx.dtype(s)).unwrap_or(dtype).number();
    let mut inputs =
        vec![("query", "q", q_heads.to_string()), ("key", "k", heads.to_string()), ("value", "v", heads.to_string())];
    if gated {
        inputs.push(("decay", "g", heads.to_string()));
    }
    for (from, name, heads) in &inputs {
        cx.write(&format!(
            "{name}_r = Reshape({from}, [0 0 {heads} -1]); {name}_t = Transpose({name}_r) perm=[1,0,2,3]"
        ))?;
    }
    if delta {
        cx.write("b_r = Reshape(beta, [0 0 -1 1]); b_t = Transpose(b_r) perm=[1,0,2,3]")?;
        inputs.push(("beta", "b", String::new()));
    }
    cx.write(&format!(
        "q_dims = Shape(query); v_dims = Shape(value); n = Gather(q_dims, [0]); q_w = Gather(q_dims, [2]);
         v_w = Gather(v_dims, [2]); d_k = Div(q_w, [{q_heads}]); d_v = Div(v_w, [{heads}])"
    ))?;
    match cx.named("past_state") {
        Some(_) => cx.write(&format!("start = Cast(past_state) to={wide}"))?,
        None => cx.write(&format!(
            "s_dims = Concat(n, [{heads}], d_k, d_v) axis=0; zeros = ConstantOfShape(s_dims); start = Cast(zeros) to={wide}"
        ))?,
    }
    match cx.view().attr("scale").and_then(AttrValue::as_float).filter(|s| *s != 0.0) {
        Some(scale) => cx.write(&format!("factor = Cast({scale}f) to={wide}"))?,
        None => cx.write(&format!("d_f = Cast(d_k) to={wide}; d_root = Sqrt(d_f); factor = Reciprocal(d_root)"))?,
    }
    let shared = q_heads / heads;
    cx.write(&format!(
        "x_dims = Concat(n, [{heads}], [{shared}], d_k, d_v) axis=0; r_dims = Concat(n, [{q_heads}], d_k, d_v) axis=0"
    ))?;
    let mut step = String::new();
    for (_, name, _) in &inputs {
        step += &format!("{name}_f = Cast({name}) to={wide};");
    }
    step += match gated {
        true => "g_e = Exp(g_f); g_u = Unsqueeze(g_e) axes=[3]; kept = Mul(s, g_u);",
        false => "kept = Identity(s);",
    };
    step += "column = Unsqueeze(k_f) axes=[3];";
    step += match delta {
        true => {
            "turned = Transpose(kept) perm=[0,1,3,2]; known = MatMul(turned, column); known_v = Squeeze(known) axes=[3];
             news = Sub(v_f, known_v); part = Mul(b_f, news); row = Unsqueeze(part) axes=[2];"
        }
        false => "row = Unsqueeze(v_f) axes=[2];",
    };
    step += "written = MatMul(column, row); next = Add(kept, written);";
    step += match shared {
        1 => "read = Identity(next);",
        _ => "next_u = Unsqueeze(next) axes=[2]; next_e = Expand(next_u, x_dims); read = Reshape(next_e, r_dims);",
    };
    step += "q_u = Unsqueeze(q_f) axes=[2]; found = MatMul(q_u, read); found_q = Squeeze(found) axes=[2];";
    step += &format!("out_f = Mul(factor, found_q); out = Cast(out_f) to={narrow}");
    let names: Vec<&str> = inputs.iter().map(|i| i.1).collect();
    cx.graph("step", &format!("s {}", names.join(" ")), &step, "next out")?;
    let rows: Vec<String> = names.iter().map(|n| format!("{n}_t")).collect();
    cx.write(&format!(
        "last all = Scan(start, {}) num_scan_inputs={} body=$step; turned_back = Transpose(all) perm=[1,0,2,3];
         output = Reshape(turned_back, [0 0 -1]); present_state = Cast(last) to={state}",
        rows.join(", "),
        rows.len()
    ))
}

/// Pairs of numbers turned by an angle that depends on the place.
pub(super) fn rotary(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(rank) = cx.input(0).and_then(|x| cx.rank(x)) else { return Ok(()) };
    let int = |cx: &BodyCx<'_>, name: &str| cx.view().int(name).unwrap_or(0);
    let (heads, turned) = (int(cx, "num_heads"), int(cx, "rotary_embedding_dim"));
    match rank {
        4 => cx.write("x4 = Transpose(X) perm=[0,2,1,3]")?,
        _ => cx.write(&format!("x4 = Reshape(X, [0 0 {heads} -1])"))?,
    }
    match turned {
        0 => cx.write("x = Identity(x4)")?,
        n => cx.write(&format!("x = Slice(x4, [0], [{n}], [3]); rest = Slice(x4, [{n}], [{END}], [3])"))?,
    }
    for (name, cache) in [("c", "cos_cache"), ("s", "sin_cache")] {
        match cx.named("position_ids") {
            Some(_) => cx.write(&format!("{name}_at = Gather({cache}, position_ids)"))?,
            None => cx.write(&format!("{name}_at = Identity({cache})"))?,
        }
        let half = if turned == 0 { END } else { turned / 2 };
        cx.write(&format!(
            "{name}_own = Slice({name}_at, [0], [{half}], [2]); {name} = Unsqueeze({name}_own) axes=[2]"
        ))?;
    }
    let interleaved = int(cx, "interleaved") != 0;
    match interleaved {
        true => cx.write(&format!("x1 = Slice(x, [0], [{END}], [3], [2]); x2 = Slice(x, [1], [{END}], [3], [2])"))?,
        false => {
            let count = if cx.knows("Split", "num_outputs") { "num_outputs=2" } else { "" };
            cx.write(&format!("x1 x2 = Split(x) axis=3 {count}"))?;
        }
    }
    cx.write(
        "c1 = Mul(c, x1); s2 = Mul(s, x2); real = Sub(c1, s2); s1 = Mul(s, x1); c2 = Mul(c, x2); other = Add(s1, c2)",
    )?;
    match interleaved {
        true => cx.write(
            "real5 = Unsqueeze(real) axes=[4]; other5 = Unsqueeze(other) axes=[4]; pairs = Concat(real5, other5) axis=4;
             dims = Shape(x); y4 = Reshape(pairs, dims)",
        )?,
        false => cx.write("y4 = Concat(real, other) axis=3")?,
    }
    cx.write(if turned == 0 { "all = Identity(y4)" } else { "all = Concat(y4, rest) axis=3" })?;
    match rank {
        4 => cx.write("Y = Transpose(all) perm=[0,2,1,3]"),
        _ => cx.write("x_dims = Shape(X); Y = Reshape(all, x_dims)"),
    }
}
