"""Gaussians over logits without a Laplace approximation: MC dropout, ensembles, SWAG,
variational last layers.
"""

from laplacebridge.sources.dropout import DROPOUT_LAYERS as DROPOUT_LAYERS
from laplacebridge.sources.dropout import dropout_gaussian as dropout_gaussian
from laplacebridge.sources.ensemble import ensemble_gaussian as ensemble_gaussian
from laplacebridge.sources.mean_field import mean_field_gaussian as mean_field_gaussian
from laplacebridge.sources.swag import SWAG as SWAG
from laplacebridge.sources.swag import refresh_batch_norm as refresh_batch_norm
