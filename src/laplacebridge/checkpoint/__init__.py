"""Saving and loading a fitted classifier."""

from laplacebridge.checkpoint.saved_classifier import SavedClassifier as SavedClassifier
from laplacebridge.checkpoint.saving import load as load
from laplacebridge.checkpoint.saving import save as save
