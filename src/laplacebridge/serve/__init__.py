"""A server for classifiers: the Open Inference Protocol, version 2, over HTTP.

`laplacebridge serve` runs it. It needs the extra `serve`.
"""

from laplacebridge.serve.app import create_app as create_app
from laplacebridge.serve.classifier import Policy as Policy
from laplacebridge.serve.classifier import ServedClassifier as ServedClassifier
from laplacebridge.serve.labels import ServedLabels as ServedLabels
from laplacebridge.serve.served import Served as Served
from laplacebridge.serve.server import run as run
from laplacebridge.serve.settings import Settings as Settings
from laplacebridge.serve.tensors import RequestError as RequestError
from laplacebridge.serve.tensors import TensorSpec as TensorSpec
