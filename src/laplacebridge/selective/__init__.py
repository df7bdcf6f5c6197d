"""Selective prediction: answer where errors are rare enough, otherwise name a set of classes, or ask."""

from laplacebridge.selective.decisions import Action as Action
from laplacebridge.selective.decisions import AnswerRule as AnswerRule
from laplacebridge.selective.decisions import Decision as Decision
from laplacebridge.selective.decisions import Decisions as Decisions
from laplacebridge.selective.thresholds import clopper_pearson_upper as clopper_pearson_upper
from laplacebridge.selective.thresholds import for_coverage as for_coverage
from laplacebridge.selective.thresholds import for_risk as for_risk
