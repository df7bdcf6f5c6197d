"""ONNX in, ONNX out: uncertainty for models that exist only as a file, whoever made them.

>>> from laplacebridge.onnx.examples import small_model
>>> path, inputs, labels = small_model()
>>> fitted = fit(path, [(inputs, labels)], progress=False)
>>> fitted.head.relation
'softmax'
>>> fitted.write(
...     path.replace(".onnx", "-with-uncertainty.onnx"), outputs=["probabilities", "interval"]
... )
['lb_probabilities', 'lb_lower', 'lb_upper']

Needs the extra ``onnx``: ``pip install 'laplacebridge[onnx]'``.
"""

from laplacebridge._answers import ANSWERS as ANSWERS
from laplacebridge.errors import LaplaceBridgeError

try:
    import onnx as _onnx  # noqa: F401
except ModuleNotFoundError as error:
    raise LaplaceBridgeError(
        f"`lb.onnx` needs {error.name}, which is not installed. Install it with `pip install"
        " 'laplacebridge[onnx]'`."
    ) from error

from laplacebridge.onnx.answer_graph import Wanted as Wanted
from laplacebridge.onnx.answer_graph import append_answers as append_answers
from laplacebridge.onnx.finding import find_head as find_head
from laplacebridge.onnx.fitting import FittedModel as FittedModel
from laplacebridge.onnx.fitting import fit as fit
from laplacebridge.onnx.head import Head as Head
