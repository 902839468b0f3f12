//! Every row bound for every type that it takes, without a GPU: each shader that comes out of it must be valid, and must
//! translate for Vulkan, Metal and Direct3D.

use super::{FAMILIES, Settings};
use crate::pipeline::MOST_BUFFERS;
use crate::shader::Shader;
use ortolan_ep_kit::testing::{Dim, Model, OpTest, Session, Tensor, ValueId};
use ortolan_ep_kit::{DType, Kernel, Kit, RejectCode};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// Names of shaders that were made in this process.
static SEEN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Texts of shaders, with the thread that made each: tests run at once.
static MADE: Mutex<Vec<(ThreadId, Arc<str>)>> = Mutex::new(Vec::new());

/// What this thread has made so far.
fn made() -> Vec<Arc<str>> {
    let made = MADE.lock().unwrap();
    made.iter().filter(|(thread, _)| *thread == std::thread::current().id()).map(|(_, text)| text.clone()).collect()
}

/// Called for each shader that is made: parses, validates and translates it.
pub fn check(shader: &Shader) {
    let text = &shader.text;
    let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(text)));
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::SHADER_FLOAT16);
    let info = validator.validate(&module).unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(text)));
    within_limits(shader, &module);
    naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None)
        .unwrap_or_else(|e| panic!("SPIR-V of {}: {e}\n{text}", shader.name));
    let options = naga::back::msl::Options { fake_missing_bindings: true, ..Default::default() };
    naga::back::msl::write_string(&module, &info, &options, &naga::back::msl::PipelineOptions::default())
        .unwrap_or_else(|e| panic!("MSL of {}: {e}\n{text}", shader.name));
    let options = naga::back::hlsl::Options {
        shader_model: naga::back::hlsl::ShaderModel::V6_2,
        fake_missing_bindings: true,
        ..Default::default()
    };
    let mut out = String::new();
    let pipeline = naga::back::hlsl::PipelineOptions::default();
    naga::back::hlsl::Writer::new(&mut out, &options, &pipeline)
        .write(&module, &info, None)
        .unwrap_or_else(|e| panic!("HLSL of {}: {e}\n{text}", shader.name));
    SEEN.lock().unwrap().insert(shader.name);
    MADE.lock().unwrap().push((std::thread::current().id(), text.clone()));
}

/// What a shader uses is what every adapter has: the standard's default limits.
fn within_limits(shader: &Shader, module: &naga::Module) {
    let (most, name) = (wgpu::Limits::default(), shader.name);
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).unwrap();
    let bytes = |space| {
        let here = module.global_variables.iter().filter(move |(_, v)| v.space == space);
        here.map(|(_, v)| u64::from(layouter[v.ty].size)).sum::<u64>()
    };
    assert!(bytes(naga::AddressSpace::WorkGroup) <= most.max_compute_workgroup_storage_size.into(), "{name}");
    assert_eq!(bytes(naga::AddressSpace::Uniform), crate::shader::PARAM_BYTES, "{name}");
    assert!(crate::shader::PARAM_BYTES <= most.max_uniform_buffer_binding_size, "{name}");
    let storage = |v: &naga::GlobalVariable| matches!(v.space, naga::AddressSpace::Storage { .. });
    let buffers = module.global_variables.iter().filter(|(_, v)| storage(v)).count();
    assert!(buffers == shader.buffers && buffers <= MOST_BUFFERS, "{name} has {buffers} buffers");
    assert!(MOST_BUFFERS <= most.max_storage_buffers_per_shader_stage as usize);
    let [entry] = &module.entry_points[..] else { panic!("{name} has {} entry points", module.entry_points.len()) };
    let [x, y, z] = entry.workgroup_size;
    assert!(x * y * z <= most.max_compute_invocations_per_workgroup, "{name} has {x} x {y} x {z} threads");
    assert!(x <= most.max_compute_workgroup_size_x && y <= most.max_compute_workgroup_size_y, "{name}");
    assert!(z <= most.max_compute_workgroup_size_z, "{name}");
}

fn test(op: &str, version: u16, tiles: bool) -> OpTest {
    let settings = Settings { has_f16: true, largest: 128 << 20, tiles };
    OpTest::with(Kit::new(FAMILIES, "webgpu", settings), op, u32::from(version))
}

fn tensor(dtype: DType, dims: &[i64]) -> Tensor {
    let count = dims.iter().product::<i64>() as usize;
    Tensor { dtype, dims: dims.to_vec(), bytes: vec![0; count * dtype.bits() / 8] }
}

