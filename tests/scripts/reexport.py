"""Re-exports models at another opset with the version converter of the pinned `onnx` package.

    python tests/scripts/reexport.py IN OUT [--opset 23]

OUT/NAME.onnx for every IN/NAME.onnx that stands in an older opset. A line `NAME: REASON` for each that the converter cannot take.
"""

import argparse
from pathlib import Path

import onnx
from onnx import version_converter


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("models", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--opset", type=int, default=23)
    args = arguments.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(args.models.glob("*.onnx")):
        model = onnx.load(path)
        own = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        if own >= args.opset:
            continue
        try:
            made = version_converter.convert_version(model, args.opset)
        except Exception as e:
            print(f"{path.stem}: {str(e).splitlines()[0]}")
            continue
        onnx.save(made, args.out / path.name)


if __name__ == "__main__":
    main()
