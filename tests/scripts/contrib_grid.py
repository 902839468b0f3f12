"""The grids of `contrib_cases.py`: a function per family of operators, which adds its cases.

A generated case that ONNX Runtime refuses is a mistake of the grid and ends the script.
"""

import ml_dtypes
import numpy as np

from contrib_cases import Cases, Draw

F32, F64, F16 = np.float32, np.float64, np.float16
I32, I64, U8, I8 = np.int32, np.int64, np.uint8, np.int8
SHAPES = {"scalar_row": (1,), "row": (17,), "matrix": (3, 33), "cube": (2, 5, 64), "empty": (0, 8), "four": (2, 3, 4, 130)}


def gelus(cases: Cases):
    for name, dims in SHAPES.items():
        d = Draw(f"gelu {name}")
        x, bias = d.floats(*dims, scale=3), d.floats(dims[-1])
        cases.add("Gelu", name, [x])
        cases.add("QuickGelu", name, [x])
        cases.add("QuickGelu", f"{name}_alpha", [x], alpha=0.7)
        cases.add("BiasGelu", name, [x, bias])
        cases.add("FastGelu", name, [x])
        cases.add("FastGelu", f"{name}_bias", [x, bias])
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 30, -30, 1e-20], F32)
    cases.add("Gelu", "special", [x[3:]])
    cases.add("FastGelu", "special", [x[3:]])
    cases.add("QuickGelu", "special", [x[3:]])
    cases.add("BiasGelu", "constant", [x[3:], np.ones(5, F32)], constant=(1,))


def norms(cases: Cases):
    dims = {"one": (1, 1, 1), "small": (2, 3, 17), "wide": (1, 2, 768), "matrix": (5, 40), "empty": (0, 3, 8)}
    for name, shape in dims.items():
        for kind in (F32, F16):
            d = Draw(f"norm {name} {kind.__name__}")
            x, skip = d.floats(*shape, dtype=kind), d.floats(*shape, dtype=kind)
            gamma, beta, bias = (d.floats(shape[-1], dtype=kind) for _ in range(3))
            ends = f"{name}_{np.dtype(kind).name}"
            add = lambda op, more, inputs, outs=(kind,), **attrs: cases.add(op, f"{ends}{more}", inputs, outs, **attrs)
            add("SkipLayerNormalization", "", [x, skip, gamma])
            add("SkipLayerNormalization", "_beta", [x, skip, gamma, beta], epsilon=1e-5)
            add("SkipLayerNormalization", "_bias", [x, skip, gamma, None, bias])
            add("SkipLayerNormalization", "_all", [x, skip, gamma, beta, bias], (kind, None, None, kind))
            add("SkipSimplifiedLayerNormalization", "", [x, skip, gamma])
            add("SkipSimplifiedLayerNormalization", "_bias", [x, skip, gamma, bias], epsilon=1e-5)
            add("SkipSimplifiedLayerNormalization", "_sum", [x, skip, gamma, bias], (kind, None, None, kind))
    d = Draw("norm spread")
    x, gamma, beta = d.floats(3, 4, 16), d.floats(16), d.floats(16)
    for name, shape in {"first_of_one": (1, 4, 16), "without_batch": (4, 16)}.items():
        skip = d.floats(*shape)
        cases.add("SkipLayerNormalization", name, [x, skip, gamma, beta], (F32, None, None, F32))
        cases.add("SkipSimplifiedLayerNormalization", name, [x, skip, gamma], (F32, None, None, F32))
    cases.add("SkipLayerNormalization", "constant", [x, x[::-1].copy(), gamma, beta], constant=(2, 3))
    for name, shape, axis in [("last", (2, 3, 17), -1), ("two", (2, 3, 8), 1), ("all", (4, 5), 0), ("empty", (0, 7), -1)]:
        for kind in (F32, F64):
            d = Draw(f"simple {name} {kind.__name__}")
            x, scale = d.floats(*shape, dtype=kind), d.floats(*shape[axis:], dtype=kind)
            add = lambda more, outs, **attrs: cases.add(
                "SimplifiedLayerNormalization", f"{name}_{np.dtype(kind).name}{more}", [x, scale], outs, domain="", axis=axis, **attrs
            )
            add("", (kind,))
            add("_epsilon", (kind,), epsilon=1e-2, stash_type=1)


def embeddings(cases: Cases):
    for name, (batch, length, width) in {"one": (1, 1, 1), "small": (2, 5, 16), "wide": (3, 7, 130)}.items():
        d = Draw(f"embed {name}")
        ids, segments = d.ints(0, 11, batch, length, dtype=I32), d.ints(0, 2, batch, length, dtype=I32)
        words, places, kinds = d.floats(11, width), d.floats(9, width), d.floats(2, width)
        gamma, beta, mask = d.floats(width), d.floats(width), d.ints(0, 2, batch, length, dtype=I32)
        mask = np.sort(mask)[:, ::-1].copy()
        own, shared = d.ints(0, 9, batch, length, dtype=I32), d.ints(0, 9, 1, length, dtype=I32)
        add = lambda more, inputs, outs=(F32,), **attrs: cases.add("EmbedLayerNormalization", name + more, inputs, outs, **attrs)
        add("", [ids, segments, words, places, kinds, gamma, beta], (F32, I32))
        add("_mask", [ids, segments, words, places, kinds, gamma, beta, mask], (F32, I32), epsilon=1e-3)
        add("_no_segments", [ids, None, words, places, None, gamma, beta], (F32, I32))
        add("_sum", [ids, segments, words, places, kinds, gamma, beta, mask], (F32, I32, F32))
        add("_places", [ids, segments, words, places, kinds, gamma, beta, None, own], (F32, I32, F32))
        add("_shared_places", [ids, None, words, places, None, gamma, beta, mask, shared], (F32, I32, F32))
        add("_constant", [ids, segments, words, places, kinds, gamma, beta, mask], (F32, I32), constant=(2, 3, 4, 5, 6))


