"""`ClassSets`: which classes remain possible, one set for each example."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of, rows_of
from laplacebridge.errors import ShapeError


@dataclass(frozen=True, eq=False)
class ClassSets:
    """B sets of classes, each in order of falling probability.

    Sets are concatenated in one tensor, so that memory follows their sizes and not K.

    Attributes:
        classes: The members of all sets, those of the first example first, shape (N,).
        size: How many classes each set has, shape (B,).
        num_classes: K.

    Example:
        >>> sets = ClassSets.from_lists([[2, 0], [1]], num_classes=3)
        >>> sets.size, sets.contains([0, 0]), sets.to_names(["cat", "dog", "owl"])
        (tensor([2, 1]), tensor([ True, False]), [['owl', 'cat'], ['dog']])
    """

    classes: Int[Tensor, " N"]
    size: Int[Tensor, " B"]
    num_classes: int

    def __post_init__(self) -> None:
        if int(self.size.sum()) != len(self.classes):
            raise ShapeError(
                "`ClassSets(classes, size)` needs as many classes as the sizes add up to,"
                f" {int(self.size.sum())}; got {len(self.classes)}. From lists of classes use"
                " `ClassSets.from_lists`."
            )

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]], *, num_classes: int) -> "ClassSets":
        """Takes one list of classes for each example.

        Args:
            lists: The sets.
            num_classes: K.

        Raises:
            ShapeError: If a class is out of range or twice in a set.
        """
        for row, members in enumerate(lists):
            if len(set(members)) != len(members) or not all(
                0 <= member < num_classes for member in members
            ):
                raise ShapeError(
                    "`ClassSets.from_lists(lists)` needs different classes from 0 to"
                    f" {num_classes - 1}; set {row} is {list(members)}. Name each class once,"
                    " counted from 0."
                )
        flat = [member for members in lists for member in members]
        sizes = [len(members) for members in lists]
        return cls(
            torch.tensor(flat, dtype=torch.long), torch.tensor(sizes, dtype=torch.long), num_classes
        )

    @takes_arrays
    def to_lists(self) -> list[list[int]]:
        """The classes of each set, the most probable first."""
        return [part.tolist() for part in self._parts()]

    def to_names(self, class_names: Sequence[str]) -> list[list[str]]:
        """The names of the classes of each set.

        Args:
            class_names: One name for each of the K classes.

        Raises:
            ShapeError: If there are fewer or more names than classes.
        """
        if len(class_names) != self.num_classes:
            raise ShapeError(
                f"`to_names(class_names)` needs a name for each of {self.num_classes} classes; got"
                f" {len(class_names)}."
            )
        return [[class_names[member] for member in members] for members in self.to_lists()]

    @takes_arrays
    def contains(self, labels: Labels) -> Bool[Tensor, " B"]:
        """Whether each set holds the label of its example.

        Args:
            labels: One class for each example, shape (B,).
        """
        wanted = labels_of("contains(labels)", labels, len(self), self.num_classes).to(
            self.classes.device
        )
        hits = (self.classes == wanted[self._rows()]).long()
        return torch.zeros_like(self.size).index_add(0, self._rows(), hits) > 0

    @takes_arrays
    def mask(self) -> Bool[Tensor, "B K"]:
        """Which class is in which set. Holds B·K truth values."""
        inside = torch.zeros(
            len(self), self.num_classes, dtype=torch.bool, device=self.classes.device
        )
        inside[self._rows(), self.classes] = True
        return inside

    def __len__(self) -> int:
        return len(self.size)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.to_lists())

    @takes_arrays
    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "ClassSets":
        """The sets of some examples; an integer keeps the batch dimension."""
        parts = self._parts()
        chosen = torch.arange(len(self))[rows_of(rows, len(self))].tolist()
        members = torch.cat([parts[row] for row in chosen]) if chosen else self.classes[:0]
        return type(self)(
            members, self.size[torch.tensor(chosen, dtype=torch.long)], self.num_classes
        )

    @takes_arrays
    def __repr__(self) -> str:
        shown = ", ".join(str(part.tolist()) for part in self._parts()[:3])
        sizes = f"mean size {float(self.size.double().mean()):.2f}" if len(self) else "empty"
        return f"ClassSets({len(self)} sets of {self.num_classes} classes, {sizes}: {shown}, …)"

    def _parts(self) -> tuple[Tensor, ...]:
        return torch.split(self.classes, self.size.tolist())

    def _rows(self) -> Tensor:
        """The example that each member belongs to."""
        return torch.arange(len(self), device=self.size.device).repeat_interleave(self.size)
