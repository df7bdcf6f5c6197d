"""One report on a classifier and given data: a table of methods, plots and a verdict."""

from laplacebridge.report._evaluate import evaluate as evaluate
from laplacebridge.report._verdict import verdict as verdict
from laplacebridge.report.evaluation import Evaluation as Evaluation
from laplacebridge.report.evaluation import Row as Row
