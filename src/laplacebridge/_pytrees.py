"""Values that torch can see into: what `torch.export` and `torch.func` give back may be
one of ours.
"""

from typing import Any

from torch.utils import _pytree


def register_value(kind: type[Any], *fields: str) -> None:
    """Lets torch take a frozen dataclass of tensors apart, and put it together again.

    It is put together without its checks: torch also does so with what stands for
    tensors.

    Args:
        kind: The dataclass.
        fields: Names of what is in it, in order.
    """

    def flatten(value: Any) -> tuple[list[Any], None]:  # noqa: ANN401
        return [getattr(value, name) for name in fields], None

    def unflatten(parts: Any, _: Any) -> Any:  # noqa: ANN401
        value = object.__new__(kind)
        for name, part in zip(fields, parts):
            object.__setattr__(value, name, part)
        return value

    _pytree.register_pytree_node(
        kind,
        flatten,
        unflatten,
        serialized_type_name=f"laplacebridge.{kind.__name__}",
        flatten_with_keys_fn=lambda value: (
            [(_pytree.GetAttrKey(name), getattr(value, name)) for name in fields],
            None,
        ),
    )
