"""Scores for out-of-distribution (OOD) detection and deferring: a number for each
example, higher = more unusual.

What a classifier answers has the recommended one already, `Prediction.ood_score`. Here
are those of a prediction or of logits, and those of features that others have proposed,
for comparison.
"""

from laplacebridge.scores.features import ash as ash
from laplacebridge.scores.features import knn as knn
from laplacebridge.scores.features import mahalanobis as mahalanobis
from laplacebridge.scores.features import mahalanobis_plus_plus as mahalanobis_plus_plus
from laplacebridge.scores.features import react as react
from laplacebridge.scores.features import relative_mahalanobis as relative_mahalanobis
from laplacebridge.scores.features import vim as vim
from laplacebridge.scores.logits import LOGIT_SCORES as LOGIT_SCORES
from laplacebridge.scores.logits import energy as energy
from laplacebridge.scores.logits import generalised_entropy as generalised_entropy
from laplacebridge.scores.logits import max_logit as max_logit
from laplacebridge.scores.logits import msp_of_logits as msp_of_logits
from laplacebridge.scores.predictions import DIRICHLET_SCORES as DIRICHLET_SCORES
from laplacebridge.scores.predictions import SCORES as SCORES
from laplacebridge.scores.predictions import Score as Score
from laplacebridge.scores.predictions import differential_entropy as differential_entropy
from laplacebridge.scores.predictions import entropy_of_mean as entropy_of_mean
from laplacebridge.scores.predictions import expected_entropy as expected_entropy
from laplacebridge.scores.predictions import max_marginal_variance as max_marginal_variance
from laplacebridge.scores.predictions import msp as msp
from laplacebridge.scores.predictions import mutual_information as mutual_information
from laplacebridge.scores.predictions import negative_log_total as negative_log_total
