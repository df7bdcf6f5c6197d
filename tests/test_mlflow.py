"""Classifiers as models of MLflow: logged, loaded, and scored by its own server."""

import threading

import numpy as np
import pytest
import torch
from cli_project import MODULE, examples, trained_network

import laplacebridge as lb

mlflow = pytest.importorskip("mlflow")
pd = pytest.importorskip("pandas")
from laplacebridge import mlflow as logged  # noqa: E402

NAMES = ["cat", "dog", "owl"]
pytestmark = [
    pytest.mark.crosscheck,  # MLflow comes with that extra alone
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of MLflow's own dependencies
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Hint. Inferred schema"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred"),  # by MLflow's own import
    pytest.mark.filterwarnings("ignore:With .* held-out labels:UserWarning"),
]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Runs in a folder, without a word to anybody."""
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
    (tmp_path / "code_of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def classifier():
    train, held_out = examples(200, seed=0), examples(200, seed=1)
    return lb.fit(trained_network(), [train], val_loader=[held_out], progress=False)


@pytest.fixture
def inputs():
    return pd.DataFrame(examples(7, seed=2).inputs.numpy(), columns=list("abcd"))


def test_a_logged_model_answers_as_the_classifier_does(classifier, inputs, alone):
    with mlflow.start_run():
        info = logged.log_model(
            classifier,
            "code_of_a_user:network",
            input_example=inputs,
            class_names=NAMES,
            code_paths=[str(alone / "code_of_a_user.py")],
        )
    found = mlflow.pyfunc.load_model(info.model_uri)
    prediction = classifier(torch.tensor(inputs.to_numpy()))
    pd.testing.assert_frame_equal(found.predict(inputs), prediction.to_pandas(NAMES))
    signature = found.metadata.signature
    assert signature.inputs.input_names() == list("abcd")
    assert {"label", "lower", "upper", "ood_quantile", "p(owl)"} <= set(
        signature.outputs.input_names()
    )
    again = logged.load_model(info.model_uri)
    torch.testing.assert_close(again(torch.tensor(inputs.to_numpy())).mean, prediction.mean)


def test_several_labels_at_once_are_logged_and_answered(inputs, alone):
    given, labels = examples(200, seed=0)
    several = lb.fit(
        trained_network(),
        [(given, torch.nn.functional.one_hot(labels, 3).float())],
        multi_label=True,
        prior_precision=1.0,
        progress=False,
    )
    logged.save_model(
        alone / "saved",
        several,
        "code_of_a_user:network",
        input_example=inputs,
        class_names=NAMES,
    )
    found = mlflow.pyfunc.load_model(str(alone / "saved")).predict(inputs)
    prediction = several(torch.tensor(inputs.to_numpy()))
    np.testing.assert_array_equal(
        found[[f"p({name})" for name in NAMES]].to_numpy(), prediction.mean.numpy()
    )
    np.testing.assert_array_equal(found["lower(owl)"], prediction.interval()[0][:, 2].numpy())
    applies = [", ".join(np.compress(row, NAMES)) for row in prediction.applies.numpy()]
    assert found["labels"].tolist() == applies


def test_mlflows_own_server_and_client_score_it(classifier, inputs, alone):
    uvicorn = pytest.importorskip("uvicorn")
    from mlflow.pyfunc.scoring_server import client, init

    logged.save_model(alone / "saved", classifier, "code_of_a_user:network", input_example=inputs)
    app = init(mlflow.pyfunc.load_model(str(alone / "saved")))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        answered = client.ScoringServerClient("127.0.0.1", port).invoke(inputs).get_predictions()
    finally:
        server.should_exit = True
        thread.join(timeout=30)
    expected = classifier(torch.tensor(inputs.to_numpy()))
    np.testing.assert_array_equal(answered["label"], expected.label.numpy())
    np.testing.assert_allclose(answered["upper"], expected.to_pandas()["upper"], rtol=1e-5)


def test_arrays_of_any_shape_have_a_signature_too(classifier, inputs, alone):
    rows = inputs.to_numpy()
    logged.save_model(alone / "saved", classifier, "code_of_a_user:network", input_example=rows)
    found = mlflow.pyfunc.load_model(str(alone / "saved"))
    assert found.metadata.signature.inputs.is_tensor_spec()
    assert len(found.predict(rows)) == 7


def test_what_cannot_be_logged_is_refused_before_it_is_served(classifier, alone):
    with pytest.raises(lb.InputError, match=r"'absent_module:build'.*code_paths"):
        logged.save_model(alone / "saved", classifier, "absent_module:build")
    with pytest.raises(lb.InputError, match=r"must build a torch\.nn.Module"):
        logged.save_model(alone / "saved", classifier, "builtins:list")
    with pytest.raises(lb.InputError, match=r"builds another: .*state_dict"):
        logged.save_model(alone / "saved", classifier, "code_of_a_user:wider_network")
    assert not (alone / "saved").exists()