fn list(numbers: &[i64]) -> Tensor {
    Tensor::new(&[numbers.len() as i64], numbers)
}

/// Binds a node; what runs is only for devices.
#[track_caller]
fn bind(case: OpTest, what: &str) {
    let error = case.try_run().expect_err(what);
    assert!(error.contains("runs on a device only"), "{what}: {error}");
}

const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::I32, DType::U32, DType::Bool];

/// Types that a row takes.
fn types(kernel: &Kernel) -> impl Iterator<Item = DType> {
    let set = kernel.types.first().map_or(0, |t| t.1);
    TYPES.into_iter().filter(move |t| set & t.mask() != 0)
}

/// Attributes that some element-wise operator has, with values that all take.
fn attributes(mut case: OpTest) -> OpTest {
    for name in ["alpha", "beta", "gamma", "bias", "lambd"] {
        case = case.float(name, 0.5);
    }
    case.int("fmod", 1).text("direction", "LEFT")
}

#[test]
fn element_wise_rows_translate_for_all_types() {
    let families: [&[Kernel]; 4] =
        [super::arith::KERNELS, super::cast::KERNELS, super::compare::KERNELS, super::unary::KERNELS];
    for kernel in families.into_iter().flatten() {
        for dtype in types(kernel) {
            let (x, wide) = (tensor(dtype, &[2, 1, 3]), tensor(dtype, &[2, 4, 3]));
            let what = format!("{} {dtype}", kernel.op);
            let case = || attributes(test(kernel.op, kernel.since.1, false));
            let compares = matches!(
                kernel.op,
                "Equal" | "Greater" | "GreaterOrEqual" | "IsInf" | "IsNaN" | "Less" | "LessOrEqual"
            );
            let out = if compares { DType::Bool } else { dtype };
            match kernel.op {
                "Cast" | "CastLike" => {
                    for to in TYPES {
                        let like = tensor(to, &[1]);
                        let case = if kernel.op == "Cast" { case().input(&x) } else { case().input(&x).input(&like) };
                        bind(case.output(to, &[2, 1, 3]), &format!("{what} to {to}"));
                    }
                }
                "Where" => {
                    let pick = tensor(DType::Bool, &[4, 1]);
                    bind(case().input(&pick).input(&wide).input(&x).output(dtype, &[2, 4, 3]), &what);
                }
                "Clip" => {
                    let bound = tensor(dtype, &[]);
                    bind(case().input(&x).output(out, &[2, 1, 3]), &what);
                    bind(case().input(&x).input(&bound).input(&bound).output(out, &[2, 1, 3]), &what);
                }
                _ if super::unary::KERNELS.iter().any(|k| k.op == kernel.op)
                    || matches!(kernel.op, "Not" | "IsInf" | "IsNaN" | "BitwiseNot") =>
                {
                    bind(case().input(&x).output(out, &[2, 1, 3]), &what);
                }
                _ => bind(case().input(&wide).input(&x).output(out, &[2, 4, 3]), &what),
            }
        }
    }
}

