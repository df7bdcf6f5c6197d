"""Several labels at once: K yes-or-no questions about each input, each answered with a
Beta distribution over its probability.
"""

from laplacebridge.multi_label.classifier import MultiLabelClassifier as MultiLabelClassifier
from laplacebridge.multi_label.logistic import logistic_bridge as logistic_bridge
from laplacebridge.multi_label.logistic import logistic_normal_mean as logistic_normal_mean
from laplacebridge.multi_label.prediction import MultiLabelPrediction as MultiLabelPrediction
from laplacebridge.multi_label.prediction import per_label as per_label
from laplacebridge.multi_label.sets import LabelSets as LabelSets
from laplacebridge.multi_label.sets import calibrate as calibrate
