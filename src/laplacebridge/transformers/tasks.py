"""What a Hugging Face model is for."""

from typing import Any

from laplacebridge.errors import InputError

TEXTS, TOKENS, GENERATION = "text-classification", "token-classification", "text-generation"
# How the names of their classes end, and what loads them.
_ENDINGS = {
    "ForSequenceClassification": TEXTS,
    "ForTokenClassification": TOKENS,
    "LMHeadModel": GENERATION,
    "ForCausalLM": GENERATION,
}
AUTO_CLASSES = {
    TEXTS: "AutoModelForSequenceClassification",
    TOKENS: "AutoModelForTokenClassification",
    GENERATION: "AutoModelForCausalLM",
}


def task_of(model: Any) -> str:  # noqa: ANN401
    """The task of a model, by the name of its class.

    Args:
        model: The model; of one with adapters, that below them counts.

    Raises:
        InputError: If it is none of the three.
    """
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()
    name = type(model).__name__
    for ending, task in _ENDINGS.items():
        if name.endswith(ending):
            return task
    raise InputError(
        f"`fit` knows models for {', '.join(AUTO_CLASSES)}; {name} looks like none of them. Say"
        " which it is with `task=`; other networks are taken by `laplacebridge.fit(model, loader)`."
    )


def require_task(task: str) -> None:
    """Refuses other tasks.

    Args:
        task: What was given.

    Raises:
        InputError: If it is none of the three.
    """
    if task not in AUTO_CLASSES:
        raise InputError(f"`task` must be one of {', '.join(AUTO_CLASSES)}; got {task!r}.")
