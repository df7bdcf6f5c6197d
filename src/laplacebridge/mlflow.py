"""For MLflow: fitted classifiers as models of a run, which its servers answer with.
Needs the extra ``mlflow``.

A model is a folder with the classifier and the weights of its network, both as
safetensors, and the name of a function that builds the network: nothing is pickled.
"""

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

import laplacebridge
from laplacebridge._arrays import to_tensors
from laplacebridge._files import read_safetensors, write_safetensors
from laplacebridge.checkpoint import load, save
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError, InputTypeError, LaplaceBridgeError

FLAVOUR = "laplacebridge"
FOLDER, CLASSIFIER, WEIGHTS, SETTINGS = (
    "model",
    "classifier.safetensors",
    "weights.safetensors",
    "settings.json",
)


def log_model(
    classifier: Classifier,
    factory: str,
    name: str = "classifier",
    *,
    input_example: Any = None,  # noqa: ANN401
    signature: Any = None,  # noqa: ANN401
    class_names: Sequence[str] | None = None,
    level: float = 0.95,
    code_paths: Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Logs a fitted classifier as a model of the active run, or of a new one.

    As a pyfunc it answers with a frame: label, its probability with bounds, the parts
    of uncertainty, how unusual the input is, and the probability of every class. Of
    several labels at once: which apply, and probability, bounds and parts of each.

    Args:
        classifier: The fitted classifier.
        factory: ``package.module:function`` without arguments that builds its network,
            to be filled with its weights; it must be importable where the model is
            loaded, or come along by `code_paths`.
        name: Of the model.
        input_example: Some inputs, an array or a frame, from which the signature
            follows.
        signature: In its place, the signature itself.
        class_names: Names of the classes; by default those of the classifier, or
            numbers.
        level: Of the bounds.
        code_paths: Files or folders of code that the factory needs.
        options: For MLflow's `Model.log`, such as ``registered_model_name``.

    Returns:
        MLflow's `ModelInfo`, with the address of the model.

    Example:
        A run with a model whose network `project.network:build` builds::

            with mlflow.start_run():
                info = laplacebridge.mlflow.log_model(
                    classifier,
                    "project.network:build",
                    input_example=inputs,
                    code_paths=["project"],
                )
            mlflow.pyfunc.load_model(info.model_uri).predict(inputs)  # a frame
    """
    return _mlflow().models.Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        classifier=classifier,
        factory=factory,
        input_example=input_example,
        signature=signature,
        class_names=class_names,
        level=level,
        code_paths=code_paths,
        **options,
    )


def save_model(
    path: str | Path,
    classifier: Classifier,
    factory: str,
    *,
    mlflow_model: Any = None,  # noqa: ANN401
    input_example: Any = None,  # noqa: ANN401
    signature: Any = None,  # noqa: ANN401
    class_names: Sequence[str] | None = None,
    level: float = 0.95,
    code_paths: Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Writes a folder as MLflow reads it; `log_model` does that for a run.

    Args:
        path: The folder.
        classifier: The fitted classifier.
        factory: As for `log_model`.
        mlflow_model: What MLflow has written about it already.
        input_example: As for `log_model`.
        signature: The same.
        class_names: The same.
        level: The same.
        code_paths: The same.
        options: For `mlflow.pyfunc.save_model`.

    Raises:
        InputTypeError: If it is no classifier.
        InputError: If the factory does not build this network.
    """
    if not isinstance(classifier, Classifier):
        raise InputTypeError(
            "`log_model(classifier)` needs a fitted classifier, from `lb.fit`; got"
            f" {type(classifier).__name__}. One of scikit-learn is logged with"
            " `mlflow.sklearn.log_model`."
        )
    mlflow = _mlflow()
    names = class_names if class_names is not None else classifier.class_names
    settings = {
        "factory": factory,
        "class_names": None if names is None else list(names),
        "level": level,
    }
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / FOLDER
        folder.mkdir()
        save(classifier, folder / CLASSIFIER)
        weights = classifier.network.model.state_dict()
        # tied weights share memory, which safetensors has no word for
        write_safetensors(folder / WEIGHTS, {key: weights[key].clone() for key in weights}, {})
        (folder / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
        answers = _load_pyfunc(str(folder))  # which fails here rather than where it is served
        if signature is None and input_example is not None:
            signature = mlflow.models.infer_signature(input_example, answers.predict(input_example))
        described = mlflow.models.Model() if mlflow_model is None else mlflow_model
        described.add_flavor(FLAVOUR, version=laplacebridge.__version__, **settings)
        options.setdefault(
            "pip_requirements", [f"laplacebridge=={laplacebridge.__version__}", "pandas"]
        )
        mlflow.pyfunc.save_model(
            str(path),
            loader_module=__name__,
            data_path=str(folder),
            mlflow_model=described,
            signature=signature,
            input_example=input_example,
            code_paths=None if code_paths is None else list(code_paths),
            **options,
        )


def load_model(model_uri: str) -> Classifier:
    """The classifier itself of a model that was logged, to be used as it was.

    Args:
        model_uri: Where it is: ``models:/…``, ``runs:/…`` or a folder.
    """
    found = Path(_mlflow().artifacts.download_artifacts(artifact_uri=model_uri))
    code = found / "code"
    if code.is_dir() and str(code) not in sys.path:
        sys.path.insert(0, str(code))
    return _load_pyfunc(str(found / "data" / FOLDER)).classifier


class Answers:
    """What MLflow calls: inputs in, a frame out.

    Args:
        classifier: The classifier.
        class_names: Names of its classes; None for numbers.
        level: Of the bounds.
    """

    def __init__(
        self, classifier: Classifier, class_names: Sequence[str] | None, level: float
    ) -> None:
        self.classifier = classifier
        self.class_names = class_names
        self.level = level

    def predict(self, data: Any, params: Any = None) -> Any:  # noqa: ANN401
        """A frame with a row for each input.

        Args:
            data: An array, or a frame whose columns are the features.
            params: Of MLflow; there are none.
        """
        inputs = to_tensors(np.asarray(data))
        weight = next(self.classifier.network.model.parameters())
        if inputs.is_floating_point():
            inputs = inputs.to(weight.dtype)
        with torch.no_grad():
            prediction = self.classifier(inputs.to(weight.device))
        return prediction.to_pandas(self.class_names, self.level)


def _mlflow() -> Any:  # noqa: ANN401
    """MLflow, imported when it is needed.

    Raises:
        LaplaceBridgeError: If it is not installed.
    """
    try:
        for part in ("artifacts", "models", "pyfunc"):
            importlib.import_module(f"mlflow.{part}")
        import mlflow
    except ModuleNotFoundError as error:
        raise LaplaceBridgeError(
            f"`laplacebridge.mlflow` needs {error.name}, which is not installed: `pip install"
            " 'laplacebridge[mlflow]'`."
        ) from error
    return mlflow


def _load_pyfunc(path: str) -> Answers:
    """What MLflow calls to load a model.

    Raises:
        InputError: If the factory does not build a network that takes the weights.
    """
    folder = Path(path)
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    module, _, function = settings["factory"].partition(":")
    try:
        model = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"`factory` needs package.module:function without arguments, which can be imported;"
            f" got {settings['factory']!r} ({error}). Code of yours comes along with"
            " `code_paths=[…]`."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(
            f"`factory` must build a torch.nn.Module; {settings['factory']} gives"
            f" {type(model).__name__}."
        )
    try:
        model.load_state_dict(read_safetensors(folder / WEIGHTS).tensors)
    except RuntimeError as error:  # which says which weights differ
        raise InputError(
            f"`factory` must build the network that was fitted; {settings['factory']} builds"
            f" another: {error}"
        ) from error
    model.eval()
    classifier = load(folder / CLASSIFIER, model)
    return Answers(classifier, settings["class_names"], settings["level"])
