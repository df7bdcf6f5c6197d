"""One report on a classifier and given data: what it can do by itself, whether its
uncertainty holds, a table of methods, and what to use.
"""

from laplacebridge.report._evaluate import evaluate as evaluate
from laplacebridge.report._labels import LabelEvaluation as LabelEvaluation
from laplacebridge.report._labels import LabelRow as LabelRow
from laplacebridge.report.evaluation import Evaluation as Evaluation
from laplacebridge.report.table import Row as Row
