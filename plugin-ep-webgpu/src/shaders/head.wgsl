struct Params { v: array<vec4<u32>, 64> }
@group(0) @binding(0) var<uniform> params: Params;
fn P(i: u32) -> u32 { return params.v[i >> 2u][i & 3u]; }
fn S(i: u32) -> i32 { return bitcast<i32>(P(i)); }
fn F(i: u32) -> f32 { return bitcast<f32>(P(i)); }