def products(cases: Cases):
    shapes = {
        "matrix": ((3, 5), (5, 7)),
        "one": ((1, 1), (1, 1)),
        "large": ((65, 130), (130, 33)),
        "empty": ((0, 4), (4, 3)),
        "batch": ((2, 3, 4), (2, 4, 5)),
        "spread": ((2, 1, 3, 4), (3, 4, 5)),
        "shared": ((2, 6, 3, 4), (4, 5)),
        "none": ((0, 3, 4), (0, 4, 5)),
    }
    for name, (a, b) in shapes.items():
        for kind in (F32, F64):
            d = Draw(f"product {name}")
            x, w = d.floats(*a, dtype=kind), d.floats(*b, dtype=kind)
            turn = lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2))
            add = lambda more, inputs, **attrs: cases.add("FusedMatMul", f"{name}_{np.dtype(kind).name}{more}", inputs, (kind,), **attrs)
            add("", [x, w], alpha=0.5)
            add("_a", [turn(x), w], transA=1)
            add("_b", [x, turn(w)], transB=1, alpha=-2.0)
            add("_ab", [turn(x), turn(w)], transA=1, transB=1)
            add("_constant", [x, turn(w)], transB=1, constant=(1,))
    for name, (a, b, attrs) in {
        "batch_a": ((4, 2, 5), (2, 5, 3), dict(transBatchA=1)),
        "batch_b": ((2, 4, 5), (5, 2, 3), dict(transBatchB=1)),
        "batch_ab": ((4, 2, 3, 5), (5, 2, 3, 6), dict(transBatchA=1, transBatchB=1)),
        "batch_a_turned": ((5, 2, 4), (2, 5, 3), dict(transBatchA=1, transA=1)),
        "batch_b_turned": ((2, 4, 5), (3, 2, 5), dict(transBatchB=1, transB=1, alpha=0.25)),
    }.items():
        d = Draw(name)
        cases.add("FusedMatMul", name, [d.floats(*a), d.floats(*b)], **attrs)
    acts = {
        "": {},
        "relu": dict(activation="Relu"),
        "leaky": dict(activation="LeakyRelu", activation_alpha=0.2),
        "tanh": dict(activation="Tanh"),
        "sigmoid": dict(activation="Sigmoid"),
        "hardsigmoid": dict(activation="HardSigmoid", activation_alpha=0.3, activation_beta=0.4),
        "elu": dict(activation="Elu", activation_alpha=0.7),
        "selu": dict(activation="Selu", activation_alpha=1.3, activation_gamma=0.8),
        "softplus": dict(activation="Softplus"),
        "softsign": dict(activation="Softsign"),
        "thresholded": dict(activation="ThresholdedRelu", activation_alpha=0.5),
    }
    for name, attrs in acts.items():
        if not name:
            continue
        d = Draw(f"gemm {name}")
        a, b, c = d.floats(5, 7), d.floats(7, 33), d.floats(33)
        cases.add("FusedGemm", name, [a, b, c], **attrs)
        cases.add("FusedGemm", f"{name}_turned", [a.T.copy(), b.T.copy(), c], transA=1, transB=1, alpha=0.5, beta=2.0, **attrs)
    d = Draw("gemm more")
    relu = dict(activation="Relu")
    cases.add("FusedGemm", "without_c", [d.floats(3, 4), d.floats(4, 5)], **relu)
    cases.add("FusedGemm", "matrix_c", [d.floats(3, 4), d.floats(4, 5), d.floats(3, 5)], beta=-1.0, **relu)
    cases.add("FusedGemm", "column_c", [d.floats(3, 4), d.floats(4, 5), d.floats(3, 1)], **relu)
    cases.add("FusedGemm", "scalar_c", [d.floats(3, 4), d.floats(4, 5), d.floats(1)], **relu)
    cases.add("FusedGemm", "constant", [d.floats(9, 64), d.floats(64, 50), d.floats(50)], constant=(1, 2), **relu)
    cases.add("FusedGemm", "empty", [d.floats(0, 4), d.floats(4, 5), d.floats(5)], **relu)


def convolutions(cases: Cases):
    acts = {
        "plain": {},
        "relu": dict(activation="Relu"),
        "tanh": dict(activation="Tanh"),
        "sigmoid": dict(activation="Sigmoid"),
        "leaky": dict(activation="LeakyRelu", activation_params=[0.1]),
        "clip": dict(activation="Clip", activation_params=[-0.3, 0.6]),
        "hardsigmoid": dict(activation="HardSigmoid", activation_params=[0.2, 0.4]),
    }
    shapes = {
        "line": ((2, 3, 9), (4, 3, 3), dict(pads=[1, 0])),
        "image": ((1, 3, 8, 9), (5, 3, 3, 3), dict(pads=[1, 1, 1, 1], strides=[2, 1])),
        "depthwise": ((1, 4, 7, 7), (4, 1, 3, 3), dict(group=4)),
        "pointwise": ((2, 6, 5, 5), (8, 6, 1, 1), {}),
        "volume": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), dict(dilations=[1, 1, 2])),
    }
    for name, (x, w, window) in shapes.items():
        for act, attrs in acts.items():
            d = Draw(f"conv {name} {act}")
            image, filters, bias = d.floats(*x), d.floats(*w, scale=0.3), d.floats(w[0])
            cases.add("FusedConv", f"{name}_{act}", [image, filters, bias], **window, **attrs)
    d = Draw("conv more")
    x, w, b, z = d.floats(1, 3, 6, 6), d.floats(4, 3, 3, 3), d.floats(4), d.floats(1, 4, 6, 6)
    same = dict(pads=[1, 1, 1, 1])
    cases.add("FusedConv", "without_bias", [x, w], activation="Relu", **same)
    cases.add("FusedConv", "added", [x, w, b, z], activation="Relu", **same)
    cases.add("FusedConv", "added_without_bias", [x, w, None, z], activation="Tanh", **same)
    cases.add("FusedConv", "added_plain", [x, w, b, z], **same)
    cases.add("FusedConv", "constant", [x, w, b], activation="Relu", constant=(1, 2), auto_pad="SAME_UPPER")


