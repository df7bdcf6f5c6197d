"""A device that is played: tensors on it say so, hold real numbers, and mix with those
of the CPU as little as those of an accelerator do.

Whoever needs a number of it on the CPU has to wait for it, which fails; under `reading`
it is given, and noted who asked.
"""

import sys
from contextlib import contextmanager

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

NAME = "played"
# Their results are as long as numbers say, or are numbers.
WAITING = {
    "_local_scalar_dense",
    "_unique",
    "_unique2",
    "bincount",
    "equal",
    "histc",
    "masked_select",
    "nonzero",
    "repeat_interleave",
    "unique_consecutive",
    "unique_dim",
}


class WaitingError(RuntimeError):
    """A number of the device is needed on the CPU."""


class OnDevice(torch.Tensor):
    """What a tensor on the device is; `numbers` is where its numbers really are."""

    @staticmethod
    def __new__(cls, numbers):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=DEVICE,
        )

    def __init__(self, numbers):
        self.numbers = numbers

    def __repr__(self):
        return f"OnDevice({self.numbers!r})"

    def tolist(self):
        wait()
        return self.numbers.tolist()

    def untyped_storage(self):
        return self.numbers.untyped_storage()

    def new_tensor(self, numbers, **options):
        options = {"dtype": self.dtype, "device": DEVICE, **options}
        return torch.tensor(numbers, **options)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copied = OnDevice(self.numbers.clone()).requires_grad_(self.requires_grad)
            copied.__dict__.update(
                {name: value for name, value in vars(self).items() if name != "numbers"}
            )
            memo[id(self)] = copied
        return memo[id(self)]

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        name = func.overloadpacket._qualified_op_name.removeprefix("aten::")
        tensors = [
            each
            for each in pytree.tree_leaves((arguments, keywords))
            if isinstance(each, torch.Tensor)
        ]
        here = [each for each in tensors if isinstance(each, OnDevice)]
        to = keywords.get("device")
        mixing = [each for each in tensors if not isinstance(each, OnDevice) and each.dim()]
        if name in {"index", "index_put_"} and isinstance(arguments[0], OnDevice):
            # places may be given by the CPU, as on any device, and so may single numbers
            mixing = [each for each in mixing if all(each is not place for place in arguments[1])]
        if name == "copy_":
            if here and not isinstance(arguments[0], OnDevice):
                wait()
        elif here and mixing:
            raise RuntimeError(
                f"Expected all tensors to be on the same device: {DEVICE} and cpu, in {name}"
            )
        if to is not None:
            keywords["device"] = torch.device("cpu")
            if here and torch.device(to).type == "cpu":
                wait()
        if here and (name in WAITING or (name.startswith("index") and by_mask(arguments))):
            wait()
        inner = pytree.tree_map_only(OnDevice, lambda each: each.numbers, (arguments, keywords))
        result = func(*inner[0], **inner[1])
        if (torch.device(to).type != NAME) if to is not None else not here:
            return result
        if name == "copy_" and not isinstance(arguments[0], OnDevice):
            return arguments[0]
        result = pytree.tree_map_only(torch.Tensor, OnDevice, result)
        return return_and_correct_aliasing(func, arguments, keywords, result)


def by_mask(arguments):
    indices = arguments[1] if len(arguments) > 1 else ()
    return isinstance(indices, (list, tuple)) and any(
        isinstance(each, OnDevice) and each.dtype in (torch.bool, torch.uint8) for each in indices
    )


class Made(TorchDispatchMode):
    """Makes tensors for the device."""

    def __torch_dispatch__(self, func, types, arguments=(), keywords=None):
        return OnDevice.__torch_dispatch__(func, types, arguments, keywords)


@contextmanager
def accelerator():
    # those of lists, numbers and arrays torch makes below all modes
    makers = torch.tensor, torch.as_tensor

    def moved(maker):
        def made(*arguments, device=None, **options):
            tensor = maker(*arguments, **options)
            return tensor if device is None else tensor.to(device)

        return made

    torch.tensor, torch.as_tensor = map(moved, makers)
    try:
        with Made():
            yield
    finally:
        torch.tensor, torch.as_tensor = makers


_readers: list[set[str]] = []


def wait():
    if not _readers:
        raise WaitingError("a number of the device is needed on the CPU")
    frame = sys._getframe(1)
    while frame is not None:
        folder, _, module = frame.f_code.co_filename.rpartition("/laplacebridge/")
        if folder and frame.f_code.co_name != "wrapped":
            place = f"{module.removesuffix('.py').replace('/', '.')}.{frame.f_code.co_name}"
            for places in _readers:
                places.add(place)
            return
        frame = frame.f_back


@contextmanager
def reading():
    """Gives the functions of the library that asked for numbers, or moved them to the
    CPU.
    """
    places: set[str] = set()
    _readers.append(places)
    try:
        yield places
    finally:
        _readers.remove(places)


def _registered():
    """Torch has room for one device of others' making; this takes it, for all of the
    process.
    """
    from torch.utils import backend_registration

    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        pytest.skip("this torch cannot play a device", allow_module_level=True)

    class Hook(torch._C._acc.PrivateUse1Hooks):
        def is_available(self):
            return False

        def has_primary_context(self, device):
            return True

        def is_built(self):
            return True

    class Module(backend_registration._DummyBackendModule):
        def is_available(self):
            return False

        def device_count(self):
            return 0  # of which torch would keep random states

    setup(rename=NAME, hook=Hook(), backend_module=Module())
    return torch.device(NAME, 0)


DEVICE = _registered()
