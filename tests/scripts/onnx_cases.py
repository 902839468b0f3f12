"""Lays the conformance cases of the pinned `onnx` package out as folders.

    pip install -r tests/scripts/requirements.txt
    python tests/scripts/onnx_cases.py OUT

OUT/KIND/NAME/ gets `model.onnx` and `test_data_set_0/{input,output}_N.pb`, KIND being node, simple, pytorch-converted,
pytorch-operator and light. The package carries some as files and makes
the others in Python. The folder is
written beside OUT and renamed, so it is whole or not there.
"""

import argparse
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.model import collect_testcases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

PINNED = "1.23.2"


def proto(value, info):
    """A value of a test case as the message that its type asks for."""
    if isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto, onnx.MapProto)):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def write_case(case: TestCase, folder: Path):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for name, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
            for i, (value, info) in enumerate(zip(values, infos, strict=True)):
                (data / f"{name}_{i}.pb").write_bytes(proto(value, info).SerializeToString())


def write_all(out: Path):
    warnings.simplefilter("ignore")
    for case in load_model_tests(kind="node"):
        write_case(case, out / "node" / case.name)
    source = Path(onnx.__file__).parent / "backend/test/data"
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        shutil.copytree(source / kind, out / kind)
    # Some small models stand in the case module only; those without a model are the light ones above.
    for case in collect_testcases():
        if case.model is not None and not (out / "simple" / case.name).exists():
            write_case(case, out / "simple" / case.name)
    for model in sorted((source / "light").glob("*.onnx")):
        folder = out / "light" / model.stem
        (folder / "test_data_set_0").mkdir(parents=True)
        shutil.copy(model, folder / "model.onnx")
        for output in source.glob(f"light/{model.stem}_output_*.pb"):
            number = output.stem.rsplit("_", 1)[1]
            shutil.copy(output, folder / "test_data_set_0" / f"output_{number}.pb")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    if onnx.__version__ != PINNED:
        sys.exit(f"onnx {onnx.__version__} is installed, the cases are those of {PINNED}")
    if out.exists():
        sys.exit(f"{out} exists already")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        made = Path(scratch) / "cases"
        write_all(made)
        made.rename(out)
    for kind in sorted(out.iterdir()):
        print(f"{kind.name}: {len(list(kind.iterdir()))} cases")


if __name__ == "__main__":
    main()
