"""The formulas of predictions, written as nodes of ONNX graphs.

Each module is a second form of one of the library's, with the same names; tests bind the
two together. The code that predicts in torch is not touched by it.
"""
