"""Checks that several forms of one model compute the same.

    python tests/scripts/same_results.py FOLDER...

Each folder holds `model.onnx` and other forms of it (`*.onnx`), which have to pass `onnx.checker` and to give what the model
gives for seeded inputs. With `input_N.npy` and `output_N.npy` beside it the model itself is not run: those are the values. ONNX Runtime runs them, or the evaluator of the `onnx` package what ONNX Runtime cannot.
Prints a line for each form; the last line is `N compared`. Exit 1 when something differs.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

# Larger models than this are checked by their paths.
LARGE = 1 << 30
# A form may order sums another way; in float32 that moves results by a few of the last bits of the largest term.
TOLERANCE = {np.dtype(np.float32): (1e-3, 1e-4), np.dtype(np.float64): (1e-6, 1e-8)}
NARROW = (2e-2, 1e-2)


def data(model, size):
    """Seeded values for the inputs; a dim without a number is `size`."""
    rng = np.random.default_rng(7)
    weights = {i.name for i in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else size for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == np.bool_:
            feeds[value.name] = rng.random(dims) < 0.5
        elif np.issubdtype(dtype, np.integer):
            feeds[value.name] = rng.integers(1, 5, dims).astype(dtype)
        else:
            feeds[value.name] = rng.normal(0, 1, dims).astype(dtype)
    return feeds


def run(path, model, feeds):
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Plain kernels: what the form says, not what an optimizer makes of it.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception as first:
        try:
            return ReferenceEvaluator(model).run(None, feeds)
        except Exception as second:
            raise RuntimeError(f"ONNX Runtime: {first}; onnx: {second!r}") from None


def same(wanted, found):
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(same, wanted, found))
    wanted, found = np.asarray(wanted), np.asarray(found)
    if wanted.dtype.kind == "V" and found.dtype.kind == "u":
        # ONNX Runtime gives the bits of types that numpy does not have.
        found = found.view(wanted.dtype)
    if wanted.shape != found.shape or wanted.dtype.itemsize != found.dtype.itemsize:
        return False
    if wanted.dtype.kind in "fV":
        relative, absolute = TOLERANCE.get(wanted.dtype, NARROW)
        wanted, found = wanted.astype(np.float64), found.astype(np.float64)
        return np.allclose(found, wanted, relative, absolute, equal_nan=True)
    if wanted.dtype == np.uint8 or wanted.dtype == np.int8:
        # A quantized value may fall to the other side of a tie.
        return np.abs(wanted.astype(np.int16) - found.astype(np.int16)).max(initial=0) <= 1
    return np.array_equal(wanted, found)


def message(path):
    """The value of a test case's file, whatever kind it has."""
    raw = path.read_bytes()
    for kind, read in ((onnx.TensorProto, numpy_helper.to_array), (onnx.SequenceProto, numpy_helper.to_list)):
        try:
            return read(kind.FromString(raw))
        except Exception:
            continue
    raise ValueError(f"{path} is neither a tensor nor a sequence")


def numbered(folder, name):
    files = sorted(folder.glob(f"{name}_*.pb"), key=lambda p: int(p.stem.rsplit("_", 1)[1]))
    return [message(p) for p in files]


def compare(folder):
    wrong, compared = [], 0
    path = folder / "model.onnx"
    model = onnx.load(path)
    if any(folder.glob("output_*.pb")):
        feeds = dict(zip([i.name for i in model.graph.input], numbered(folder, "input"), strict=True))
        wanted = numbered(folder, "output")
    else:
        feeds = data(model, 2)
        wanted = run(path, model, feeds)
    for form in sorted(folder.glob("*.onnx")):
        if form == path:
            continue
        try:
            made = onnx.load(form)
            onnx.checker.check_model(str(form) if form.stat().st_size > LARGE else made)
            names = [i.name for i in made.graph.input]
            found = run(form, made, {name: feeds[name] for name in names})
            good = same(wanted, found)
            if not good and any(folder.glob("output_*.pb")):
                # An evaluator that gives the model itself other values than its data has a fault of its own.
                good = same(run(path, model, feeds), found)
            what = "same" if good else "other results"
        except Exception as e:
            good, what = False, str(e).replace("\n", " ")
        compared += 1
        print(f"{folder.name} {form.stem}: {what}", flush=True)
        if not good:
            wrong.append(f"{folder.name} {form.stem}")
    return wrong, compared


def main():
    warnings.simplefilter("ignore")
    wrong, compared = [], 0
    for name in sys.argv[1:]:
        bad, count = compare(Path(name))
        wrong += bad
        compared += count
    print(f"{compared} compared")
    if wrong:
        sys.exit("differ: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
