"""Dirichlets over class probabilities: what every bridge returns and every decision
reads.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from laplacebridge._checks import is_half, require_alike, require_tensor, rows_of
from laplacebridge._divergence import dirichlet_divergence, dirichlet_entropy, dirichlet_log_density
from laplacebridge._pytrees import register_value
from laplacebridge._special import complement, digamma_next_minus_log, softmax
from laplacebridge._values import not_finite
from laplacebridge.beta import Beta
from laplacebridge.errors import ShapeError

# With all concentrations below e^this a Dirichlet is a corner, drawn with the chances
# of its mean, to the last digit.
_LOG_CORNER = -42.0


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """B Dirichlet distributions over the probabilities of K classes.

    Concentrations are kept as logarithms, because bridges produce them from 1e-30 to
    far beyond 1e38.

    Attributes:
        log_concentration: log α, shape (B, K).

    Example:
        >>> dirichlet = Dirichlet.from_concentration(torch.tensor([[6.0, 3.0, 1.0]]))
        >>> dirichlet.mean, dirichlet.total
        (tensor([[0.6000, 0.3000, 0.1000]]), tensor([10.]))
    """

    log_concentration: Float[Tensor, "B K"]

    def __post_init__(self) -> None:
        require_tensor("Dirichlet(log_concentration)", self.log_concentration, "B K", classes=1)

    @classmethod
    def from_concentration(cls, concentration: Tensor) -> "Dirichlet":
        """Takes concentrations α > 0, shape (B, K), instead of their logarithms."""
        return cls(
            require_tensor(
                "Dirichlet.from_concentration(concentration)", concentration, "B K"
            ).log()
        )

    @classmethod
    def from_torch(cls, distribution: torch.distributions.Dirichlet) -> "Dirichlet":
        """Takes a `torch.distributions.Dirichlet` with batch shape (B,)."""
        return cls.from_concentration(distribution.concentration)

    def to_torch(self) -> torch.distributions.Dirichlet:
        """The same as a `torch.distributions.Dirichlet`; concentrations must be within
        the type's range.
        """
        return torch.distributions.Dirichlet(self.concentration)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.log_concentration.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the stored logarithms."""
        return self.log_concentration.dtype

    @property
    def concentration(self) -> Float[Tensor, "B K"]:
        """α; infinite where it exceeds the range of the type, which its logarithm does
        not.
        """
        return self.log_concentration.exp()

    @property
    def log_total(self) -> Float[Tensor, " B"]:
        """log α₀."""
        return self.log_concentration.logsumexp(-1)

    @property
    def total(self) -> Float[Tensor, " B"]:
        """α₀ = Σ α_k: how sure the distribution is about its mean."""
        return self.log_total.exp()

    @property
    def mean(self) -> Float[Tensor, "B K"]:
        """Class probabilities E π = α/α₀ (Eq. 9)."""
        return softmax(self.log_concentration)

    @property
    def mode(self) -> Float[Tensor, "B K"]:
        """Where the density is largest: (α − 1)/(α₀ − K) if every α > 1.

        Classes with α ≤ 1 get 0, the others share the rest; if no class exceeds 1, the
        largest gets it all.
        """
        log = self.log_concentration
        inside = log > 0
        log_excess = log + torch.log(-torch.expm1(-log.clamp_min(torch.finfo(log.dtype).tiny)))
        shared = log_excess.masked_fill(~inside, -torch.inf)
        vertex = torch.zeros_like(log).scatter(-1, log.argmax(-1, keepdim=True), 1)
        has_inside = inside.any(-1, keepdim=True)
        return torch.where(has_inside, torch.where(has_inside, shared, 0.0).softmax(-1), vertex)

    @property
    def variance(self) -> Float[Tensor, "B K"]:
        """Variance of each probability, m(1 − m)/(α₀ + 1)."""
        mean = self.mean
        return mean * complement(mean) * torch.sigmoid(-self.log_total).unsqueeze(-1)

    def covariance(self) -> Float[Tensor, "B K K"]:
        """Covariance of the probabilities, (diag(m) − mmᵀ)/(α₀ + 1). Holds B·K²
        numbers.
        """
        mean = self.mean
        shrink = torch.sigmoid(-self.log_total)[:, None, None]
        outer = -mean.unsqueeze(-1) * mean.unsqueeze(-2) * shrink
        return torch.diagonal_scatter(outer, self.variance, dim1=-2, dim2=-1)

    def marginal(self, classes: int | Tensor) -> Beta:
        """The Beta distribution of the probability of one class (Eq. 10).

        Args:
            classes: The class, or one class for each example, shape (B,).

        Raises:
            ShapeError: If there is no such class.
        """
        log = self.log_concentration
        index = torch.as_tensor(classes, device=log.device)
        if (
            index.is_floating_point()
            or index.dim() > 1
            or (index.dim() == 1 and len(index) != len(log))
        ):
            raise ShapeError(
                f"`marginal(classes)` needs a class or one integer for each of {len(log)} examples;"
                f" got {index.dtype} of shape {tuple(index.shape)}. For groups of classes use"
                " `aggregate`."
            )
        if ((index < 0) | (index >= self.num_classes)).any():
            raise ShapeError(
                f"`marginal(classes)` needs classes from 0 to {self.num_classes - 1}; got"
                f" {classes}. Classes are counted from 0."
            )
        column = index.long().expand(len(log)).unsqueeze(-1)
        others = log.scatter(-1, column, -torch.inf).logsumexp(-1)
        return Beta(log.gather(-1, column).squeeze(-1), others)

    def aggregate(self, groups: Sequence[Sequence[int]]) -> "Dirichlet":
        """Adds up classes: the probabilities of groups are Dirichlet again, with summed
        α (Eq. 10).

        Args:
            groups: Disjoint, non-empty groups of classes. Classes in no group form a
                last one of their own.

        Returns:
            A Dirichlet with one class per group, and one more for the rest if there is
            any.

        Raises:
            ShapeError: If a class is in two groups, out of range, or only one group
                remains.

        Example:
            >>> dirichlet = Dirichlet.from_concentration(torch.tensor([[1.0, 2.0, 3.0, 5.0]]))
            >>> dirichlet.aggregate([[0, 1]]).mean
            tensor([[0.2727, 0.7273]])
        """
        named = Counter(int(index) for group in groups for index in group)
        repeated = sorted(index for index, count in named.items() if count > 1)
        if repeated or not all(len(group) for group in groups):
            raise ShapeError(
                "`aggregate(groups)` needs disjoint, non-empty groups; got "
                f"{f'classes {repeated[:5]} more than once' if repeated else 'an empty group'}. "
                "Name each class at most once."
            )
        if not all(0 <= index < self.num_classes for index in named):
            raise ShapeError(
                f"`aggregate(groups)` needs classes from 0 to {self.num_classes - 1}; got"
                f" {min(named)} to {max(named)}. Classes are counted from 0."
            )
        rest = sorted(set(range(self.num_classes)) - set(named))
        complete = [list(group) for group in groups] + ([rest] if rest else [])
        if len(complete) < 2:
            raise ShapeError(
                "`aggregate(groups)` needs to leave at least two groups; got one group of all"
                f" {self.num_classes} classes. Leave a class out of it, or split it."
            )
        return type(self)(
            torch.stack([self.log_concentration[:, group].logsumexp(-1) for group in complete], -1)
        )

    def entropy(self) -> Float[Tensor, " B"]:
        """Differential entropy of the Dirichlet itself."""
        return dirichlet_entropy(self._wide()).to(self.dtype)

    def entropy_of_mean(self) -> Float[Tensor, " B"]:
        """H(E π): uncertainty about the label, from whatever cause. Between 0 and log
        K.
        """
        log = self._wide()
        log_mean, mean = log.log_softmax(-1), softmax(log)
        # for the largest class −log m is about 1 − m, which log_softmax rounds away
        top = mean.argmax(-1, keepdim=True)
        log_mean = log_mean.scatter(-1, top, torch.log1p(-complement(mean).gather(-1, top)))
        return -(mean * log_mean.clamp_min(torch.finfo(log.dtype).min)).sum(-1).to(self.dtype)

    def expected_entropy(self) -> Float[Tensor, " B"]:
        """E H(π): uncertainty that would remain if the probabilities were known
        (aleatoric).
        """
        information = self.mutual_information()
        return (self.entropy_of_mean() - information).clamp_min(
            0
        )  # zero is its bound; less is rounding

    def mutual_information(self) -> Float[Tensor, " B"]:
        """H(E π) − E H(π): uncertainty about the probabilities themselves (epistemic).

        Computed as Σ m_k η(α_k) − η(α₀) with η(x) = ψ(x + 1) − log x, which for large α
        is the small number (K − 1)/(2α₀) instead of a difference of two entropies.
        """
        log = self._wide()
        # a corner whatever the size of α: scaled up together, which changes nothing but
        # keeps the digits of log α
        top = log.amax(-1, keepdim=True)
        log = torch.where(top < _LOG_CORNER, log - top + _LOG_CORNER, log)
        gaps = (softmax(log) * digamma_next_minus_log(log)).sum(-1)
        return (
            (gaps - digamma_next_minus_log(log.logsumexp(-1))).clamp_min(0).to(self.dtype)
        )  # less is rounding

    def log_prob(self, probabilities: Tensor) -> Float[Tensor, " B"]:
        """Log-density at points inside the simplex.

        Args:
            probabilities: Positive rows that sum to one, shape (B, K).

        Raises:
            ShapeError: If the shape is another one.
        """
        self._require_points("log_prob(probabilities)", probabilities, "probabilities")
        log = self._wide()
        log_point = probabilities.to(log.dtype).log()
        return (dirichlet_log_density(log, log_point) - log_point.sum(-1)).to(self.dtype)

    def log_prob_of_logits(self, logits: Tensor) -> Float[Tensor, " B"]:
        r"""Log-density in the softmax basis (Eq. 4): of logits whose softmax has this
        law.

        .. math:: \log p(z) = \sum_k \alpha_k \log \pi_k(z) - \log B(\alpha),
                  \quad \pi = \mathrm{softmax}(z)

        It is bounded where the density on the simplex is not, has one mode, and stays
        the same when a constant is added to all logits. As a density it is over the
        differences z_k − z_K from the last logit; over K − 1 of the logits of the
        zero-sum plane it is K times as large.

        Args:
            logits: What goes into softmax, shape (B, K).

        Raises:
            ShapeError: If the shape is another one.

        Example:
            >>> sparse = Dirichlet.from_concentration(torch.tensor([[0.5, 0.5]]))
            >>> sparse.log_prob_of_logits(torch.tensor([[0.0, 0.0]])).exp()  # 1/(2π)
            tensor([0.1592])
        """
        self._require_points("log_prob_of_logits(logits)", logits, "logits")
        log = self._wide()
        return dirichlet_log_density(log, logits.to(log.dtype).log_softmax(-1)).to(self.dtype)

    def _require_points(self, call: str, points: Tensor, name: str) -> None:
        """One row of points for each Dirichlet.

        Raises:
            ShapeError: If the shape is another one.
        """
        shape = tuple(self.log_concentration.shape)
        if tuple(require_tensor(call, points, "B K").shape) != shape:
            raise ShapeError(
                f"`{call}` needs {shape[0]} rows and {shape[1]} classes; got"
                f" {tuple(points.shape)}. Give one row of {name} per Dirichlet."
            )
        require_alike(call, self.log_concentration, points.to(self.dtype), ("Dirichlets", name))

    def kl_divergence(self, other: "Dirichlet") -> Float[Tensor, " B"]:
        """KL(self ‖ other), both over the same classes.

        Args:
            other: The Dirichlets to compare with, shape (B, K).

        Raises:
            ShapeError: If the shapes differ.
        """
        if other.log_concentration.shape != self.log_concentration.shape:
            raise ShapeError(
                "`kl_divergence(other)` needs Dirichlets of the same shape; got"
                f" {tuple(self.log_concentration.shape)} and"
                f" {tuple(other.log_concentration.shape)}. They are compared row by row: give one"
                " for each example."
            )
        names = ("these", "the other Dirichlets")
        require_alike(
            "kl_divergence(other)",
            self.log_concentration,
            other.log_concentration.to(self.dtype),
            names,
        )
        return dirichlet_divergence(self._wide(), other._wide()).to(self.dtype)

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Draws probability vectors, in log space so that tiny concentrations give
        vertices and not 0/0.

        Args:
            num_samples: How many, S.
            generator: Source of randomness.
        """
        log = self._wide()
        # below e^-80 a draw is a vertex with chances in proportion, which scaling the
        # whole row up keeps
        log = (log + (-80 - log.amax(-1, keepdim=True)).clamp_min(0)).expand(num_samples, -1, -1)
        bounded = log.clamp_max(60.0)  # beyond e^60 a Gamma draw is its mean to the last digit
        boosted = torch._standard_gamma(bounded.exp() + 1, generator=generator)
        uniform = torch.rand(log.shape, dtype=log.dtype, device=log.device, generator=generator)
        # a Gamma(α + 1) draw times U^(1/α) is a Gamma(α) draw
        log_draw = boosted.log() + torch.log1p(-uniform) * torch.exp(-bounded) + (log - bounded)
        return softmax(log_draw).to(self.dtype)

    def to(self, target: torch.dtype | torch.device | str) -> "Dirichlet":
        """The same Dirichlets in another type or on another device.

        A half-precision type cannot hold every logarithm. Rows beyond its range are
        scaled down as a whole, which keeps the mean and leaves the largest total that
        the type can say.
        """
        log = self.log_concentration
        if target == log.dtype:
            return self
        if isinstance(target, torch.dtype) and is_half(target) and not is_half(log.dtype):
            largest = torch.finfo(target).max
            top = log.amax(-1, keepdim=True)
            excess = torch.where(top > largest, top - math.log(largest), 0.0)
            log = (log - excess).clamp_min(-largest)
        return type(self)(log.to(target))

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """What could make these Dirichlets invalid, with the rows where it does; see
        `check`.
        """
        yield not_finite("log_concentration", self.log_concentration)

    def __len__(self) -> int:
        return self.log_concentration.shape[0]

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "Dirichlet":
        """The Dirichlets of some rows; an integer keeps the batch dimension."""
        return type(self)(self.log_concentration[rows_of(rows, len(self))])

    def _wide(self) -> Tensor:
        """log α in at least float32."""
        return self.log_concentration.float() if is_half(self.dtype) else self.log_concentration


register_value(Dirichlet, "log_concentration")
