"""How unusual an input is, from its features and logits, by sums of the fit.

    score = −log Φ(−1 − z_E) − log Φ(1 − z_ψ) − log Φ(1 − z_φ)

z_E is the energy −logsumexp of the logits, z_φ and z_ψ are log squared Mahalanobis
distances of features and of their polar form; each minus its mean over held-out data
and divided by its deviation; where many held-out data tell it, by that of those above
the mean. Energies of words have a long tail downwards and their distances one upwards:
a deviation of both sides lets the distances speak too loud there. −log Φ(−z) is the
surprise at a normal variable beyond z: about z²/2 above the mean, and next to nothing
below. The energy speaks from one deviation below its mean on, distances only from one
above theirs: where they mean little the energy decides.

Of several labels at once, the energy is minus the sum of log(1 + exp z) over their
logits (the joint energy of Wang et al., 2021), and distances are to one mean of all
examples, with their whole covariance: which labels apply makes too many classes.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge.laplace.feature_distance import FeatureDistances
from laplacebridge.laplace.feature_statistics import FeatureStatistics
from laplacebridge.laplace.whitened_distance import WhitenedDistances

# of energy, polar distance and distance: by how many deviations each is held back, and was
# in files that do not say so
HELD_BACK, HELD_BACK_EARLIER = (-1.0, 1.0, 1.0), (0.0, 2.0, 2.0)
# Deviations beyond which all inputs are equally unusual; their square is a float32.
LARGEST_DEVIATION = 1e9
# Deviations of log d² on held-out data up to which an input is ordinary: all but one of a
# hundred of them. Fewer held-out examples than these do not tell.
ORDINARY_DEVIATIONS, FEWEST_FOR_DISTANCE = 2.33, 17
# Examples from which the deviation of those above the mean is known to a tenth.
FEWEST_FOR_TAIL = 100
# Fewer held-out examples than this do not tell what is usual better than training does.
FEWEST_HELD_OUT = 8
SMALLEST_DEVIATION = 1e-6
PREFIX = "distances."


class UnusualScore(nn.Module):
    """The score of unusual inputs, and what it is on held-out data.

    Args:
        distances: To the classes, of features and of their polar form.
        usual: Means and deviations of energy, polar log d² and log d²; shape (2, 3).
        reference: Scores of held-out examples, ascending; empty if there were none.
        head_name: Name of the head, whose inputs are the features.
        held_back: By how many deviations each of the three is, before it counts.
    """

    usual: Tensor
    reference: Tensor
    held_back: Tensor

    def __init__(
        self,
        distances: FeatureDistances | WhitenedDistances,
        usual: Float[Tensor, "2 3"],
        reference: Float[Tensor, " N"],
        head_name: str = "",
        held_back: Float[Tensor, " 3"] | None = None,
    ) -> None:
        super().__init__()
        self.distances = distances
        self.head_name = head_name
        self.register_buffer("usual", usual)
        self.register_buffer("reference", reference)
        if held_back is None:
            held_back = usual.new_tensor(HELD_BACK)
        self.register_buffer("held_back", held_back)

    @classmethod
    def of_sums(
        cls, sums: FeatureStatistics, dtype: torch.dtype, head_name: str = ""
    ) -> "UnusualScore":
        """The score from the sums of a fit alone; what is usual then follows from the
        training data.

        Args:
            sums: Of the fit.
            dtype: Of the scores.
            head_name: Name of the head.
        """
        distances = FeatureDistances.of_sums(
            sums.class_counts, sums.class_sums, sums.squares, dtype
        )
        mean, square = (sums.energies / sums.num_examples).tolist()
        deviation = math.sqrt(max(0.0, square - mean**2))
        expected = distances.expected
        energy = expected.new_tensor([mean, _at_least(deviation, mean)])
        # the polar form is as far away, but for its length
        usual = torch.stack([energy, expected, expected], -1)
        return cls(distances, usual, usual.new_empty(0), head_name)

    def calibrated(
        self, features: Float[Tensor, "N D"], logits: Float[Tensor, "N K"]
    ) -> "UnusualScore":
        """The score as held-out data make it.

        Args:
            features: Of held-out examples.
            logits: Of the same.
        """
        return self.calibrated_by(self.parts(features, logits))

    def calibrated_by(self, parts: Float[Tensor, "N 3"]) -> "UnusualScore":
        """The same from what `parts` gives.

        Every other example says what is usual, and the rest what scores then are, so
        that these are as good as the scores of new examples: that is what the guarantee
        of `Unusual.quantile` rests on.

        Args:
            parts: Of held-out examples.
        """
        if len(parts) < FEWEST_HELD_OUT:
            usual, rest = self.usual, parts
        else:
            exact, rest = parts[0::2].double(), parts[1::2]
            means = exact.mean(0)
            deviations = exact.std(0)
            if len(exact) >= FEWEST_FOR_TAIL:
                above = (exact - means).clamp_min(0.0)
                deviations = (above.square().sum(0) / (above > 0).sum(0).clamp_min(1)).sqrt()
            pairs = zip(deviations.tolist(), means.tolist(), strict=True)
            usual = self.usual.new_tensor([means.tolist(), [_at_least(*pair) for pair in pairs]])
        other = type(self)(self.distances, usual, self.reference, self.head_name, self.held_back)
        other.reference = other.of_parts(rest).sort().values
        return other

    def parts(
        self, features: Float[Tensor, "B D"], logits: Float[Tensor, "B K"]
    ) -> Float[Tensor, "B 3"]:
        """Energy, polar log d² and log d² of each row.

        Args:
            features: Inputs of the head.
            logits: What it makes of them.
        """
        energy = -logits.to(self.usual.dtype).logsumexp(-1, keepdim=True)
        return torch.cat([energy, self.distances(features)], -1)

    def beyond(self, log_distance: Float[Tensor, " B"]) -> Float[Tensor, " B"] | None:
        """How much farther each row lies than held-out data do, as the logarithm of a
        ratio of squared distances; 0 for ordinary rows. None where too few held-out
        examples were there to tell.

        Args:
            log_distance: log d² of each row, in features.
        """
        if len(self.reference) < FEWEST_FOR_DISTANCE:
            return None
        ordinary = self.usual[0, 2] + ORDINARY_DEVIATIONS * self.usual[1, 2]
        return (log_distance - ordinary).clamp_min(0.0)

    def of_parts(self, parts: Float[Tensor, "B 3"]) -> Float[Tensor, " B"]:
        """The score.

        Args:
            parts: As `parts` gives them.
        """
        standardised = (parts - self.usual[0]) / self.usual[1]
        return surprise(standardised - self.held_back).sum(-1)

    def forward(
        self, features: Float[Tensor, "B D"], logits: Float[Tensor, "B K"]
    ) -> Float[Tensor, " B"]:
        """The score of each row: higher is more unusual.

        Args:
            features: Inputs of the head.
            logits: What it makes of them.
        """
        return self.of_parts(self.parts(features, logits))

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor], head_name: str) -> "UnusualScore":
        """From its state, as `buffers_by_name` gives it.

        Args:
            buffers: Tensors by name.
            head_name: Name of the head.
        """
        held = dict(buffers)
        usual, reference = held.pop("usual"), held.pop("reference")
        held_back = held.pop("held_back", usual.new_tensor(HELD_BACK_EARLIER))
        whitened = "distance.whitening" in held
        distances = WhitenedDistances.from_buffers(held) if whitened else FeatureDistances(**held)
        return cls(distances, usual, reference, head_name, held_back)

    def buffers_by_name(self) -> dict[str, Tensor]:
        """Its state, as files have it."""
        return {name.removeprefix(PREFIX): part for name, part in self.state_dict().items()}


def surprise(deviations: Tensor) -> Tensor:
    """−log Φ(−z), to 7 % and in few operations: Φ(−z) is the density at z times
    2/(z + √(z² + 8/π)), nearly.

    Args:
        deviations: z.

    Example:
        >>> surprise(torch.tensor([-2.0, 0.0, 2.0]))
        tensor([0.0240, 0.6931, 3.7428])
    """
    size = deviations.abs().clamp_max(LARGEST_DEVIATION)
    square = size.square()
    beyond = (square + math.log(2 * math.pi)) / 2
    beyond = beyond + ((size + (square + 8 / math.pi).sqrt()) / 2).log()
    return torch.where(deviations > 0, beyond, -torch.log1p(-(-beyond).exp()))


def _at_least(deviation: float, mean: float) -> float:
    """A deviation that can be divided by, where all examples are the same."""
    return max(deviation, SMALLEST_DEVIATION * (1 + abs(mean)))