/// Nodes of each operator that is not element-wise, in each form that has a shader of its own.
fn shaped(op: &str, t: DType, tiles: bool) -> Vec<OpTest> {
    let case = |version: u16| test(op, version, tiles);
    let x = |dims: &[i64]| tensor(t, dims);
    let norm = |version: u16| case(version).float("epsilon", 1e-5).input(&x(&[2, 6, 4])).input(&x(&[6]));
    match op {
        "AveragePool" | "MaxPool" => {
            let pool = |padded: i64| {
                let case = case(22).ints("kernel_shape", &[2, 2]).ints("pads", &[1, 0, 0, 1]);
                case.int("count_include_pad", padded).input(&x(&[1, 2, 5, 5])).output(t, &[1, 2, 5, 5])
            };
            vec![pool(0), pool(1)]
        }
        "GlobalAveragePool" | "GlobalMaxPool" => vec![case(22).input(&x(&[1, 2, 5, 5])).output(t, &[1, 2, 1, 1])],
        "BatchNormalization" => {
            let per = x(&[6]);
            vec![norm(15).input(&per).input(&per).input(&per).output(t, &[2, 6, 4])]
        }
        "Concat" => vec![case(13).int("axis", 1).input(&x(&[2, 1])).input(&x(&[2, 3])).output(t, &[2, 4])],
        "Conv" => {
            let conv = |w: &[i64], group: i64, out: i64| {
                let case =
                    case(22).int("group", group).ints("pads", &[1, 1, 1, 1]).input(&x(&[1, 4, 5, 5])).input(&x(w));
                case.input(&x(&[out])).output(t, &[1, out, 5, 5])
            };
            let point = case(22).int("group", 1).input(&x(&[1, 4, 5, 5])).input(&x(&[3, 4, 1, 1]));
            let point = point.input(&x(&[3])).output(t, &[1, 3, 5, 5]);
            let bare = case(22).int("group", 1).input(&x(&[1, 4, 5, 5])).input(&x(&[3, 4, 2, 2]));
            let bare = bare.output(t, &[1, 3, 4, 4]);
            vec![conv(&[8, 4, 3, 3], 1, 8), conv(&[4, 1, 3, 3], 4, 4), point, bare]
        }
        "ConvTranspose" => {
            let case = || case(22).int("group", 1).ints("strides", &[2]).input(&x(&[1, 2, 3])).input(&x(&[2, 2, 3]));
            vec![case().output(t, &[1, 2, 7]), case().input(&x(&[2])).output(t, &[1, 2, 7])]
        }
        "DepthToSpace" => vec![case(13).int("blocksize", 2).input(&x(&[1, 8, 2, 3])).output(t, &[1, 2, 4, 6])],
        "SpaceToDepth" => vec![case(13).int("blocksize", 2).input(&x(&[1, 2, 4, 6])).output(t, &[1, 8, 2, 3])],
        "Expand" => vec![case(13).input(&x(&[3, 1])).constant(&list(&[2, 3, 4])).output(t, &[2, 3, 4])],
        "Gather" => vec![case(13).int("axis", 1).input(&x(&[2, 3, 2])).input(&list(&[0, 2])).output(t, &[2, 2, 2])],
        "GatherElements" => {
            let index = Tensor::new(&[2, 1], &[0i64, 1]);
            vec![case(13).int("axis", 1).input(&x(&[2, 3])).input(&index).output(t, &[2, 1])]
        }
        "Gemm" => {
            let gemm = |alpha: f32, beta: f32| {
                let case = case(13).float("alpha", alpha).float("beta", beta).int("transA", 1).int("transB", 0);
                case.input(&x(&[4, 9])).input(&x(&[4, 5]))
            };
            let with_c = [(1.0, 1.0), (2.0, 0.5)].map(|(alpha, beta)| gemm(alpha, beta).input(&x(&[5])));
            let without = [1.0, 2.0].map(|alpha| gemm(alpha, 1.0));
            with_c.into_iter().chain(without).map(|case| case.output(t, &[9, 5])).collect()
        }
        "MatMul" => {
            [3, 9].map(|m| case(13).input(&x(&[2, 1, m, 4])).input(&x(&[5, 4, 2])).output(t, &[2, 5, m, 2])).into()
        }
        "GroupNormalization" => vec![norm(21).int("num_groups", 2).input(&x(&[6])).output(t, &[2, 6, 4])],
        "InstanceNormalization" => vec![norm(22).input(&x(&[6])).output(t, &[2, 6, 4])],
        "LayerNormalization" => {
            let case =
                case(17).int("axis", -1).float("epsilon", 1e-5).input(&x(&[2, 6])).input(&x(&[6])).input(&x(&[6]));
            let bare = test(op, 17, tiles).int("axis", -1).float("epsilon", 1e-5).input(&x(&[2, 6])).input(&x(&[6]));
            vec![
                case.output(t, &[2, 6]).output(DType::F32, &[2, 1]).output(DType::F32, &[2, 1]),
                bare.output(t, &[2, 6]),
            ]
        }
        "RMSNormalization" | "SimplifiedLayerNormalization" => {
            let version = if op == "RMSNormalization" { 23 } else { 1 };
            let case = case(version).int("axis", -1).float("epsilon", 1e-5).input(&x(&[2, 6])).input(&x(&[6]));
            vec![case.output(t, &[2, 6])]
        }
        "LRN" => {
            let case = case(13).float("alpha", 0.1).float("beta", 0.7).float("bias", 1.0).int("size", 3);
            vec![case.input(&x(&[1, 5, 2])).output(t, &[1, 5, 2])]
        }
        "Pad" => ["constant", "reflect", "edge", "wrap"]
            .into_iter()
            .flat_map(|mode| {
                let pad = || case(25).text("mode", mode).input(&x(&[3, 4])).constant(&list(&[1, 0, 0, 2]));
                [pad().output(t, &[4, 6]), pad().input(&x(&[])).output(t, &[4, 6])]
            })
            .collect(),
        "Resize" | "Upsample" => {
            let version = if op == "Resize" { 19 } else { 9 };
            let scales = Tensor::new(&[2], &[1.0f32, 2.5]);
            ["nearest", "linear"]
                .into_iter()
                .filter(|mode| *mode == "nearest" || matches!(t, DType::F32 | DType::F16))
                .map(|mode| {
                    let case = case(version).text("mode", mode).input(&x(&[2, 3]));
                    let case = if op == "Resize" { case.skip() } else { case };
                    case.constant(&scales).output(t, &[2, 7])
                })
                .collect()
        }
        "Slice" => {
            let case = case(13).input(&x(&[5, 6])).constant(&list(&[4, 1])).constant(&list(&[-9, 5]));
            vec![case.constant(&list(&[0, 1])).constant(&list(&[-2, 2])).output(t, &[3, 2])]
        }
        "LogSoftmax" | "Softmax" => vec![case(13).int("axis", 1).input(&x(&[2, 5, 3])).output(t, &[2, 5, 3])],
        "Split" => vec![case(18).int("axis", 0).input(&x(&[5, 2])).output(t, &[3, 2]).output(t, &[2, 2])],
        "Tile" => vec![case(13).input(&x(&[2, 3])).constant(&list(&[2, 2])).output(t, &[4, 6])],
        "Transpose" => vec![case(25).ints("perm", &[2, 0, 1]).input(&x(&[2, 3, 4])).output(t, &[4, 2, 3])],
        "Trilu" => vec![case(14).int("upper", 1).input(&x(&[3, 4])).output(t, &[3, 4])],
        _ if op.starts_with("Reduce") => {
            let version = if op == "ReduceSum" { 13 } else { 18 };
            let version = if matches!(op, "ReduceMax" | "ReduceMin") { 20 } else { version };
            let case = |n: i64| case(version).input(&x(&[2, n, 3])).constant(&list(&[1])).output(t, &[2, 1, 3]);
            vec![case(5), case(500)]
        }
        _ => Vec::new(),
    }
}