def matrices(cases: Cases):
    for kind in (F32, F64, F16):
        for name, dims in {"one": (1, 1), "two": (2, 2), "odd": (7, 7), "batch": (3, 2, 5, 5), "large": (40, 40), "empty": (0, 3, 3)}.items():
            d = Draw(f"inverse {name}")
            x = d.floats(*dims, dtype=F64) + np.eye(dims[-1]) * (3 if name != "two" else 0) * dims[-1] ** 0.5
            if kind == F16:  # ONNX Runtime rounds each step to f16; powers of two have one answer
                x = np.exp2(d.ints(-3, 4, *dims)) * np.eye(dims[-1])[d.rng.permutation(dims[-1])]
            cases.add("Inverse", f"{name}_{np.dtype(kind).name}", [x.astype(kind)], (kind,))
    for kind in (F32, F64):
        for metric in ("euclidean", "sqeuclidean"):
            for name, (m, n, k) in {"one": (1, 1, 1), "odd": (5, 7, 3), "wide": (4, 9, 130), "tall": (70, 33, 2)}.items():
                d = Draw(f"distance {name}")
                a, b = d.floats(m, k, dtype=kind), d.floats(n, k, dtype=kind)
                cases.add("CDist", f"{metric}_{name}_{np.dtype(kind).name}", [a, b], (kind,), metric=metric)
    for kind in (F32, F64, I64):
        d = Draw("triangle")
        x = (d.floats(2, 4, 5, dtype=F64) * 9).astype(kind)
        for upper in (0, 1):
            end = f"{np.dtype(kind).name}_{upper}"
            cases.add("Trilu", end, [x], (kind,), upper=upper)
            cases.add("Trilu", f"{end}_matrix", [x[0]], (kind,), upper=upper)
            for k in (-9, -2, 1, 3, 9):
                cases.add("Trilu", f"{end}_{k}", [x, np.array(k, I64)], (kind,), upper=upper)
            cases.add("Trilu", f"{end}_constant", [x, np.array(1, I64)], (kind,), upper=upper, constant=(1,))
    for kind in (F32, F64, np.int16, I32, I64):
        name = np.dtype(kind).name
        one = lambda x: np.array(x, kind)
        for more, (start, limit, delta) in {"up": (1, 8, 2), "down": (9, -4, -3), "none": (3, 3, 1), "backwards": (3, 9, -1)}.items():
            cases.add("Range", f"{name}_{more}", [one(start), one(limit), one(delta)], (kind,))
        cases.add("Range", f"{name}_default", [one(2), one(7)], (kind,))
        cases.add("Range", f"{name}_lists", [np.array([2], kind), np.array([7], kind), np.array([2], kind)], (kind,))
        cases.add("Range", f"{name}_constant", [one(2), one(12), one(5)], (kind,), constant=(0, 1, 2))
    cases.add("Range", "float32_parts", [np.array(0.5, F32), np.array(2.1, F32), np.array(0.3, F32)])


def codes(d: Draw, kind, *dims):
    """Codes of every value that their type has."""
    info = np.iinfo(kind)
    return d.ints(info.min, info.max + 1, *dims, dtype=kind)


def one(x, kind=F32):
    return np.array(x, kind)


PAIRS = {"uint8_uint8": (U8, U8), "uint8_int8": (U8, I8), "int8_int8": (I8, I8)}
MATRICES = {
    "one": ((1, 1), (1, 1)),
    "odd": ((3, 5), (5, 7)),
    "large": ((17, 130), (130, 65)),
    "rows": ((2, 3, 16), (16, 9)),
    "batch": ((2, 3, 16), (2, 16, 9)),
    "empty": ((0, 8), (8, 4)),
}


def quantized_products(cases: Cases):
    for name, (a, b) in MATRICES.items():
        for kinds, (left, right) in PAIRS.items():
            d = Draw(f"integer {name} {kinds}")
            x, w, n = codes(d, left, *a), codes(d, right, *b), b[-1]
            scale, scales = one(0.013), d.between(0.001, 0.02, n)
            zero, zeros = one(5, right), codes(d, right, n)
            add = lambda more, inputs, **more_of: cases.add("MatMulIntegerToFloat", f"{name}_{kinds}{more}", inputs, **more_of)
            add("", [x, w, one(0.02), scale])
            add("_zeros", [x, w, one(0.02), scale, one(3, left), zero])
            add("_bias", [x, w, np.array([0.02], F32), scale, None, zero, d.floats(n)])
            if len(b) == 2:
                add("_columns", [x, w, one(0.02), scales, one(3, left), zeros, d.floats(n)])
                add("_flat_columns", [x, w, one(0.02), scales[None], one(3, left), zeros[None]])
                add("_constant", [x, w, one(0.02), scales, None, zeros, d.floats(n)], constant=(1, 3, 5, 6))
        for kind in (U8, I8):
            d = Draw(f"dynamic {name} {kind.__name__}")
            x, w, n = d.floats(*a), codes(d, kind, *b), b[-1]
            scales, zeros, bias = d.between(0.001, 0.02, n), codes(d, kind, n), d.floats(n)
            add = lambda more, inputs, **more_of: cases.add(
                "DynamicQuantizeMatMul", f"{name}_{np.dtype(kind).name}{more}", inputs, **more_of
            )
            add("", [x, w, one(0.01)])
            add("_zero", [x, w, one(0.01), one(7, kind)])
            add("_bias", [x, w, one(0.01), None, bias])
            if len(b) == 2:
                add("_columns", [x, w, scales, zeros])
                add("_constant", [x, w, scales, zeros, bias], constant=(1, 2, 3, 4))
    for name in ("one", "odd", "large", "empty"):
        a, b = MATRICES[name]
        for kinds, (left, right) in PAIRS.items():
            d = Draw(f"qgemm {name} {kinds}")
            x, w, (m, n) = codes(d, left, *a), codes(d, right, *b), (a[0], b[1])
            base = [x, one(0.02), one(4, left), w, one(0.01), one(9, right)]
            scales, zeros = d.between(0.005, 0.02, n), codes(d, right, n)
            row, whole = d.ints(-500, 500, n, dtype=I32), d.ints(-500, 500, m, n, dtype=I32)
            columns = [x, one(0.02), one(4, left), w, scales, zeros]
            to = [one(0.37), one(11, left)]
            add = lambda more, inputs, kind, **attrs: cases.add("QGemm", f"{name}_{kinds}{more}", inputs, (kind,), **attrs)
            add("", base, F32)
            add("_row", [*base, row], F32, alpha=0.5)
            add("_whole", [*columns, whole], F32)
            add("_codes", [*base, None, *to], left)
            add("_codes_row", [*columns, row, *to], left)
            turned = [x.T.copy(), *base[1:3], w.T.copy(), *base[4:]]
            add("_turned", [*turned, row, *to], left, transA=1, transB=1)
            add("_turned_b", [x, *base[1:3], w.T.copy(), *base[4:], row], F32, transB=1)
            add("_constant", [*base[:3], w.T.copy(), scales, zeros, row, *to], left, transB=1, constant=(3, 4, 5, 6))


