"""The front door: `fit` a trained network, get a `Classifier`."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge._checks import require_positive_number
from laplacebridge._fit.arguments import instead_of, require_kind_of_labels, require_kinds
from laplacebridge._fit.held_out import calibrated, choose, held_out_examples, unusual_score
from laplacebridge._values import check
from laplacebridge.bridges import Bridge, race_bridge, require_bridge
from laplacebridge.classifier import Classifier
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.laplace import prior
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch import Output, unpack_weighted_batch
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.curvature import Curvature
from laplacebridge.laplace.distributed import require_same, same_fate
from laplacebridge.laplace.head_fitting import HeadSums
from laplacebridge.laplace.interrupted import FitInterrupted, LoaderError
from laplacebridge.laplace.label_checks import IGNORED_LABEL
from laplacebridge.laplace.label_statistics import warn_if_classes_are_missing, warn_if_untrained
from laplacebridge.laplace.layers.fitting import LayerSums
from laplacebridge.laplace.loss import Loss
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.sums import Sums
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.multi_label.fitting import MultiLabelSums
from laplacebridge.multi_label.logistic import logistic_bridge

# Of these, predictions are looked at before the classifier is handed over.
CHECKED_EXAMPLES = 32
SAME_LABELS = "Give every process the same `val_loader`: it is not summed, as training data are."


P = ParamSpec("P")
T = TypeVar("T")


def network_and_loader(function: Callable[P, T]) -> Callable[P, T]:
    """Says to those who give a model of scikit-learn, or inputs and labels, what to do.

    Args:
        function: A function of a network and a loader.
    """

    @wraps(function)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> T:
        model = arguments[0] if arguments else keywords.get("model")
        if model is not None and not isinstance(model, nn.Module):
            raise InputTypeError(
                "`fit(model, train_loader)` needs a network first, an `nn.Module`, and a loader"
                f" second; got {type(model).__name__} first. {instead_of(model)}"
            )
        if len(arguments) > 2:
            raise InputTypeError(
                "`fit(model, train_loader)` takes a network and a loader, and the rest by name; got"
                f" {len(arguments)} arguments. Inputs and labels are one batch: `fit(model, [(X,"
                " y)])`."
            )
        return function(*arguments, **keywords)

    return wrapped


@network_and_loader
def fit(
    model: nn.Module,
    train_loader: Iterable[Any],
    *,
    val_loader: Iterable[Any] | None = None,
    curvature: type[Curvature] | None = None,
    posterior: type[Posterior] | None = None,
    prior_precision: float | None = None,
    tune_temperature: bool = False,
    bridge: Bridge | None = None,
    head: str | None = None,
    layers: str | Sequence[str] | None = None,
    resume: FitInterrupted | LoaderError | Sums | None = None,
    feature_statistics: bool | None = None,
    class_weight: Tensor | Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    sample_weights: bool = False,
    multi_label: bool | None = None,
    shift_labels: bool | None = None,
    output: Output | None = None,
    progress: bool = True,
) -> Classifier:
    """Fits a Laplace approximation to a trained classifier: of its last layer, or of
    the layers that are named.

    One pass over the data, for the last layer without gradients. The model is not
    changed. A linear layer alone is a model too, so that features computed before can
    be fitted: ``fit(nn.Linear(...), loader_of_features_and_labels)``.

    Args:
        model: A trained network that returns logits.
        train_loader: A loader of training batches: (inputs, labels), mappings with
            labels, or inputs alone. Labels stand where their logits are, or where the
            model's own loss takes them; see ``shift_labels``.
        val_loader: Batches with labels that the network was not trained on: temperature
            and width of the predictions are chosen so that intervals agree with the
            errors that these labels reveal (`laplace.width`).
        curvature: `Diag`, `Kron`, `DiagKron` or `Full`; by default `Kron` below 1000
            classes and `DiagKron` from there on. For several layers `Diag`, `Kron` (by
            default) or, up to 5000 weights, `Full`.
        posterior: Another posterior than the usual one of that curvature: for `Kron`,
            `MatrixNormalPosterior` is the paper's, with the prior damped into the
            factors.
        prior_precision: If known, with predictions as they follow from it; otherwise
            chosen by evidence.
        tune_temperature: Choose prior precision and temperature together by the
            likelihood of the held-out labels, as researchers do for comparison. Means
            are good then, intervals are not. Needs a ``val_loader``.
        bridge: How to predict; by default `race_bridge`, and for several labels at once
            `multi_label.logistic_bridge`.
        head: Name of the last linear layer; found by running the model if not given.
        layers: Linear layers and convolutions by name, one pattern or several: ``"*"``
            for all, ``"features.*"`` for those of a part. The rest of the network is
            left as it was trained; so is batch normalisation. Fitting and predicting
            then take a backward pass for each class, see `laplace.layers`. By default
            the head alone.
        resume: What a fit that was interrupted, or whose loader failed, raised; or its
            sums, which these batches are added to.
        feature_statistics: Whether to sum features as well, by class, for
            `Prediction.ood_score`. A saved classifier then holds class means and
            covariances of features; those of a class with a single example are never
            kept by themselves. By default where they take little: up to 4000 classes
            and about 5000 features.
        class_weight: The ``weight`` of the `nn.CrossEntropyLoss` that the network was
            trained with, so that the curvature is that of the loss it minimises. Only
            ratios matter, as there: on average over the examples they count as one.
        label_smoothing: The ``label_smoothing`` of that loss. It changes the evidence,
            not the curvature.
        sample_weights: Whether batches have a weight for each example: (inputs, labels,
            weights), or mappings with ``sample_weight``. A weight of two counts as the
            example twice. Batches of the ``val_loader`` have the same form; there all
            examples count alike.
        multi_label: Whether labels are K yes-or-no questions, of which any number may
            apply, each with a sigmoid of its own. Labels are then ones and zeros, shape
            (B, K), the model may end in its sigmoid, ``class_weight`` is the
            ``pos_weight`` of its loss, and the answer is a `MultiLabelClassifier`. By
            default one class is right; what looks otherwise is refused until this is
            given as True or False.
        shift_labels: Whether labels are those of the next token, as Hugging Face gives
            them to causal language models. By default the first batch says it: of a
            mapping with ``labels`` the model computes its own loss, which must be that
            of the labels as they stand, or shifted by one.
        output: Where the logits are in what the model returns, if that is neither a
            tensor nor has ``logits``: a key or attribute, or a function of it. A
            function is not saved: give it to `load` again.
        progress: Show a progress bar and say what was chosen.

    Raises:
        InputTypeError: If the model is not a network, or tensors were given in place of
            a loader.
        InputError: If there are no batches, or no way to choose a prior precision; or
            layers are not there or not supported.

    Example:
        >>> # a trained network in practice
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> inputs, labels = torch.eye(4), torch.tensor([0, 1, 2, 0])
        >>> classifier = fit(model, [(inputs, labels)], prior_precision=1.0, progress=False)
        >>> prediction = classifier(inputs)
        >>> lower, upper = prediction.interval(0.95)
        >>> prediction.mean.shape, bool((lower < upper).all())
        (torch.Size([4, 3]), True)
    """
    # what is fitted can be differentiated, wherever it was fitted
    with torch.inference_mode(False):
        require_loader("train_loader", train_loader)
        if val_loader is not None:
            require_loader("val_loader", val_loader)
        train_loader = tensors_for(model, train_loader)
        val_loader = tensors_for(model, val_loader)
        if tune_temperature and (prior_precision is not None or val_loader is None):
            given = "`prior_precision`" if prior_precision is not None else "no `val_loader`"
            raise InputError(
                "`fit(tune_temperature=True)` chooses the temperature together with the prior"
                f" precision; got {given}. Give a `val_loader`, and no `prior_precision`."
            )
        require_kinds(curvature, posterior)
        require_kind_of_labels(model, multi_label, layers)
        usual = logistic_bridge if multi_label else race_bridge
        chosen = usual if bridge is None else bridge
        require_bridge("fit", chosen)
        if prior_precision is not None:
            require_positive_number("fit", "prior_precision", prior_precision)
        loss = Loss.of(class_weight, label_smoothing, sample_weights, bool(multi_label))
        with same_fate("go through its part of the data") as others:
            sums = _sums(model, head, layers, curvature, resume, progress, feature_statistics, loss)
            if isinstance(sums, HeadSums):
                sums.shift_labels, sums.output = shift_labels, output
            elif output is not None:
                raise InputError(
                    "`fit(output=...)` is for the head alone; got `layers` as well. Wrap the model"
                    " in a module whose forward returns the logits."
                )
            sums.add(train_loader, others)
        sums.agree()
        if sums.network is None or sums.curvature is None:
            raise InputError(
                "`fit` needs at least one batch with examples that are not left out; the loader"
                " yielded none. Is it a generator that was used up, or empty, or are all labels"
                f" {IGNORED_LABEL}?"
            )
        total, labels = sums.reduced()
        if labels is not None:
            total, labels = total.scaled(labels.scale), labels.scaled()
        fitted = sums.posterior(total, float(prior_precision or 1.0), posterior)
        unusual, held_out = unusual_score(sums), None
        if val_loader is not None and (prior_precision is None or unusual is not None):
            with same_fate("run the held-out data"):
                batches = map(unpack_weighted_batch, val_loader) if sample_weights else val_loader
                held_out = held_out_examples(
                    sums.network, batches, fitted.num_classes, progress, bool(multi_label)
                )
                if unusual is not None:
                    unusual = calibrated(unusual, sums, held_out)
        if prior_precision is None:
            with same_fate("choose a prior and a width"):
                fitted, choice = choose(fitted, labels, held_out, chosen, tune_temperature)
            require_same("prior precision", choice.prior_precision, SAME_LABELS)
            require_same("temperature", choice.temperature, SAME_LABELS)
        else:
            choice = prior.given(prior_precision)
        if sums.some_features is not None:
            with torch.no_grad():
                answer = chosen(check(fitted(sums.some_features[:CHECKED_EXAMPLES])))
            if not isinstance(answer, Dirichlet):
                raise InputTypeError(
                    f"A bridge must return a `Dirichlet`; this one gave {type(answer).__name__}."
                    " `lb.Dirichlet.from_concentration(alpha)` makes one."
                )
            check(answer)
            if prior_precision is None and val_loader is None:
                prior.warn_if_underconfident(fitted, chosen, sums.some_features)
        if labels is not None:
            warn_if_untrained(labels)
            if not sums.loss.multi_label and not sums.network.shift_labels:
                warn_if_classes_are_missing(labels)
        if progress:
            tqdm.write(
                f"laplacebridge: prior precision {choice.prior_precision:.3g}, {choice.method}",
                file=sys.stderr,
            )
            if choice.width is not None:
                tqdm.write(
                    f"laplacebridge: {choice.width.described(fitted.num_classes)}", file=sys.stderr
                )
        kind = MultiLabelClassifier if multi_label else Classifier
        return kind(
            sums.network,
            fitted,
            bridge=chosen,
            labels=labels,
            prior_choice=choice,
            unusual=unusual,
        )


def _sums(
    model: nn.Module,
    head: str | None,
    layers: str | Sequence[str] | None,
    curvature: type[Curvature] | None,
    resume: FitInterrupted | LoaderError | Sums | None,
    progress: bool,
    feature_statistics: bool | None,
    loss: Loss,
) -> HeadSums | LayerSums:
    if isinstance(resume, LoaderError):
        resume = FitInterrupted(resume.curvature, resume.labels, resume.features)
    if loss.multi_label:
        return MultiLabelSums(model, head, curvature, resume, progress, feature_statistics, loss)
    if layers is None:
        return HeadSums(model, head, curvature, resume, progress, feature_statistics, loss)
    if head is not None:
        raise InputError(
            f"`fit` takes `head` or `layers`, not both; got {head!r} and {layers!r}."
            f" `layers={head!r}` alone covers that layer."
        )
    return LayerSums(model, layers, curvature, resume, progress, feature_statistics, loss)