#[test]
fn all_other_rows_translate_for_all_types() {
    let wise: Vec<&str> = [super::arith::KERNELS, super::cast::KERNELS, super::compare::KERNELS, super::unary::KERNELS]
        .concat()
        .iter()
        .map(|k| k.op)
        .collect();
    for kernel in FAMILIES.iter().copied().flatten().filter(|k| !k.view && !wise.contains(&k.op)) {
        for dtype in types(kernel) {
            for tiles in [false, true] {
                let cases = shaped(kernel.op, dtype, tiles);
                assert!(!cases.is_empty(), "{} has no case here", kernel.op);
                for (k, case) in cases.into_iter().enumerate() {
                    bind(case, &format!("{} {dtype}, tiles {tiles}, case {k}", kernel.op));
                }
            }
        }
    }
    let seen = SEEN.lock().unwrap();
    for name in [
        "batchnorm",
        "conv",
        "conv_depthwise",
        "conv_transposed",
        "gather",
        "gatherelements",
        "lrn",
        "matmul",
        "matmul_thin",
        "matmul_tiles",
        "move",
        "norm",
        "pad",
        "pool",
        "reduce",
        "reduce_shared",
        "resize",
        "resize_nearest",
        "softmax",
        "trilu",
    ] {
        assert!(seen.contains(name), "no case makes the shader {name}");
    }
}

