"""Makes cases of ONNX Runtime's own operators (domain com.microsoft) with the pinned ONNX Runtime.

    pip install -r tests/scripts/requirements.txt
    python tests/scripts/contrib_cases.py OUT [FAMILY...]

OUT/NAME/ gets `model.onnx` of one node and `test_data_set_0/{input,output}_N.pb`, in the form of the standard's cases;
outputs are what ONNX Runtime's CPU EP answers. Inputs are drawn by the case's name, so that a case is the same wherever
and whenever it is made. The folder is written beside OUT and renamed, so it is whole or not there.

The grids are in `contrib_grid.py`: shapes, attributes, optional inputs and types that ONNX Runtime's CPU EP takes.
"""

import argparse
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

PINNED = "1.32.0"
MICROSOFT = "com.microsoft"
NUMBERS = {
    np.dtype(kind): helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    for kind in ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool", "uint32")
}
NUMBERS |= {
    np.dtype(ml_dtypes.bfloat16): onnx.TensorProto.BFLOAT16,
    np.dtype(ml_dtypes.int4): onnx.TensorProto.INT4,
    np.dtype(ml_dtypes.uint4): onnx.TensorProto.UINT4,
    np.dtype(ml_dtypes.float8_e4m3fn): onnx.TensorProto.FLOAT8E4M3FN,
    np.dtype(ml_dtypes.float8_e5m2): onnx.TensorProto.FLOAT8E5M2,
    np.dtype(ml_dtypes.float8_e4m3fnuz): onnx.TensorProto.FLOAT8E4M3FNUZ,
    np.dtype(ml_dtypes.float8_e5m2fnuz): onnx.TensorProto.FLOAT8E5M2FNUZ,
    np.dtype(ml_dtypes.float4_e2m1fn): onnx.TensorProto.FLOAT4E2M1,
}


class Draw:
    """Numbers of a case, from its name."""

    def __init__(self, name: str):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def floats(self, *dims, scale=1.0, dtype=np.float32):
        return (self.rng.standard_normal(dims) * scale).astype(dtype)

    def between(self, low, high, *dims, dtype=np.float32):
        return self.rng.uniform(low, high, dims).astype(dtype)

    def ints(self, low, high, *dims, dtype=np.int64):
        """From low on, below high."""
        return self.rng.integers(low, high, dims).astype(dtype)


def tensor(array, name):
    return numpy_helper.from_array(np.asarray(array), name)


class Cases:
    """Writes cases, and counts them by operator."""

    def __init__(self, out: Path):
        self.out = out
        self.made = Counter()

    def add(self, op, name, inputs, outputs=(np.float32,), constant=(), domain=MICROSOFT, **attrs):
        """A case of one node. Absent inputs and outputs are None; `constant` are inputs that the model holds."""
        folder = self.out / f"{op}_{name}"
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        fed = {k: x for k, x in enumerate(inputs) if x is not None and k not in constant}
        model = self.model(op, inputs, outputs, constant, domain, attrs)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        for number, (k, x) in enumerate(fed.items()):
            (data / f"input_{number}.pb").write_bytes(tensor(x, f"x{k}").SerializeToString())
        made = run(model, {f"x{k}": x for k, x in fed.items()})
        for number, (info, y) in enumerate(zip(model.graph.output, made, strict=True)):
            kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            (data / f"output_{number}.pb").write_bytes(tensor(y.astype(kind), info.name).SerializeToString())
        self.made[op] += 1

    def model(self, op, inputs, outputs, constant, domain, attrs):
        names = [f"x{k}" if x is not None else "" for k, x in enumerate(inputs)]
        results = [f"y{k}" if kind is not None else "" for k, kind in enumerate(outputs)]
        node = helper.make_node(op, names, results, domain=domain, **attrs)
        value = helper.make_tensor_value_info
        given = [(k, np.asarray(x)) for k, x in enumerate(inputs) if x is not None]
        graph = helper.make_graph(
            [node],
            op,
            [value(names[k], NUMBERS[x.dtype], x.shape) for k, x in given if k not in constant],
            [value(name, NUMBERS[np.dtype(kind)], None) for name, kind in zip(results, outputs) if kind is not None],
            [tensor(x, names[k]) for k, x in given if k in constant],
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model, feed):
    """What ONNX Runtime answers to a model as it stands."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [y if isinstance(y, np.ndarray) else np.asarray(y) for y in session.run(None, feed)]


def main():
    from contrib_grid import FAMILIES

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []], help="all without a name")
    args = parser.parse_args()
    out = args.out
    if onnxruntime.__version__ != PINNED:
        sys.exit(f"onnxruntime {onnxruntime.__version__} is installed, the cases are those of {PINNED}")
    if out.exists():
        sys.exit(f"{out} exists already")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        cases = Cases(Path(scratch) / "cases")
        for name in args.families or FAMILIES:
            FAMILIES[name](cases)
        cases.out.rename(out)
    for op, count in sorted(cases.made.items()):
        print(f"{op}: {count} cases")
    print(f"{sum(cases.made.values())} cases of {len(cases.made)} operators")


if __name__ == "__main__":
    main()
