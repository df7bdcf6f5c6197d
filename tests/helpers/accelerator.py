"""A device that is not there: under `FakeTensorMode` tensors are on "meta", with shapes
and types, but without numbers.

What needs a number fails there; `reading` answers instead, and notes who asked.
"""

import traceback
from contextlib import contextmanager

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device=DEVICE)


def linear(num_inputs, num_outputs):
    """A linear layer on the device, whose first weights cannot be drawn there."""
    layer = nn.Linear(num_inputs, num_outputs)
    layer.weight, layer.bias = (
        nn.Parameter(empty(num_outputs, num_inputs)),
        nn.Parameter(empty(num_outputs)),
    )
    return layer


class Reading(TorchDispatchMode):
    """Answers what asks for numbers as it is with sound input: all are right, none is
    wrong, signs differ, and a count is one.
    """

    def __init__(self):
        super().__init__()
        self.places = set()
        self._tests = {}

    def __torch_dispatch__(self, func, types, arguments=(), keywords=None):
        keywords = keywords or {}
        first = next((each for each in arguments if isinstance(each, torch.Tensor)), None)
        name = func.overloadpacket._qualified_op_name.removeprefix("aten::")
        if first is not None:
            answer = self._answer(name, first, arguments, keywords)
            if answer is not None:
                return answer
        result = func(*arguments, **keywords)
        if name in {"all", "any"}:  # kept, so that its id stays its own
            of_signs = id(first) in self._tests
            self._tests[id(result)] = (result, name == "all" and not of_signs)
        elif name in {"ge", "bitwise_not"}:
            self._tests[id(result)] = (result, False)
        return result

    def _answer(self, name, tensor, arguments, keywords):
        if name == "_local_scalar_dense":
            self._note()
            if tensor.dtype == torch.bool:
                return self._tests.get(id(tensor), (None, False))[1]
            return 1.0 if tensor.is_floating_point() else 1
        if name == "equal":
            self._note()
            return True
        if name == "nonzero":
            self._note()
            return tensor.new_empty(tensor.numel(), tensor.dim(), dtype=torch.int64)
        if name == "index" and any(
            each is not None and each.dtype == torch.bool for each in arguments[1]
        ):
            self._note()
            none = any(id(each) in self._tests for each in arguments[1])
            return tensor[:0] if none else tensor.clone()
        if name == "bincount":
            self._note()
            return tensor.new_empty(keywords.get("minlength", 0) or arguments[2])
        if (
            name == "_to_copy"
            and tensor.device == DEVICE
            and keywords.get("device", DEVICE) == torch.device("cpu")
        ):
            self._note()
        return None

    def _note(self):
        own = [
            frame
            for frame in traceback.extract_stack()
            if "/laplacebridge/" in frame.filename and "jaxtyping" not in frame.filename
        ]
        module = own[-1].filename.rpartition("/laplacebridge/")[2].removesuffix(".py")
        self.places.add(f"{module.replace('/', '.')}.{own[-1].name}")


def accelerator():
    # `torch.tensor` with a device makes no fake there
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def reading():
    """Gives the functions of the library that asked for numbers, or moved them to the
    CPU.
    """
    mode = Reading()
    with mode:
        yield mode.places
