"""Small ONNX models, written node by node: an input, a hidden layer, and whatever stands
behind it.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

INPUTS, FEATURES, CLASSES, STEPS = 7, 12, 5, 3
FORMAT = 8
OLDEST, NEWEST = 11, onnx.defs.onnx_opset_version()


def numbers(*shape, seed=0, scale=1.0, dtype=np.float32):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


WEIGHT = numbers(FEATURES, CLASSES, seed=1, scale=0.7)
BIAS = numbers(CLASSES, seed=2)


@dataclass
class Builder:
    """A graph under construction; `node` gives the name of what the node makes."""

    opset: int = 17
    dtype: type = np.float32
    nodes: list = field(default_factory=list)
    arrays: list = field(default_factory=list)
    sparse: list = field(default_factory=list)
    inputs: list = field(default_factory=list)
    feed: dict = field(default_factory=dict)
    outputs: list = field(default_factory=list)
    functions: list = field(default_factory=list)
    domains: dict = field(default_factory=dict)
    format: int = FORMAT

    def node(self, kind, *inputs, outputs=1, domain="", name="", **attributes):
        made = [f"{kind}_{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(
            helper.make_node(kind, list(inputs), made, name=name, domain=domain, **attributes)
        )
        if domain:
            self.domains.setdefault(domain, 1)
        return made[0] if outputs == 1 else made

    def array(self, value, name=""):
        name = name or f"array_{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def sparse_array(self, value, name):
        """A matrix of which only what is not zero is stored."""
        places = np.flatnonzero(value)
        kept = numpy_helper.from_array(value.reshape(-1)[places], name)
        indices = numpy_helper.from_array(places.astype(np.int64), f"{name}_places")
        self.sparse.append(helper.make_sparse_tensor(kept, indices, list(value.shape)))
        return name

    def constant(self, value):
        return self.node("Constant", value=numpy_helper.from_array(np.asarray(value)))

    def input(self, name, value, shape=None):
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        shape = ["batch", *value.shape[1:]] if shape is None else shape
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self.feed[name] = value
        return name

    def features(self, *, steps=0, examples=9, shape=None):
        """A hidden layer of an input `x`: (B, D), or (B, T, D)."""
        size = (examples, steps, INPUTS) if steps else (examples, INPUTS)
        x = self.input("x", numbers(*size, seed=3, scale=1.5, dtype=self.dtype), shape)
        hidden = self.node(
            "MatMul", x, self.array(numbers(INPUTS, FEATURES, seed=4, dtype=self.dtype))
        )
        return self.node("Relu", hidden)

    def logits(self, features):
        product = self.node("MatMul", features, self.array(WEIGHT.astype(self.dtype), "W"))
        return self.node("Add", product, self.array(BIAS.astype(self.dtype), "b"))

    def output(self, tensor, name="y", kind=None):
        node = helper.make_node("Identity", [tensor], [name])
        self.nodes.append(node)
        self.outputs.append(
            onnx.ValueInfoProto(name=name)
            if kind is None
            else helper.make_tensor_value_info(name, kind, None)
        )
        return name

    def model(self):
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(name, version) for name, version in self.domains.items()]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            self.inputs,
            self.outputs,
            self.arrays,
            sparse_initializer=self.sparse,
        )
        return helper.make_model(
            graph, opset_imports=imports, ir_version=self.format, functions=self.functions
        )


def save(builder, folder, *, external=False):
    """The model as a file."""
    path = Path(folder) / "model.onnx"
    model = builder.model()
    _declare_outputs(model, builder.feed)
    if external:
        onnx.save(
            model,
            path,
            save_as_external_data=True,
            location="weights.bin",
            size_threshold=0,
        )
    else:
        onnx.save(model, path)
    return path


def _declare_outputs(model, feed):
    """Types and ranks of outputs, which a file must declare, as a run shows them."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    values = session.run(None, feed)
    for output, value in zip(model.graph.output, values):
        if isinstance(value, np.ndarray):
            kind = (
                TensorProto.STRING
                if value.dtype == object
                else helper.np_dtype_to_tensor_dtype(value.dtype)
            )
            shape = [f"size_{place}" for place in range(value.ndim)]
            output.CopyFrom(helper.make_tensor_value_info(output.name, kind, shape))
