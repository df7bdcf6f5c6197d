"""Classifiers as ONNX files: networks and their uncertainty in one graph.

Needs the extra ``onnx``: ``pip install laplacebridge[onnx]``.
"""

from laplacebridge.onnx.answer_graph import ANSWERS as ANSWERS
from laplacebridge.onnx.answer_graph import Wanted as Wanted
from laplacebridge.onnx.answer_graph import append_answers as append_answers