def quantized_elements(cases: Cases):
    spread = {
        "same": ((3, 17), (3, 17)),
        "long": ((2, 3, 131), (2, 3, 131)),
        "scalar": ((5, 9), ()),
        "scalar_first": ((), (5, 9)),
        "row": ((4, 6), (6,)),
        "column": ((4, 1), (4, 6)),
        "both": ((2, 1, 5), (3, 1)),
        "empty": ((0, 3), (3,)),
    }
    for op in ("QLinearAdd", "QLinearMul"):
        for name, (a, b) in spread.items():
            for kind in (U8, I8):
                d = Draw(f"{op} {name}")
                x, y = codes(d, kind, *a), codes(d, kind, *b)
                scales = (0.0371, 0.0193, 0.0531 if op == "QLinearAdd" else 0.1131)
                zero = lambda x: one(x, kind)
                full = [x, one(scales[0]), zero(12), y, one(scales[1]), zero(3), one(scales[2]), zero(7)]
                cases.add(op, f"{name}_{np.dtype(kind).name}", full, (kind,))
                # ONNX Runtime's inference fails without the zero points of the inputs.
                cases.add(op, f"{name}_{np.dtype(kind).name}_bare", full[:-1], (kind,))
        cases.add(op, "constant", full, (kind,), constant=(1, 2, 3, 4, 5, 6, 7))
    for kind in (U8, I8):
        every = np.arange(np.iinfo(kind).min, np.iinfo(kind).max + 1).astype(kind)
        for name, x in {"all": every, "one": every[:1], "cube": every.reshape(2, 8, 16), "empty": every[:0].reshape(0, 4)}.items():
            end = f"{name}_{np.dtype(kind).name}"
            zero = lambda x: one(x, kind)
            cases.add("QLinearSigmoid", end, [x, one(0.037), zero(20), one(1 / 256), zero(0)], (kind,))
            cases.add("QLinearSigmoid", f"{end}_coarse", [x, one(0.11), zero(9), one(1 / 200), zero(1)], (kind,))
            cases.add("QLinearLeakyRelu", end, [x, one(0.037), zero(20), one(0.041), zero(5)], (kind,))
            cases.add("QLinearLeakyRelu", f"{end}_alpha", [x, one(0.037), zero(20), one(0.041), zero(1)], (kind,), alpha=0.27)
        cases.add("QLinearSigmoid", f"constant_{np.dtype(kind).name}", [every, one(0.037), one(20, kind), one(1 / 256), one(0, kind)], (kind,), constant=(1, 2, 3, 4))
        cases.add("QLinearLeakyRelu", f"constant_{np.dtype(kind).name}", [every, one(0.037), one(20, kind), one(0.041), one(5, kind)], (kind,), constant=(1, 2, 3, 4))
    for kind in (U8, I8):
        for name, dims in {"row": (1, 17), "matrix": (5, 64), "cube": (2, 3, 40), "four": (2, 3, 4, 5), "empty": (0, 7)}.items():
            d = Draw(f"qsoftmax {name} {kind.__name__}")
            x = codes(d, kind, *dims)
            low = np.iinfo(kind).min
            for opset in (11, 13):
                for axis in {-1, 1, 0} if name != "empty" else {-1}:
                    base = [x, one(0.031), one(3, kind), one(1 / 256), one(low, kind)]
                    cases.add("QLinearSoftmax", f"{name}_{np.dtype(kind).name}_{opset}_{axis}", base, (kind,), opset=opset, axis=axis)
            coarse = [x, one(0.11), one(1, kind), one(0.01), one(low + 3, kind)]
            cases.add("QLinearSoftmax", f"{name}_{np.dtype(kind).name}_coarse", coarse, (kind,), opset=13)
            cases.add("QLinearSoftmax", f"{name}_{np.dtype(kind).name}_constant", base, (kind,), opset=13, constant=(1, 2, 3, 4))
    for kind in (U8, I8):
        for name, (dims, axis) in {"rows": ([(2, 5), (3, 5)], 0), "columns": ([(3, 2), (3, 4), (3, 1)], 1), "back": ([(2, 3, 4), (2, 3, 5)], -1), "one": ([(4,)], 0), "empty": ([(0, 3), (2, 3)], 0)}.items():
            d = Draw(f"join {name}")
            same = [v for k, shape in enumerate(dims) for v in (codes(d, kind, *shape), one(0.02), one(7, kind))]
            own = [v for k, shape in enumerate(dims) for v in (codes(d, kind, *shape), one(0.013 + 0.011 * k), one(9 * k, kind))]
            end = f"{name}_{np.dtype(kind).name}"
            cases.add("QLinearConcat", end, [one(0.02), one(7, kind), *same], (kind,), axis=axis)
            cases.add("QLinearConcat", f"{end}_scales", [one(0.017), one(3, kind), *own], (kind,), axis=axis)
            fixed = [0, 1, *(2 + 3 * k + i for k in range(len(dims)) for i in (1, 2))]
            cases.add("QLinearConcat", f"{end}_constant", [one(0.017), one(3, kind), *own], (kind,), axis=axis, constant=fixed)


