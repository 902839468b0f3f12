"""Trains the digits model of the README and writes it beside this script.

    pip install numpy==2.3.5 onnx==1.23.2 scikit-learn==1.7.2 pillow==12.0.0
    python examples/digits/make.py

Data: scikit-learn's `digits` (1,797 pictures of 8x8 grey levels, UCI, CC BY 4.0). A small convolutional net is trained
with plain numpy (seeded, about a minute); a fifth of the pictures is held out, and the accuracy on it is printed and
stored in the model's metadata. The pictures beside it are held-out ones, enlarged sixteen times.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from sklearn.datasets import load_digits

HERE = Path(__file__).parent
rng = np.random.default_rng(7)


def patches(x):
    """(N, C, H, W) -> (N, H, W, C*9): the 3x3 neighbourhoods, padded by zeros."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    n, c, h, w = x.shape
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def unpatch(grad, channels):
    """The transpose of `patches`."""
    n, h, w, _ = grad.shape
    grad = grad.reshape(n, h, w, channels, 3, 3)
    out = np.zeros((n, channels, h + 2, w + 2))
    for i in range(3):
        for j in range(3):
            out[:, :, i : i + h, j : j + w] += grad[..., i, j].transpose(0, 3, 1, 2)
    return out[:, :, 1:-1, 1:-1]


def start():
    he = lambda *shape: rng.normal(0, np.sqrt(2 / shape[0]), shape)
    return {
        "conv1.weight": he(9, 8), "conv1.bias": np.zeros(8),
        "conv2.weight": he(72, 16), "conv2.bias": np.zeros(16),
        "hidden.weight": he(256, 48), "hidden.bias": np.zeros(48),
        "scores.weight": he(48, 10), "scores.bias": np.zeros(10),
    }


