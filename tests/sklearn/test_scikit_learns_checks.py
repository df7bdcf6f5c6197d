"""scikit-learn's own checks of estimators pass, all of them."""

import json
import subprocess
import sys

import pytest

# In a process of its own: hundreds of small fits take minutes where shapes are checked.
CODE = """
import json, warnings
from sklearn.utils.estimator_checks import check_estimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from laplacebridge.sklearn import LaplaceBridgeClassifier
warnings.simplefilter("ignore")  # toy data: too few labels, models that learnt nothing
results = check_estimator(LaplaceBridgeClassifier({estimator}), on_fail=None, on_skip=None)
print(json.dumps([(each["check_name"], each["status"], str(each["exception"])) for each in results]))
"""


def not_passed(estimator):
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CODE.replace("{estimator}", estimator)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    results = json.loads(run.stdout.splitlines()[-1])
    assert len(results) > 50
    # one looks at nothing unless SCIPY_ARRAY_API was set before the start
    return [each for each in results if each[1] != "passed" and each[0] != "check_array_api_input"]


def test_every_check_passes():
    assert not_passed("cv=2") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        "None",
        "LinearDiscriminantAnalysis()",
        "SGDClassifier(loss='log_loss', random_state=0)",
        "make_pipeline(StandardScaler(), LogisticRegression())",
        "MLPClassifier((10,), random_state=0, max_iter=300)",
        "RandomForestClassifier(10, random_state=0)",
    ],
)
def test_every_check_passes_whatever_is_wrapped(estimator):
    assert not_passed(estimator if estimator == "None" else f"{estimator}, cv=2") == []