/// A node that others follow: its operator and version, and the dimensions of its inputs and output.
type Head = (&'static str, u32, &'static [&'static [i64]], &'static [i64]);

/// Every kernel that takes element-wise nodes along.
const HEADS: &[Head] = &[
    ("BatchNormalization", 15, &[&[1, 4, 5, 5], &[4], &[4], &[4], &[4]], &[1, 4, 5, 5]),
    ("Conv", 22, &[&[1, 4, 5, 5], &[3, 4, 1, 1], &[3]], &[1, 3, 5, 5]),
    ("Conv", 22, &[&[1, 4, 5, 5], &[4, 4, 3, 3], &[4]], &[1, 4, 3, 3]),
    ("Conv", 22, &[&[1, 1, 5, 5], &[1, 1, 3, 3]], &[1, 1, 3, 3]),
    ("ConvTranspose", 22, &[&[1, 4, 5, 5], &[4, 2, 3, 3], &[2]], &[1, 2, 7, 7]),
    ("Gemm", 13, &[&[9, 4], &[4, 5], &[5]], &[9, 5]),
    ("MatMul", 13, &[&[2, 3, 4], &[2, 4, 5]], &[2, 3, 5]),
    ("MatMul", 13, &[&[2, 9, 4], &[2, 4, 5]], &[2, 9, 5]),
    ("Mul", 14, &[&[2, 3, 4], &[3, 1]], &[2, 3, 4]),
];

#[test]
fn chains_behind_kernels_translate() {
    for &(op, version, inputs, output) in HEADS {
        for (dtype, tiles) in [(DType::F32, false), (DType::F32, true), (DType::F16, false), (DType::F16, true)] {
            let settings = Settings { has_f16: true, largest: 128 << 20, tiles };
            let mut model = Model::new();
            let fixed = |dims: &[i64]| dims.iter().map(|&d| Dim::Fixed(d)).collect::<Vec<_>>();
            let value = |model: &mut Model, dims: &[i64], is_input: bool| {
                let value = model.value(&format!("v{}", model.value_count()), dtype, &fixed(dims));
                if is_input {
                    model.mark_input(value);
                }
                value
            };
            let read: Vec<ValueId> = inputs.iter().map(|dims| value(&mut model, dims, true)).collect();
            let values: Vec<ValueId> = (0..4).map(|_| value(&mut model, output, false)).collect();
            let (row, one) = (value(&mut model, &output[output.len() - 1..], true), value(&mut model, &[1], true));
            let head = model.call(op, version, &read, &values[..1]);
            for name in ["alpha", "beta", "epsilon"] {
                model.floats(head, name, &[0.5], false);
            }
            for name in ["transA", "transB", "training_mode"] {
                model.ints(head, name, &[0], false);
            }
            model.ints(head, "group", &[1], false);
            model.call("Relu", 14, &values[..1], &values[1..2]);
            model.call("Add", 14, &[row, values[1]], &values[2..3]);
            model.call("Div", 14, &[values[2], one], &values[3..]);
            model.mark_output(values[3]);
            let zeros = |dims: &[i64]| tensor(dtype, dims);
            let fed: Vec<Tensor> =
                inputs.iter().copied().chain([&output[output.len() - 1..], &[1]]).map(zeros).collect();
            let before = made().len();
            let session = Session::new(Kit::new(FAMILIES, "webgpu", settings), model, 1);
            let what = format!("{op} {dtype}, tiles {tiles}");
            let error = session.compile().expect(&what).run(&fed).expect_err(&what);
            assert!(error.contains("runs on a device only"), "{what}: {error}");
            let made = &made()[before..];
            let whole = made.iter().any(|text| ["max(", " + ", " / "].iter().all(|part| text.contains(part)));
            assert!(made.len() == 1 && whole, "{what} is {} shaders", made.len());
        }
    }
}

#[test]
fn refusals_name_what_they_refuse() {
    let x = tensor(DType::F32, &[2, 3]);
    let cases = [
        (
            test("Gelu", 20, false).text("approximate", "wild").input(&x),
            RejectCode::Attribute,
            "attribute approximate = wild",
        ),
        (test("Softmax", 13, false).int("axis", 2).input(&x), RejectCode::Attribute, "attribute axis = 2 is no axis"),
        (
            test("Relu", 14, false).input(&tensor(DType::F64, &[2, 3])),
            RejectCode::Dtype,
            "T = f64 (input 0) has no kernel",
        ),
        (test("Transpose", 25, false).ints("perm", &[0, 0]).input(&x), RejectCode::Attribute, "attribute perm"),
        (
            test("Pad", 25, false).text("mode", "constant").input(&x).input(&list(&[0, 0, 0, 0])),
            RejectCode::Shape,
            "input 1 (pads) is data",
        ),
        (
            test("MaxPool", 22, false).input(&tensor(DType::F32, &[1, 1, 2])),
            RejectCode::Attribute,
            "attribute kernel_shape is missing",
        ),
    ];
    for (case, code, part) in cases {
        let (found, text) = case.output(DType::F32, &[2, 3]).rejection();
        assert!(found == code && text.contains(part), "{found}: {text}");
    }
    let small = Settings { has_f16: false, largest: 1024, tiles: false };
    let test = || OpTest::with(Kit::new(FAMILIES, "webgpu", small), "Relu", 14);
    let large = tensor(DType::F32, &[300]);
    let (code, text) = test().input(&large).output(DType::F32, &[300]).rejection();
    assert!(code == RejectCode::Memory && text.contains("input 0 has 1200 bytes"), "{text}");
    let half = tensor(DType::F16, &[3]);
    let (code, text) = test().input(&half).output(DType::F16, &[3]).rejection();
    assert!(code == RejectCode::Dtype && text.contains("no feature shader-f16"), "{text}");
}
