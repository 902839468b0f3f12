"""ONNX Runtime's side of `cargo bench -p ortolan-tests --bench onnxruntime`.

Each line of standard input is a request, a JSON list; each line of standard output answers it, {"error": TEXT} if it
could not be done:

    ["inputs", MODELS, NAME, FOLDER]  makes inputs of MODELS/NAME.onnx in FOLDER, where both sides read them; null
    ["read", FOLDER]                  reads them; null
    ["open", MODEL, THREADS]          loads the model in place of the one before; seconds
    ["run", COUNT]                    runs on one input after the other; a list of seconds
    ["peak", MODEL]                   KiB that loading on one thread and a run on each input took at most

Session options are ONNX Runtime's own but for the number of threads. Inputs come from MODELS/inputs/NAME/INPUT.npy, from
the recipe in tests/models/manifest.json, or are drawn: sizes that the model leaves free are then 1, integers 0 or 1.
"""

import json
import re
import sys
from pathlib import Path
from time import perf_counter

import models
import numpy as np
import onnxruntime

VARIANTS = 4


def load(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def draw(info, variant):
    numpy_type = {"float": "float32", "double": "float64", "float16": "float16", "bool": "bool"}
    dtype = info.type.removeprefix("tensor(").removesuffix(")")
    whole = dtype.startswith(("int", "uint", "bool"))
    shape = [d if isinstance(d, int) else 1 for d in info.shape]
    spec = {"dtype": numpy_type.get(dtype, dtype), "shape": shape, "range": [0, 1 if whole else 1.0]}
    return models.feed(spec, variant + 1)


def make_inputs(root, name, folder):
    manifest = json.loads((models.FOLDER / "manifest.json").read_text(encoding="utf-8"))
    recipes = {m["name"]: m["inputs"] for package in manifest["packages"] for m in package["models"]}
    recipe = {x["name"]: (k, x) for k, x in enumerate(recipes.get(name, []))}
    made = []
    for at, info in enumerate(load(f"{root}/{name}.onnx", 1).get_inputs()):
        file = Path(root, "inputs", name, re.sub(r"[^A-Za-z0-9._-]", "_", info.name) + ".npy")
        for variant in range(VARIANTS):
            if file.is_file():
                value = np.load(file)
                value = np.roll(value.ravel(), 1013 * variant).reshape(value.shape)
            elif info.name in recipe:
                k, spec = recipe[info.name]
                value = models.feed(spec, k + 1 + 100 * variant)
            else:
                value = draw(info, variant)
            Path(folder, f"{at}-{variant}.raw").write_bytes(value.tobytes())
        made.append({"name": info.name, "type": info.type, "numpy": value.dtype.str, "shape": list(value.shape)})
    Path(folder, "inputs.json").write_text(json.dumps({"variants": VARIANTS, "inputs": made}), encoding="utf-8")


def read(folder):
    inputs = json.loads(Path(folder, "inputs.json").read_text(encoding="utf-8"))["inputs"]

    def one(at, variant):
        data = Path(folder, f"{at}-{variant}.raw").read_bytes()
        return np.frombuffer(bytearray(data), inputs[at]["numpy"]).reshape(inputs[at]["shape"])

    return [{x["name"]: one(at, v) for at, x in enumerate(inputs)} for v in range(VARIANTS)]


def memory(what):
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)[1])


class Turns:
    def __init__(self):
        self.session = self.feeds = None
        self.at = 0

    def inputs(self, root, name, folder):
        make_inputs(root, name, folder)

    def read(self, folder):
        self.feeds = read(folder)

    def open(self, model, threads):
        self.session = None
        start = perf_counter()
        self.session = load(model, threads)
        return perf_counter() - start

    def run(self, count):
        times = []
        for _ in range(count):
            feed = self.feeds[self.at % VARIANTS]
            self.at += 1
            start = perf_counter()
            self.session.run(None, feed)
            times.append(perf_counter() - start)
        return times

    def peak(self, model):
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # The high-water mark begins anew.
        self.open(model, 1)
        self.run(VARIANTS)
        return memory("VmHWM") - before


def main():
    turns = Turns()
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        try:
            answer = getattr(turns, what)(*arguments)
        except Exception as error:  # Whatever it was, the bench reports it and goes on to the next model.
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
