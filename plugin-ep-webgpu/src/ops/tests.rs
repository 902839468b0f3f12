//! Every row bound for every type that it takes, without a GPU: each shader that comes out of it must be valid, and must
//! translate for Vulkan, Metal and Direct3D.

use super::{FAMILIES, Settings};
use crate::shader::Shader;
use ortolan_ep_kit::testing::{OpTest, Tensor};
use ortolan_ep_kit::{DType, Kernel, Kit, RejectCode};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Names of shaders that were made in this process.
static SEEN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Called for each shader that is made: parses, validates and translates it.
pub fn check(shader: &Shader) {
    let text = &shader.text;
    let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(text)));
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::SHADER_FLOAT16);
    let info = validator.validate(&module).unwrap_or_else(|e| panic!("{}\n{text}", e.emit_to_string(text)));
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

/// A node of each operator that is not element-wise, as a function of its type.
fn shaped(op: &str, t: DType) -> Vec<OpTest> {
    let case = |version: u16| test(op, version, false);
    let x = |dims: &[i64]| tensor(t, dims);
    let norm = |version: u16| case(version).float("epsilon", 1e-5).input(&x(&[2, 6, 4])).input(&x(&[6]));
    match op {
        "AveragePool" | "MaxPool" => {
            let pool = case(22).ints("kernel_shape", &[2, 2]).ints("pads", &[1, 0, 0, 1]).int("count_include_pad", 1);
            vec![pool.input(&x(&[1, 2, 5, 5])).output(t, &[1, 2, 5, 5])]
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
            vec![conv(&[8, 4, 3, 3], 1, 8), conv(&[4, 1, 3, 3], 4, 4), point]
        }
        "ConvTranspose" => {
            let case = case(22).int("group", 1).ints("strides", &[2]).input(&x(&[1, 2, 3])).input(&x(&[2, 2, 3]));
            vec![case.output(t, &[1, 2, 7])]
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
            let gemm = |tiles: bool| {
                let case = test(op, 13, tiles).float("alpha", 2.0).float("beta", 0.5).int("transA", 1).int("transB", 0);
                case.input(&x(&[4, 3])).input(&x(&[4, 5])).input(&x(&[5])).output(t, &[3, 5])
            };
            vec![gemm(false), gemm(true)]
        }
        "MatMul" => {
            let product = |tiles| test(op, 13, tiles).input(&x(&[2, 1, 3, 4])).input(&x(&[5, 4, 2]));
            vec![product(false).output(t, &[2, 5, 3, 2]), product(true).output(t, &[2, 5, 3, 2])]
        }
        "GroupNormalization" => vec![norm(21).int("num_groups", 2).input(&x(&[6])).output(t, &[2, 6, 4])],
        "InstanceNormalization" => vec![norm(22).input(&x(&[6])).output(t, &[2, 6, 4])],
        "LayerNormalization" => {
            let case =
                case(17).int("axis", -1).float("epsilon", 1e-5).input(&x(&[2, 6])).input(&x(&[6])).input(&x(&[6]));
            vec![case.output(t, &[2, 6]).output(DType::F32, &[2, 1]).output(DType::F32, &[2, 1])]
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
        "Pad" => ["constant", "reflect"]
            .map(|mode| {
                let case = case(25).text("mode", mode).input(&x(&[3, 4])).constant(&list(&[1, 0, 0, 2]));
                case.input(&x(&[])).output(t, &[4, 6])
            })
            .into(),
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
            let cases = shaped(kernel.op, dtype);
            assert!(!cases.is_empty(), "{} has no case here", kernel.op);
            for (k, case) in cases.into_iter().enumerate() {
                bind(case, &format!("{} {dtype}, case {k}", kernel.op));
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