def quantized_pools(cases: Cases):
    windows = {
        "line": ((2, 3, 9), dict(kernel_shape=[3])),
        "line_pads": ((1, 2, 8), dict(kernel_shape=[3], pads=[1, 1], strides=[2])),
        "image": ((1, 3, 6, 7), dict(kernel_shape=[2, 3], strides=[2, 1])),
        "image_pads": ((2, 5, 6, 7), dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])),
        "image_uneven": ((1, 4, 7, 7), dict(kernel_shape=[3, 3], pads=[0, 1, 2, 1], strides=[2, 2])),
        "image_ceil": ((1, 2, 7, 8), dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)),
        "image_same": ((1, 70, 5, 6), dict(kernel_shape=[3, 2], auto_pad="SAME_UPPER", strides=[2, 2])),
        "image_lower": ((1, 2, 5, 6), dict(kernel_shape=[3, 2], auto_pad="SAME_LOWER")),
        "image_valid": ((1, 2, 5, 6), dict(kernel_shape=[3, 2], auto_pad="VALID")),
        "volume": ((1, 2, 4, 5, 6), dict(kernel_shape=[2, 3, 2], strides=[1, 2, 2], pads=[1, 0, 0, 0, 1, 1])),
    }
    for kind in (U8, I8):
        for name, (dims, window) in windows.items():
            d = Draw(f"pool {name} {kind.__name__}")
            x, end = codes(d, kind, *dims), f"{name}_{np.dtype(kind).name}"
            last = np.moveaxis(x, 1, -1).copy()
            zero = lambda x: one(x, kind)
            to = [one(0.0371), zero(12), one(0.0293), zero(3)]
            add = lambda op, more, inputs, **attrs: cases.add(op, end + more, inputs, (kind,), **(window | attrs))
            add("QLinearAveragePool", "", [x, *to])
            add("QLinearAveragePool", "_last", [last, *to], channels_last=1)
            if "ceil" not in name:  # where ONNX Runtime counts what lies beyond the padding, too
                add("QLinearAveragePool", "_padding", [x, *to], count_include_pad=1)
                add("QLinearAveragePool", "_last_padding", [last, *to], count_include_pad=1, channels_last=1)
            add("NhwcMaxPool", "", [last])
        d = Draw(f"greatest {kind.__name__}")
        x = codes(d, kind, 1, 9, 9, 6)
        cases.add("NhwcMaxPool", f"dilated_{np.dtype(kind).name}", [x], (kind,), kernel_shape=[3, 3], dilations=[2, 3], pads=[1, 1, 1, 1])
        for name, dims in {"line": (2, 3, 9), "image": (2, 5, 6, 7), "one": (1, 1, 1, 1), "wide": (1, 70, 14, 14), "volume": (1, 3, 2, 3, 4), "empty": (0, 3, 4, 4)}.items():
            d = Draw(f"global {name} {kind.__name__}")
            x = codes(d, kind, *dims)
            to = [one(0.0371), one(12, kind), one(0.0293), one(3, kind)]
            end = f"{name}_{np.dtype(kind).name}"
            cases.add("QLinearGlobalAveragePool", end, [x, *to], (kind,))
            cases.add("QLinearGlobalAveragePool", f"{end}_last", [np.moveaxis(x, 1, -1).copy(), *to], (kind,), channels_last=1)
            cases.add("QLinearGlobalAveragePool", f"{end}_constant", [x, *to], (kind,), constant=(1, 2, 3, 4))


def quantized_networks(cases: Cases):
    ways = {"forward": 1, "reverse": 1, "bidirectional": 2}
    for name, (steps, batch, width, hidden) in {"one": (1, 1, 1, 1), "small": (3, 2, 5, 4), "wide": (7, 3, 33, 17)}.items():
        for way, count in ways.items():
            for kind in (U8, I8):
                d = Draw(f"lstm {name} {way} {kind.__name__}")
                x = d.floats(steps, batch, width)
                w, r = codes(d, kind, count, width, 4 * hidden), codes(d, kind, count, hidden, 4 * hidden)
                scales = [d.between(0.002, 0.01, count) for _ in range(2)]
                each = [d.between(0.002, 0.01, count, 4 * hidden) for _ in range(2)]
                zeros = [np.full(count, 1, kind) for _ in range(2)] if kind is U8 else [np.zeros(count, kind) for _ in range(2)]
                bias, peep = d.floats(count, 8 * hidden, scale=0.2), d.floats(count, 3 * hidden, scale=0.2)
                start, cell = d.floats(count, batch, hidden), d.floats(count, batch, hidden)
                # Shorter sequences have scales that depend on what ONNX Runtime leaves in their places.
                lens = np.full(batch, steps, I32)
                base = dict(hidden_size=hidden, direction=way)
                quantities = [scales[0], zeros[0], scales[1], zeros[1]]
                fixed = (1, 2, 8, 9, 10, 11)
                add = lambda more, inputs, outs=(F32, F32, F32), constant=fixed, **attrs: cases.add(
                    "DynamicQuantizeLSTM", f"{name}_{way}_{np.dtype(kind).name}{more}", inputs, outs, constant, **(base | attrs)
                )
                add("", [x, w, r, None, None, None, None, None, *quantities])
                add("_full", [x, w, r, bias, lens, start, cell, peep, *quantities])
                add("_last", [x, w, r, bias, None, start, cell, None, *quantities], (None, F32, F32), clip=0.6)
                add("_run_time", [x, w, r, bias, None, None, None, None, *quantities], constant=())
                if kind is I8:
                    columns = [each[0], np.zeros((count, 4 * hidden), kind), each[1], np.zeros((count, 4 * hidden), kind)]
                    add("_columns", [x, w, r, bias, None, None, None, None, *columns])


