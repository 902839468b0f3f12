"""Makes small models of the kinds that exporters write, for tests of projection.

    python tests/scripts/architectures.py OUT

OUT/NAME.onnx, one for each kind and opset, with seeded weights: what the zoo of large models shows, in a few kilobytes each.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

# Inputs of the graph that begin with `w` become weights, those that begin with `q` quantized ones.
MODELS = {
    # A classifier of pictures as exporters wrote it for years.
    "cnn": (
        [8, 11, 13, 17, 21],
        """
        cnn (float[n,3,16,16] x, float[8,3,3,3] w0, float[8] w1, float[8] w2, float[8] wmean, float[8] wvar,
             float[8,8,3,3] w3, float[8] w4, float[5,8] w5, float[5] w6) => (float[n,5] y)
        {
            c = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (x, w0)
            b = BatchNormalization <epsilon: float = 0.001> (c, w1, w2, wmean, wvar)
            r = Relu (b)
            p = MaxPool <kernel_shape=[2,2], strides=[2,2]> (r)
            d = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (p, w3, w4)
            s = Add (d, p)
            l = LeakyRelu <alpha: float = 0.1> (s)
            a = GlobalAveragePool (l)
            f = Flatten <axis=1> (a)
            g = Gemm <transB=1> (f, w5, w6)
            y = Softmax <axis=1> (g)
        }
        """,
    ),
    # Attributes that later became inputs.
    "attributes": (
        [9, 10],
        """
        attributes (float[n,4,6] x) => (float y, float z)
        {
            c = Clip <max: float = 0.8, min: float = -0.6> (x)
            p = Pad <pads=[0,0,1,0,0,1], value: float = 0.5> (c)
            u = Unsqueeze <axes=[1]> (p)
            s, t = Split <axis=2, split=[1,3]> (u)
            q = Squeeze <axes=[1]> (t)
            m = ReduceMean <axes=[2], keepdims=1> (q)
            v = Sub (q, m)
            e = ReduceSum <axes=[1], keepdims=0> (v)
            k = Softmax <axis=1> (v)
            h = LogSoftmax <axis=1> (s)
            y = Mul (k, m)
            z = Add (e, h)
        }
        """,
    ),
    # A transformer block written out, and one of the operators that came for it.
    "encoder": (
        [13, 17],
        """
        encoder (float[n,5,8] x, float[8,8] wq, float[8,8] wk, float[8,8] wv, float[8,16] wu, float[16,8] wd, float[8] wg, float[8] wb)
            => (float[n,5,8] y)
        <float scale = {2.828427}, float one = {1.0}, float half = {0.5}, float root = {1.4142135}, float two = {2.0}, float eps = {0.00001}>
        {
            q = MatMul (x, wq)
            k = MatMul (x, wk)
            v = MatMul (x, wv)
            t = Transpose <perm=[0,2,1]> (k)
            s = MatMul (q, t)
            d = Div (s, scale)
            a = Softmax <axis=-1> (d)
            o = MatMul (a, v)
            r = Add (o, x)
            m = ReduceMean <axes=[-1]> (r)
            c = Sub (r, m)
            p = Pow (c, two)
            var = ReduceMean <axes=[-1]> (p)
            ve = Add (var, eps)
            sd = Sqrt (ve)
            nrm = Div (c, sd)
            ng = Mul (nrm, wg)
            ln = Add (ng, wb)
            up = MatMul (ln, wu)
            ud = Div (up, root)
            er = Erf (ud)
            e1 = Add (er, one)
            g = Mul (up, e1)
            gh = Mul (g, half)
            dn = MatMul (gh, wd)
            y = Add (dn, r)
        }
        """,
    ),
    "fused": (
        [17, 20],
        """
        fused (float[n,5,8] x, float[8] wg, float[8] wb) => (float[n,5,8] y, float z)
        {
            l = LayerNormalization <axis=-1> (x, wg, wb)
            h = HardSwish (l)
            y = Softplus (h)
            z = ReduceL2 <axes=[1,2]> (y)
        }
        """,
    ),
    # Forms that are new in 18: axes as inputs, counts of parts.
    "later": (
        [18, 21],
        """
        later (float[n,6,8] x, float[6] wg, float[6] wb) => (float y, float z)
        <int64[1] axes = {1}, int64[4] pads = {0,1,0,1}, int64[2] two = {1,2}>
        {
            m = ReduceMean (x, axes)
            a, b, c = Split <axis=2, num_outputs=3> (x)
            p = Pad (a, pads, , two)
            s = Mish (p)
            y = ReduceMax <keepdims=0> (s, two)
            i = InstanceNormalization (x, wg, wb)
            z = Mul (i, m)
        }
        """,
    ),
    # The operators of large language models.
    "decoder": (
        [23, 24],
        """
        decoder (float[n,4,8] x, float[8] wn, float[6,2] wc, float[6,2] ws, float[8,8] wq, float[8,8] wk, float[8,8] wv) => (float y)
        <int64[1,4] at = {0,1,2,3}, int64[2] shape = {1,4}>
        {
            h = RMSNormalization <axis=-1, epsilon: float = 0.00001> (x, wn)
            q = MatMul (h, wq)
            k = MatMul (h, wk)
            v = MatMul (h, wv)
            size = Shape <start=0, end=1> (x)
            four = Constant <value_ints = [4]> ()
            rows = Concat <axis=0> (size, four)
            ids = Expand (at, rows)
            qr = RotaryEmbedding <num_heads=2> (q, wc, ws, ids)
            kr = RotaryEmbedding <num_heads=2> (k, wc, ws, ids)
            a = Attention <q_num_heads=2, kv_num_heads=2, is_causal=1> (qr, kr, v)
            y = Add (a, x)
        }
        """,
    ),
    # A recurrent net.
    "recurrent": (
        [11, 14, 22],
        """
        recurrent (float[7,n,4] x, float[2,20,4] w0, float[2,20,5] w1, float[2,40] w2, float[3,10] w3) => (float y, float[2,n,5] h)
        {
            s, h, c = LSTM <direction="bidirectional", hidden_size=5> (x, w0, w1, w2)
            t = Transpose <perm=[0,2,1,3]> (s)
            shape = Constant <value: tensor = int64[3] {0,0,-1}> ()
            r = Reshape (t, shape)
            wt = Transpose <perm=[1,0]> (w3)
            m = MatMul (r, wt)
            y = LogSoftmax <axis=2> (m)
        }
        """,
    ),
    # A detector's head: resizing, slices, boxes.
    "detector": (
        [11, 13, 18, 19],
        """
        detector (float[1,4,8,8] x, float[4,4,1,1] w0) => (float y, int64 picked)
        <float[4] scales = {1.0,1.0,2.0,2.0}, float[8] roi = {0.0,0.0,0.0,0.0,1.0,1.0,1.0,1.0}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[1] one = {1},
         int64[3] rows = {1,-1,4}, int64[3] scored = {1,1,-1}, int64 top = {3}, float cut = {0.4}, float least = {0.3}>
        {
            c = Conv (x, w0)
            s = Sigmoid (c)
            u = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"> (s, roi, scales)
            a = Slice (u, zero, two, one)
            b = Slice (u, two, four, one)
            y = Concat <axis=1> (b, a)
            t = Transpose <perm=[0,2,3,1]> (s)
            boxes = Reshape (t, rows)
            m = ReduceMax <axes=[2], keepdims=0> (boxes)
            scores = Reshape (m, scored)
            picked = NonMaxSuppression (boxes, scores, top, cut, least)
        }
        """,
    ),
    # Control flow.
    "control": (
        [11, 13, 16, 21],
        """
        control (float[n,4] x, bool c, int64 times) => (float[n,4] y, float z)
        <bool yes = {1}>
        {
            b = If (c) <then_branch = yes () => (float[n,4] p) { p = Relu (x) }, else_branch = no () => (float[n,4] q) { t = Neg (x)  q = Tanh (t) }>
            y, z = Loop (times, yes, b) <body = step (int64 i, bool k, float[n,4] s) => (bool kept, float[n,4] next, float[n,4] row) {
                kept = Identity (k)
                next = Add (s, x)
                row = Mul (s, s)
            }>
        }
        """,
    ),
    # Weights and activations of eight bits.
    "quantized": (
        [10, 13, 21],
        """
        quantized (float[n,3,6,6] x, float[4,3,3,3] w0, float[4] w1) => (float y)
        <float sx = {0.02}, uint8 zx = {128}, float sw = {0.01}, int8 zw = {0}>
        {
            q = QuantizeLinear (x, sx, zx)
            d = DequantizeLinear (q, sx, zx)
            wq = QuantizeLinear (w0, sw, zw)
            wd = DequantizeLinear (wq, sw, zw)
            c = Conv (d, wd, w1)
            o = QuantizeLinear (c, sx, zx)
            y = DequantizeLinear (o, sx, zx)
        }
        """,
    ),
}


def model(name, text, opset):
    rng = np.random.default_rng(sum(map(ord, name)))
    header = f'<ir_version: 7, opset_import: ["" : {opset}]>'
    m = parser.parse_model(header + text)
    m.ir_version = 8 if opset < 19 else 10
    for value in [v for v in m.graph.input if v.name.startswith("w")]:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        data = rng.normal(0, 0.5, dims).astype(np.float32)
        if value.name == "wvar":
            data = np.abs(data) + 0.5
        m.graph.initializer.append(numpy_helper.from_array(data, value.name))
        m.graph.input.remove(value)
    if opset >= 18:
        axes_as_input(m.graph, opset)
    onnx.checker.check_model(m)
    return m


def axes_as_input(graph, opset):
    """Reductions take their axes as an input from 18 on."""
    for node in graph.node:
        axes = [a for a in node.attribute if a.name == "axes" and node.op_type.startswith("Reduce")]
        for a in axes:
            name = f"{node.output[0]}_axes"
            graph.initializer.append(numpy_helper.from_array(np.array(a.ints, np.int64), name))
            node.input.append(name)
            node.attribute.remove(a)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("out", type=Path)
    out = arguments.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, (opsets, text) in MODELS.items():
        for opset in opsets:
            onnx.save(model(name, text, opset), out / f"{name}_{opset}.onnx")
    print(f"{sum(len(o) for o, _ in MODELS.values())} models")


if __name__ == "__main__":
    main()
