"""The section of a model's card that says what its uncertainty rests on."""

import re

from laplacebridge.classifier import Classifier

_BEGIN, _END = "<!-- laplacebridge -->", "<!-- /laplacebridge -->"


def card_section(classifier: Classifier, task: str) -> str:
    """What was fitted, on what, what is promised, and how it is used, in Markdown.

    Args:
        classifier: The classifier.
        task: What the model is for.
    """
    labels, policy = classifier.labels, classifier.policy
    precision = float(classifier.posterior.prior_precision)
    lines = [
        "## Uncertainty",
        "",
        "Probabilities have intervals, by a Laplace approximation of the last layer.",
        "",
        "| | |",
        "|---|---|",
        f"| covered | {classifier.network.described()}, {classifier.num_classes} classes |",
        f"| posterior | {type(classifier.posterior).__name__} |",
        f"| prior precision | {precision:.3g}, {classifier.prior_choice.method} |",
    ]
    if labels is not None and labels.log_likelihood is not None:
        count = float(labels.class_counts.sum())
        lines.append(f"| training labels | {count:.0f} |")
        loss = -labels.log_likelihood / count
        lines.append(f"| training loss of the network | {loss:.4g} nats per label |")
    width = classifier.prior_choice.width
    if width is not None:
        lines.append(f"| width | {width.described(classifier.num_classes)} |")
    else:
        lines.append("| width | as it follows from the prior; no held-out labels chose it |")
    promises = [] if policy is None else policy.promises()
    lines += ["", "What is promised:", "", *(f"- {promise}" for promise in promises or ["nothing"])]
    call = {
        "text-generation": 'model.generate("a text", max_new_tokens=20).epistemic',
    }.get(task, 'model("a text")')
    lines += [
        "",
        "```python",
        "from laplacebridge.transformers import from_pretrained",
        'model = from_pretrained("this folder")',
        call,
        "```",
    ]
    return "\n".join(lines) + "\n"


def with_section(card: str, section: str) -> str:
    """A card with the section in its place, or at its end; the rest is left as it is.

    Args:
        card: The card as it is.
        section: What `card_section` gives.

    Example:
        >>> print(with_section("# My model", "## Uncertainty"))
        # My model
        <BLANKLINE>
        <!-- laplacebridge -->
        ## Uncertainty
        <!-- /laplacebridge -->
        <BLANKLINE>
    """
    marked = f"{_BEGIN}\n{section.rstrip()}\n{_END}\n"
    old = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END) + "\n?", re.DOTALL)
    if old.search(card):
        return old.sub(lambda _: marked, card, count=1)
    return f"{card.rstrip()}\n\n{marked}" if card.strip() else marked
