"""What to look at: single examples of every kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Generator, Tensor

from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace.examples import Examples
from laplacebridge.prediction import Prediction

# How many examples of a kind are shown, and numbers of a row of a table.
SHOWN, SHOWN_CELLS = 6, 6
LONGEST_TEXT = 280


@dataclass(frozen=True, eq=False)
class Specimen:
    """One input worth looking at.

    Attributes:
        kind: Why; key of `KINDS`.
        prediction: What the classifier answers, one row.
        label: Its class, if it has one.
        image: The input, channels first or a plane, numbers of any scale; None if it is
            no image.
        text: The input in words, if it has some.
        cells: Those numbers of a row of a table that are farthest from usual, by name.
        name: What the example is called, or its number.

    Raises:
        ShapeError: If the image is none.
        InputError: If it is not finite.
    """

    kind: str
    prediction: Prediction
    label: int | None
    image: Tensor | None = None
    text: str = ""
    cells: Mapping[str, float] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.image is None:
            return
        if self.image.dim() not in {2, 3} or self.image.numel() == 0:
            raise ShapeError(
                "`Specimen(image)` needs a plane or channels first, (H, W) or (C, H, W); got "
                f"{tuple(self.image.shape)}. Leave it out if the input is no image."
            )
        if not self.image.isfinite().all():
            raise InputError(
                "`Specimen(image)` needs finite numbers; got NaN or infinity. Leave the image out."
            )


# Kinds of examples, and what a reader should look for in them.
KINDS = {
    "surest mistakes": "The classifier is sure, and the label says otherwise: often the label is"
    " wrong.",
    "most doubtful": "The labels that it knows least about; a person should see such cases.",
    "most unusual": "Test inputs that are least like the training data.",
    "unusual, not noticed": "Inputs that belong to no class, and look most ordinary to the"
    " classifier.",
    "typical": "A few right answers, drawn at random.",
}


@dataclass(frozen=True, eq=False)
class Shown:
    """Examples that can be shown.

    Attributes:
        prediction: Of each.
        examples: Their inputs and labels.
        names: What each is called; by default its number.
        texts: Each in words, if they have some.
        feature_names: Of the columns, where they are rows of a table.
    """

    prediction: Prediction
    examples: Examples
    names: Sequence[str] = ()
    texts: Sequence[str] = ()
    feature_names: Sequence[str] = ()

    def specimen(self, kind: str, row: int, beside: "Shown | None" = None) -> Specimen:
        """One of them; numbers of a table are compared with those of other examples."""
        labels, inputs = self.examples.labels, self.examples.inputs
        is_table = inputs is not None and inputs.dim() == 2
        return Specimen(
            kind,
            self.prediction[row],
            None if labels is None else int(labels[row]),
            None if inputs is None or is_table or not _showable(inputs[row]) else inputs[row],
            self.texts[row][:LONGEST_TEXT] if self.texts else "",
            (beside or self)._cells(row, inputs) if is_table and inputs is not None else None,
            self.names[row] if self.names else f"no. {row}",
        )

    def _cells(self, row: int, inputs: Tensor) -> dict[str, float]:
        """The numbers of a row that are farthest from usual, the farthest first."""
        usual = self.examples.inputs
        assert usual is not None  # noqa: S101  (there are inputs of the same kind)
        deviation = usual.double().std(0) if len(usual) > 1 else torch.ones(usual.shape[1])
        far = ((inputs[row].double() - usual.double().mean(0)) / deviation).abs()
        order = (
            torch.where(far.isfinite(), far, 0.0)
            .argsort(descending=True, stable=True)[:SHOWN_CELLS]
            .tolist()
        )
        names = self.feature_names or [f"column {place}" for place in range(len(far))]
        return {names[place]: float(inputs[row, place]) for place in order}


def gallery(
    test: Shown, right: Bool[Tensor, " N"], ood: Mapping[str, Shown], *, seed: int
) -> tuple[Specimen, ...]:
    """Examples of every kind, the most telling first."""
    confidence = test.prediction.mean.amax(-1)
    chosen: dict[str, list[int]] = {}
    wrong = (~right).nonzero().flatten()
    chosen["surest mistakes"] = wrong[confidence[wrong].argsort(descending=True)].tolist()
    chosen["most doubtful"] = confidence.argsort().tolist()
    chosen["most unusual"] = _strangeness(test.prediction).argsort(descending=True).tolist()
    specimens = [test.specimen(kind, row) for kind, rows in chosen.items() for row in rows[:SHOWN]]
    if ood:
        missed = [
            (float(score), kind, row)
            for kind, each in ood.items()
            for row, score in enumerate(_strangeness(each.prediction).tolist())
        ]
        for _, kind, row in sorted(missed)[:SHOWN]:
            found = ood[kind].specimen("unusual, not noticed", row, beside=test)
            specimens.append(found)
    kept = right.nonzero().flatten()
    drawn = kept[torch.randperm(len(kept), generator=Generator().manual_seed(seed))]
    specimens += [test.specimen("typical", row) for row in drawn[: SHOWN // 2].tolist()]
    return tuple(specimens)


def _strangeness(prediction: Prediction) -> Tensor:
    return prediction.epistemic if prediction.unusual is None else prediction.ood_score


def _showable(image: Tensor) -> bool:
    return bool(image.isfinite().all())