def attentions(cases: Cases):
    sizes = {"one": (1, 1, 1, 4, 3), "small": (2, 3, 2, 4, 5), "wide": (1, 9, 4, 16, 64), "long": (2, 70, 2, 8, 16)}
    for name, (batch, length, heads, size, width) in sizes.items():
        d = Draw(f"attention {name}")
        row = heads * size
        x, w, bias = d.floats(batch, length, width), d.floats(width, 3 * row, scale=0.3), d.floats(3 * row)
        ends = d.ints(1, length + 1, batch, dtype=I32)
        keys = d.ints(0, 2, batch, length, dtype=I32)
        keys[:, 0] = 1
        pairs = d.ints(0, 2, batch, length, length, dtype=I32)
        pairs[:, :, 0] = 1
        past = d.floats(2, batch, heads, 4, size)
        base = dict(num_heads=heads)
        add = lambda more, inputs, outs=(F32,), constant=(), **attrs: cases.add("Attention", name + more, inputs, outs, constant, **(base | attrs))
        add("", [x, w, bias])
        add("_no_bias", [x, w, None])
        add("_causal", [x, w, bias], unidirectional=1)
        add("_scale", [x, w, bias], scale=0.21)
        add("_constant", [x, w, bias], constant=(1, 2))
        add("_ends", [x, w, bias, ends])
        add("_ends_starts", [x, w, bias, np.concatenate([ends, ends - 1])])
        add("_ends_and_more", [x, w, bias, np.concatenate([ends, ends - 1, d.ints(0, 9, batch + 2, dtype=I32)])])
        add("_keys", [x, w, bias, keys])
        add("_keys_causal", [x, w, bias, keys], unidirectional=1)
        add("_pairs", [x, w, bias, pairs])
        add("_filter", [x, w, bias, keys * 0], mask_filter_value=-3.0)
        add("_present", [x, w, bias], (F32, F32))
        add("_past", [x, w, bias, None, past], (F32, F32))
        add("_past_causal", [x, w, bias, None, past], (F32, F32), unidirectional=1)
        seen = np.concatenate([np.ones((batch, 4), I32), keys], 1)
        add("_past_keys", [x, w, bias, seen, past], (F32, F32), unidirectional=1)
        add("_past_ends", [x, w, bias, ends + 4, past], (F32, F32))
        for more, dims in {"one": (1, 1), "heads": (1, heads), "batch": (batch, 1), "all": (batch, heads)}.items():
            add(f"_added_{more}", [x, w, bias, None, None, d.floats(*dims, length, length)])
        add("_added_keys", [x, w, bias, keys, None, d.floats(1, heads, length, length)], unidirectional=1)
        half = size // 2
        own = [row, row, heads * half]
        add("_widths", [x, d.floats(width, sum(own)), d.floats(sum(own))], qkv_hidden_sizes=own)
        for kinds, (left, right) in {"uint8_uint8": (U8, U8), "uint8_int8": (U8, I8)}.items():
            d = Draw(f"qattention {name} {kinds}")
            codes_x, codes_w = codes(d, left, batch, length, width), codes(d, right, width, 3 * row)
            scales, zeros = d.between(0.0005, 0.002, 3 * row), codes(d, right, 3 * row)
            add = lambda more, inputs, outs=(F32,), constant=(), **attrs: cases.add(
                "QAttention", f"{name}_{kinds}{more}", inputs, outs, constant, **(base | attrs)
            )
            quantity = [bias, one(0.01), one(0.001)]
            zero = [one(120, left), one(3, right)]
            add("", [codes_x, codes_w, *quantity])
            add("_zeros", [codes_x, codes_w, *quantity, None, *zero])
            add("_columns", [codes_x, codes_w, bias, one(0.01), scales, ends, zero[0], zeros], constant=(1, 2, 3, 4, 6, 7))
            add("_keys", [codes_x, codes_w, *quantity, keys, *zero], unidirectional=1)
            add("_scale", [codes_x, codes_w, *quantity, None, *zero], scale=0.1)
            add("_past", [codes_x, codes_w, *quantity, None, *zero, past], (F32, F32), unidirectional=1)
            add("_present", [codes_x, codes_w, *quantity, None, *zero], (F32, F32))


def multi_heads(cases: Cases):
    sizes = {"one": (1, 1, 1, 1, 4, 4), "small": (2, 3, 5, 2, 4, 3), "wide": (1, 9, 9, 4, 16, 16), "long": (2, 70, 33, 2, 8, 24)}
    for name, (batch, length, keys, heads, size, value) in sizes.items():
        d = Draw(f"multi {name}")
        row, wide = heads * size, heads * value
        q, k, v, other = d.floats(batch, length, row), d.floats(batch, keys, row), d.floats(batch, keys, wide), d.floats(batch, keys, row)
        bias = d.floats(row + row + wide)
        by_heads = [np.ascontiguousarray(x.reshape(batch, keys, heads, size).swapaxes(1, 2)) for x in (k, other)]
        ends = d.ints(1, keys + 1, batch, dtype=I32)
        seen = d.ints(0, 2, batch, keys, dtype=I32)
        pairs = d.ints(0, 2, batch, length, keys, dtype=I32)
        seen[:, 0], pairs[:, :, 0] = 1, 1
        past, biases = [d.floats(batch, heads, 6, size), d.floats(batch, heads, 6, size)], d.floats(3 * row)
        base, three, four = dict(num_heads=heads), (F32, F32, F32), (F32, F32, F32, F32)
        add = lambda more, inputs, outs=(F32,), constant=(), **attrs: cases.add(
            "MultiHeadAttention", name + more, inputs, outs, constant, **(base | attrs)
        )
        add("", [q, k, v])
        add("_bias", [q, k, v, bias])
        add("_constant", [q, k, v, bias], constant=(3,))
        add("_heads", [q, *by_heads])
        add("_heads_bias", [q, *by_heads, d.floats(3 * row)])
        add("_ends", [q, k, v, None, ends])
        add("_more_ends", [q, k, v, None, np.concatenate([ends, d.ints(0, 9, 2 * batch + 2, dtype=I32)])])
        add("_keys", [q, k, v, bias, seen])
        add("_pairs", [q, k, v, None, pairs])
        add("_filter", [q, k, v, None, seen * 0], mask_filter_value=-3.0)
        add("_scale", [q, k, v], scale=0.21)
        for more, dims in {"one": (1, 1), "heads": (1, heads), "batch": (batch, 1), "all": (batch, heads)}.items():
            add(f"_added_{more}", [q, k, v, None, None, d.floats(*dims, length, keys)])
        add("_added_keys", [q, k, v, None, seen, d.floats(1, heads, length, keys)])
        add("_present", [q, k, v], three)
        add("_present_bias", [q, k, v, bias], three)
        add("_scores", [q, k, v], four)
        add("_scores_mask", [q, k, v, bias, seen], (F32, None, None, F32))
        add("_past", [q, k, other, None, None, None, *past], three)
        add("_past_bias", [q, k, other, biases, np.concatenate([np.ones((batch, 6), I32), seen], 1), d.floats(1, 1, length, keys + 6), *past], three)
        if length == keys:  # ONNX Runtime lets the last query see all keys, wherever it stands
            add("_causal", [q, k, v], unidirectional=1)
            add("_causal_scores", [q, k, v], (F32, None, None, F32), unidirectional=1)
            add("_causal_past", [q, k, other, biases, None, None, *past], three, unidirectional=1)