def forward(p, x):
    a = {"x": x, "p1": patches(x)}
    a["c1"] = np.maximum(a["p1"] @ p["conv1.weight"] + p["conv1.bias"], 0).transpose(0, 3, 1, 2)
    a["p2"] = patches(a["c1"])
    a["c2"] = np.maximum(a["p2"] @ p["conv2.weight"] + p["conv2.bias"], 0).transpose(0, 3, 1, 2)
    n, c, h, w = a["c2"].shape
    cells = a["c2"].reshape(n, c, h // 2, 2, w // 2, 2)
    pooled = cells.max((3, 5), keepdims=True)
    a["mask"] = cells == pooled
    a["flat"] = pooled.reshape(n, -1)
    a["h"] = np.maximum(a["flat"] @ p["hidden.weight"] + p["hidden.bias"], 0)
    scores = a["h"] @ p["scores.weight"] + p["scores.bias"]
    e = np.exp(scores - scores.max(1, keepdims=True))
    a["y"] = e / e.sum(1, keepdims=True)
    return a


def backward(p, a, labels):
    n = len(labels)
    g = {}
    d = (a["y"] - np.eye(10)[labels]) / n
    g["scores.weight"], g["scores.bias"] = a["h"].T @ d, d.sum(0)
    d = (d @ p["scores.weight"].T) * (a["h"] > 0)
    g["hidden.weight"], g["hidden.bias"] = a["flat"].T @ d, d.sum(0)
    d = d @ p["hidden.weight"].T
    d = (d.reshape(n, 16, 4, 1, 4, 1) * a["mask"]).reshape(n, 16, 8, 8) * (a["c2"] > 0)
    d = d.transpose(0, 2, 3, 1)
    g["conv2.weight"], g["conv2.bias"] = np.tensordot(a["p2"], d, ((0, 1, 2), (0, 1, 2))), d.sum((0, 1, 2))
    d = unpatch(d @ p["conv2.weight"].T, 8) * (a["c1"] > 0)
    d = d.transpose(0, 2, 3, 1)
    g["conv1.weight"], g["conv1.bias"] = np.tensordot(a["p1"], d, ((0, 1, 2), (0, 1, 2))), d.sum((0, 1, 2))
    return g


def train(x, labels, epochs=30, batch=50, rate=2e-3):
    p = start()
    m = {k: np.zeros_like(v) for k, v in p.items()}
    v = {k: np.zeros_like(w) for k, w in p.items()}
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for at in range(0, len(x), batch):
            pick = order[at : at + batch]
            grad = backward(p, forward(p, x[pick]), labels[pick])
            step += 1
            for k in p:
                m[k] = 0.9 * m[k] + 0.1 * grad[k]
                v[k] = 0.999 * v[k] + 0.001 * grad[k] ** 2
                p[k] -= rate * (m[k] / (1 - 0.9**step)) / (np.sqrt(v[k] / (1 - 0.999**step)) + 1e-8)
    return p


def model(p, accuracy):
    def weight(name, array):
        return numpy_helper.from_array(np.ascontiguousarray(array, dtype=np.float32), name)

    kernel = lambda name, channels: p[name].T.reshape(-1, channels, 3, 3)
    node = helper.make_node
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Identity", ["image"], ["picture"], "input"),
        node("Conv", ["picture", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", **conv),
        node("Relu", ["conv1"], ["relu1"], "relu1"),
        node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", **conv),
        node("Relu", ["conv2"], ["relu2"], "relu2"),
        node("MaxPool", ["relu2"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Constant", [], ["flat_shape"], "flat_shape",
             value=numpy_helper.from_array(np.array([-1, 256], dtype=np.int64))),
        node("Reshape", ["pooled", "flat_shape"], ["flat"], "flatten"),
        node("Gemm", ["flat", "hidden.weight", "hidden.bias"], ["hidden"], "hidden"),
        node("Relu", ["hidden"], ["relu3"], "relu3"),
        node("MatMul", ["relu3", "scores.weight"], ["products"], "products"),
        node("Add", ["products", "scores.bias"], ["scores"], "scores"),
        node("Softmax", ["scores"], ["digit"], "softmax", axis=-1),
    ]
    weights = [
        weight("conv1.weight", kernel("conv1.weight", 1)), weight("conv1.bias", p["conv1.bias"]),
        weight("conv2.weight", kernel("conv2.weight", 8)), weight("conv2.bias", p["conv2.bias"]),
        weight("hidden.weight", p["hidden.weight"]), weight("hidden.bias", p["hidden.bias"]),
        weight("scores.weight", p["scores.weight"]), weight("scores.bias", p["scores.bias"]),
    ]
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("digit", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    made = helper.make_model(graph, producer_name="examples/digits/make.py",
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(made, {
        "labels": ",".join("0123456789"),
        "accuracy": f"{accuracy:.4f}",
        "source": "scikit-learn digits (UCI optical recognition of handwritten digits, CC BY 4.0)",
    })
    onnx.checker.check_model(made, full_check=True)
    return made


def main():
    data = load_digits()
    order = np.random.default_rng(3).permutation(len(data.images))
    x, labels = data.images[order][:, None] / 16, data.target[order]
    held = len(x) // 5
    p = train(x[held:], labels[held:])
    y = forward(p, x[:held])["y"]
    accuracy = (y.argmax(1) == labels[:held]).mean()
    print(f"{(y.argmax(1) != labels[:held]).sum()} of {held} held-out pictures wrong, accuracy {accuracy:.4f}")
    onnx.save(model(p, accuracy), HERE / "digits.onnx")
    for digit in (3, 7):
        pick = next(i for i in range(held) if labels[i] == digit and y[i].argmax() == digit and y[i].max() > 0.9)
        grey = np.kron(np.round(x[pick, 0] * 255).astype(np.uint8), np.ones((16, 16), np.uint8))
        Image.fromarray(grey).save(HERE / f"{digit}.png", optimize=True)
        print(f"{digit}.png: {y[pick].max():.3f}")


if __name__ == "__main__":
    main()
