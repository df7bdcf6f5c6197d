"""For scikit-learn: `LaplaceBridgeClassifier` wraps a classifier and says how sure it
is. Needs the extra ``sklearn``.
"""

from laplacebridge.sklearn.classifier import LaplaceBridgeClassifier as LaplaceBridgeClassifier