def grouped(cases: Cases):
    sizes = {"one": (1, 1, 1, 1, 16), "small": (2, 3, 4, 2, 16), "wide": (2, 17, 6, 2, 32), "long": (1, 70, 4, 4, 16)}
    for name, (batch, length, heads, kept, size) in sizes.items():
        for kind in (F32, F16):
            if kind is F16 and name == "long":
                continue
            d = Draw(f"group {name}")
            end = f"{name}_{np.dtype(kind).name}"
            floats = lambda *dims: d.floats(*dims, dtype=kind)
            q, k, v = floats(batch, length, heads * size), floats(batch, length, kept * size), floats(batch, length, kept * size)
            base, three, four = dict(num_heads=heads, kv_num_heads=kept), (kind,) * 3, (kind,) * 4
            add = lambda more, inputs, outs=three, **attrs: cases.add("GroupQueryAttention", end + more, inputs, outs, **(base | attrs))
            lens = lambda n: np.full(batch, n - 1, I32)
            prompt = [None, None, lens(length), one(length, I32)]
            angles = d.between(-3, 3, length + 20, size // 2)
            if kind is F16:  # ONNX Runtime rounds what is turned; quarter turns need no rounding
                angles = d.ints(-4, 5, *angles.shape) * (np.pi / 2)
            caches = [np.round(f(angles), 0 if kind is F16 else 9).astype(kind) for f in (np.cos, np.sin)]
            add("", [q, k, v, *prompt])
            add("_list", [q, k, v, None, None, lens(length), np.array([length], I32)])
            add("_packed", [np.concatenate([q, k, v], -1), None, None, *prompt])
            add("_scale", [q, k, v, *prompt], scale=0.3)
            add("_window", [q, k, v, *prompt], local_window_size=2)
            add("_cap", [q, k, v, *prompt], softcap=1.5)
            add("_both_ways", [q, k, v, *prompt], causal=0)
            add("_smooth", [q, k, v, *prompt], smooth_softmax=1)
            add("_sink", [q, k, v, *prompt, None, None, None, None, floats(heads)])
            add("_added", [q, k, v, *prompt, None, None, None, floats(batch, heads, length, length)])
            add("_turned", [q, k, v, *prompt, *caches], do_rotary=1)
            add("_turned_pairs", [q, k, v, *prompt, *caches], do_rotary=1, rotary_interleaved=1)
            add("_turned_packed", [np.concatenate([q, k, v], -1), None, None, *prompt, *caches], do_rotary=1)
            if size >= 32:
                add("_turned_part", [q, k, v, *prompt, *(c[:, :8].copy() for c in caches)], do_rotary=1)
            for out in (1, 2):
                add(f"_scores_{out}", [q, k, v, *prompt], four, qk_output=out)
                add(f"_scores_{out}_more", [q, k, v, *prompt, None, None, None, floats(1, 1, length, length)], four, qk_output=out, softcap=2.0)
            one_q, one_k, one_v = (x[:, :1].copy() for x in (q, k, v))
            past = [floats(batch, kept, 7, size) for _ in range(2)]
            room = [np.pad(x, ((0, 0), (0, 0), (0, 5), (0, 0))) for x in past]
            token = [lens(8), one(8, I32)]
            add("_token", [one_q, one_k, one_v, *past, *token])
            add("_token_room", [one_q, one_k, one_v, *room, *token])
            add("_token_uneven", [one_q, one_k, one_v, *past, np.arange(7, 7 - batch, -1).astype(I32), one(8, I32)])
            add("_token_window", [one_q, one_k, one_v, *room, *token], local_window_size=3)
            add("_token_turned", [one_q, one_k, one_v, *past, *token, *caches], do_rotary=1)
            add("_token_places", [one_q, one_k, one_v, *past, *token, *caches, np.full((batch, 1), 7, I64)], do_rotary=1)
            add("_token_added", [one_q, one_k, one_v, *past, *token, None, None, None, floats(batch, 1, 1, 8)])
            add("_token_packed", [np.concatenate([one_q, one_k, one_v], -1), None, None, *past, *token, *caches], do_rotary=1)
            add("_token_scores", [one_q, one_k, one_v, *past, *token], four, qk_output=2)
            for bits, store in {8: I8, 4: U8}.items():
                scale = 0.02 if bits == 8 else 0.3
                wide = size * bits // 8
                kinds = {"tensor": np.array([scale], F32), "channel": d.between(scale, 2 * scale, kept * size)}
                kept_past = [codes(d, store, batch, kept, 7, wide) for _ in range(2)]
                kept_room = [np.pad(x, ((0, 0), (0, 0), (0, 5), (0, 0))) for x in kept_past]
                none, outs = [np.zeros((batch, kept, 0, wide), store)] * 2, (kind, store, store)
                for way, scales in kinds.items():
                    how = dict(k_quant_type=f"PER_{way.upper()}", v_quant_type=f"PER_{way.upper()}", kv_cache_bit_width=bits)
                    tail = [None, None, None, scales, scales]
                    more = f"_{way}_{bits}"
                    add(more, [q, k, v, *none, *prompt[2:], None, None, *tail], outs, **how)
                    if kind is F32:  # f16 queries are turned in f16 there
                        add(f"{more}_turned", [q, k, v, *none, *prompt[2:], *caches, *tail], outs, do_rotary=1, **how)
                    add(f"{more}_token", [one_q, one_k, one_v, *kept_past, *token, None, None, *tail], outs, **how)
                    add(f"{more}_room", [one_q, one_k, one_v, *kept_room, *token, None, None, *tail], outs, **how)
            if batch == 1 and length > 1:
                add("_chunk", [q, k, v, *past, lens(length + 7), one(length + 7, I32)])
                add("_chunk_turned", [q, k, v, *past, lens(length + 7), one(length + 7, I32), *caches], do_rotary=1)


def rotated(cases: Cases):
    for name, (batch, length, heads, size) in {"one": (1, 1, 1, 4), "small": (2, 3, 2, 8), "wide": (1, 17, 4, 64), "empty": (0, 2, 2, 4)}.items():
        for kind in (F32, F16):
            d = Draw(f"rotary {name}")
            x = d.floats(batch, length, heads * size, dtype=kind)
            by_heads = np.ascontiguousarray(x.reshape(batch, length, heads, size).swapaxes(1, 2))
            angles = d.between(-3, 3, 40, size // 2)
            cos, sin = np.cos(angles).astype(kind), np.sin(angles).astype(kind)
            part = [cos[:, : size // 4].copy(), sin[:, : size // 4].copy()]
            places, first = d.ints(0, 40, batch, length), np.array([5], I64)
            end = f"{name}_{np.dtype(kind).name}"
            for pairs in (0, 1):
                add = lambda more, inputs, **attrs: cases.add(
                    "RotaryEmbedding", f"{end}_{pairs}{more}", inputs, (kind,), interleaved=pairs, **attrs
                )
                add("", [x, places, cos, sin])
                add("_first", [x, first, cos, sin])
                add("_heads", [by_heads, places, cos, sin])
                add("_heads_first", [by_heads, first, cos, sin])
                add("_count", [x, places, cos, sin], num_heads=heads)
                add("_part", [x, places, *part], num_heads=heads, rotary_embedding_dim=size // 2)
                add("_heads_part", [by_heads, places, *part], num_heads=heads, rotary_embedding_dim=size // 2)
            cases.add("RotaryEmbedding", f"{end}_constant", [x, places, cos, sin], (kind,), constant=(2, 3))


def packed_products(cases: Cases):
    sizes = {"one": (1, 16, 1, 16), "odd": (3, 40, 5, 16), "few": (4, 256, 33, 32), "many": (19, 96, 300, 32), "wide": (1, 320, 65, 128)}
    for name, (rows, k, n, block) in sizes.items():
        for kind in (F32, F16):
            for bits in (2, 4, 8):
                d = Draw(f"bits {name} {bits}")
                blocks = -(-k // block)
                a, bias = d.floats(rows, k, dtype=kind), d.floats(n, dtype=kind)
                b = codes(d, U8, n, blocks, block * bits // 8)
                scales = d.between(0.001, 0.02, n, blocks, dtype=kind)
                zeros = codes(d, U8, n, -(-blocks * bits // 8))
                floats = d.between(0, 2**bits - 1, n, blocks, dtype=kind)
                base = dict(K=k, N=n, bits=bits, block_size=block)
                end = f"{name}_{np.dtype(kind).name}_{bits}"
                add = lambda more, inputs, constant=(), **attrs: cases.add(
                    "MatMulNBits", end + more, inputs, (kind,), constant, **(base | attrs)
                )
                add("", [a, b, scales])
                add("_zeros", [a, b, scales, zeros], accuracy_level=1)
                add("_bias", [a, b, scales, zeros, None, bias], constant=(1, 2, 3, 5))
                add("_flat", [a[None], b, scales.reshape(-1), zeros.reshape(-1)])
                if kind is F32:
                    if bits < 8:
                        add("_float_zeros", [a, b, scales, floats])
                    if bits == 4:
                        groups = d.rng.permutation(np.arange(k) // block).astype(I32)
                        add("_groups", [a, b, scales, None, groups])
                        # ONNX Runtime forgets the zero points of groups.
                        add("_groups_bias", [a, b, scales, None, groups, bias])
                add("_none", [a, b[:, :0], scales, None, None, bias])
    cases.add("MatMulNBits", "empty", [np.zeros((0, 16), F32), np.zeros((2, 1, 8), U8), np.ones((2, 1), F32)], K=16, N=2, bits=4, block_size=16)


def gathered(cases: Cases):
    for kind in (F32, F16):
        for whole in (I32, I64):
            d = Draw("blocks")
            index = d.ints(-6, 6, 2, 3, dtype=whole)
            end = f"{np.dtype(kind).name}_{np.dtype(whole).name}"
            base = dict(gather_axis=0, quantize_axis=1, block_size=16)
            scales = d.between(0.01, 0.2, 6, 3, dtype=kind)
            add = lambda more, inputs, constant=(0, 2, 3), **attrs: cases.add(
                "GatherBlockQuantized", end + more, inputs, (kind,), [k for k in constant if k < len(inputs)], **(base | attrs)
            )
            for bits in (2, 4, 8):
                data = codes(d, U8, 6, 40 * bits // 8)
                zeros = codes(d, U8, 6, -(-3 * bits // 8))
                add(f"_bytes_{bits}", [data, index, scales], bits=bits)
                add(f"_bytes_{bits}_zeros", [data, index, scales, zeros], bits=bits)
            add("_outside", [data, np.array([7, 0, -7], whole), scales], bits=8)
            add("_none", [data, np.zeros((0, 2), whole), scales], bits=8)
            add("_scalar", [data, np.array(3, whole), scales], bits=8)
            for name, number, low in (("uint4", ml_dtypes.uint4, 0), ("int4", ml_dtypes.int4, -8)):
                data = d.ints(low, low + 16, 6, 40).astype(number)
                zeros = d.ints(low, low + 16, 6, 3).astype(number)
                add(f"_{name}", [data, index, scales], bits=4)
                add(f"_{name}_zeros", [data, index, scales, zeros], bits=4)
                cube = d.ints(low, low + 16, 2, 6, 33).astype(number)
                cube_scales, cube_zeros = d.between(0.01, 0.2, 2, 6, 3, dtype=kind), d.ints(low, low + 16, 2, 6, 3).astype(number)
                add(f"_{name}_middle", [cube, index, cube_scales, cube_zeros], bits=4, gather_axis=1, quantize_axis=2)
                across, across_scales = d.ints(low, low + 16, 33, 6).astype(number), d.between(0.01, 0.2, 3, 6, dtype=kind)
                add(f"_{name}_across", [across, index, across_scales], bits=4, gather_axis=1, quantize_axis=0)
                add(f"_{name}_same", [across, index, across_scales], bits=4, gather_axis=0, quantize_axis=0)
            for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"):
                data = d.between(-4, 4, 6, 40).astype(getattr(ml_dtypes, name))
                add(f"_{name}", [data, index, scales])
                add(f"_{name}_row", [data, index, scales[:, :1].copy()], block_size=0)
                add(f"_{name}_one", [data, index, scales[:1].copy()])


FAMILIES = {
    "gelus": gelus,
    "norms": norms,
    "embeddings": embeddings,
    "products": products,
    "convolutions": convolutions,
    "matrices": matrices,
    "quantized_products": quantized_products,
    "quantized_elements": quantized_elements,
    "quantized_pools": quantized_pools,
    "quantized_networks": quantized_networks,
    "attentions": attentions,
    "multi_heads": multi_heads,
    "grouped": grouped,
    "rotated": rotated,
    "packed_products": packed_products,
    "gathered": gathered,
}
