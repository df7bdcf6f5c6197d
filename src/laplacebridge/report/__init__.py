"""One report on a classifier and given data: what it can do by itself, whether its
uncertainty holds, a table of methods, and what to use.
"""

from laplacebridge.report._evaluating import evaluate as evaluate
from laplacebridge.report.evaluation import Evaluation as Evaluation
from laplacebridge.report.label_evaluation import LabelEvaluation as LabelEvaluation
from laplacebridge.report.label_evaluation import LabelRow as LabelRow
from laplacebridge.report.table import Row as Row
