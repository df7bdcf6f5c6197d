"""One page that judges a classifier on given data: a table, plots and a verdict."""

from laplacebridge.report.evaluation import Evaluation as Evaluation
from laplacebridge.report.examples import Examples as Examples
from laplacebridge.report.examples import examples_of as examples_of
from laplacebridge.report.judge import judge as judge
