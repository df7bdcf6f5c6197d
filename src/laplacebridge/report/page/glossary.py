"""The words of the page, and texts in which they lead there."""

import re
from html import escape

# As the glossary has them, in fewer words.
WORDS = {
    "Risk": "the error rate among answers",
    "Defer": "not to answer, but to hand the case to a person",
    "Interval": "bounds between which a probability lies, here with a chance of 95 %",
    "Set": "classes of which one is the right one, as often as was asked",
    "Coverage": "the share of sets that hold the label",
    "Unusual input": "one unlike the training data, whatever its label seems to be; also called"
    " out-of-distribution, OOD",
    "AUROC": "the chance that a score is higher for an unusual input than for an ordinary one",
    "Calibration": "whether probabilities come true as often as they say",
    "NLL": "negative log-likelihood of the labels; small where the right class was probable",
    "ECE": "expected calibration error, the gap between confidence and accuracy",
    "AURC": "mean error rate over all shares of answers, the surest first",
    "Held-out data": "labelled examples that the network was not trained on; they chose"
    " temperature and width",
    "Classifier": "the network with a distribution over its probabilities, as it was fitted",
    "False alarm": "an ordinary input that is taken for an unusual one",
    "Temperature scaling": "dividing what the network says by one number, chosen on held-out"
    " data, so that it is as sure as it should be on average",
    "Bridge": "a formula from the network's uncertainty to that of its probabilities",
    "Probit approximation": "a formula that makes probabilities less sure where the network"
    " is uncertain",
    "Monte Carlo samples": "random draws of what the network might have said",
    "Epistemic": "uncertainty about the probabilities themselves, which more data would remove",
    "Energy": "a score of unusual inputs that only asks how large the network's outputs are",
}

_TERM = re.compile(
    r"\b(" + "|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)) + r")(s|red)?\b",
    re.IGNORECASE,
)


class Explained:
    """Makes HTML of texts in which every word of the glossary leads there, where it
    stands first in all of them.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, text: str) -> str:
        """The HTML of a text."""
        # what HTML escapes has no word of the glossary in it
        return _TERM.sub(self._linked, escape(text))

    def _linked(self, found: re.Match[str]) -> str:
        word = next(each for each in WORDS if each.lower() == found[1].lower())
        if word in self._seen:
            return found[0]
        self._seen.add(word)
        meaning = escape(WORDS[word])
        return f'<a class="word" href="#{word_id(word)}" title="{meaning}">{found[0]}</a>'


def word_id(word: str) -> str:
    """Where a word stands in the page."""
    return "word-" + word.lower().replace(" ", "-")
